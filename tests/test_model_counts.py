from pathlib import Path

import pytest

from orchestrator.model_counts import (
    kv_cache_bytes,
    parameters,
    weight_bytes,
)
from orchestrator.models import load_model, names

CONFIGS = Path(__file__).parent / "data" / "configs"
PUBLISHED = {  # the sum over the tensors of the published checkpoints, tied ones once
    "llama-2-7b": 6_738_415_616,
    "llama-3-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "mistral-7b": 7_241_732_096,
    "mistral-nemo-12b": 12_247_782_400,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-0.5b": 494_032_768,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen1.5-moe-a2.7b": 14_315_784_192,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-3-4b": 3_880_263_168,  # its text part
    "gpt2": 124_439_808,
    "pythia-12b": 11_846_072_320,
    "opt-125m": 125_239_296,
    "bloom-560m": 559_214_592,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "starcoder2-3b": 3_030_371_328,
    "olmoe-1b-7b": 6_919_161_856,
    "gpt-oss-20b": 20_914_757_184,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_equal_the_published_count(name: str) -> None:
    assert parameters(load_model(str(CONFIGS / f"{name}.json"))).total == PUBLISHED[name]


@pytest.mark.parametrize("name", names())
def test_a_ready_made_model_has_exactly_the_parameters_that_it_states(name: str) -> None:
    model = load_model(name)
    assert model.parameters in (None, parameters(model).total)
    assert (model.parameters is None) == (name in ("deepseek-v3", "gpt-3-2.7b"))


def test_deepseek_v3_differs_from_the_published_count_by_its_attention_alone() -> None:
    # latent attention: h·1536 + 1536·128·192 and h·576 + 512·128·256, the output 128·128·h, norms of both latents;
    # 58 layers have a correction for each of 256 experts
    latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168 + 1536 + 512
    terms = parameters(load_model("deepseek-v3"))
    assert terms.attention == 61 * 4 * 7168 * 128 * 128
    assert terms.total - terms.attention + 61 * latent + 58 * 256 == 671_026_419_200


def test_gpt_3_follows_the_paper_s_formula() -> None:
    h, layers, v, s = 2560, 32, 50257, 2048
    assert parameters(load_model("gpt-3-2.7b")).total == 12 * h * h * layers + 13 * h * layers + (v + s) * h + 2 * h


def test_the_terms_of_llama_3_8b() -> None:
    terms = parameters(load_model("llama-3-8b"))
    assert terms.embedding == terms.output == 128256 * 4096
    assert terms.attention == 32 * (4096 * (32 + 16) * 128 + 4096 * 4096)
    assert terms.mlp == 32 * 3 * 4096 * 14336
    assert terms.norms == 65 * 4096
    assert (terms.experts, terms.router, terms.biases, terms.positions, terms.other) == (0, 0, 0, 0, 0)


def test_the_terms_of_a_model_with_dense_layers_and_shared_experts() -> None:
    terms = parameters(load_model("deepseek-v3"))
    assert terms.mlp == 3 * 3 * 7168 * 18432
    assert terms.experts == 58 * 3 * 7168 * (256 * 2048 + 2048)
    assert terms.router == 58 * 7168 * 256


def test_bytes_of_weights_and_kv_cache() -> None:
    model = load_model("llama-2-7b")
    assert weight_bytes(model) == 2 * 6_738_415_616
    assert weight_bytes(model, element_bytes=1) == 6_738_415_616
    assert kv_cache_bytes(model) == 2 * 32 * 4096 * 2  # half a MiB a token
    assert kv_cache_bytes(load_model("llama-3-8b")) == kv_cache_bytes(model) // 4
