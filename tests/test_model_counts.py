from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import InvalidValueError
from orchestrator.model import Model
from orchestrator.model_counts import (
    active_parameters,
    forward_flops,
    kv_cache_bytes,
    layer_flops,
    layer_weights,
    parameters,
    training_bytes,
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


def test_a_token_passes_through_the_experts_that_it_takes() -> None:
    # 6 of 8 experts of 3·4096·14336 stand idle in 32 layers; 120 of 128 of 3·2048·768 in 48
    assert active_parameters(load_model("mixtral-8x7b")) == 46_702_792_704 - 32 * 6 * 3 * 4096 * 14336
    assert active_parameters(load_model("qwen3-30b-a3b")) == 30_532_122_624 - 48 * 120 * 3 * 2048 * 768
    assert active_parameters(load_model("llama-2-7b")) == 6_738_415_616


def test_biases_of_idle_experts_are_idle_too() -> None:
    # 28 of 32 experts with 3·2880·2880 weights and 2·2880 + 2880 biases in 24 layers
    model = load_model(str(CONFIGS / "gpt-oss-20b.json"))
    assert active_parameters(model) == 20_914_757_184 - 24 * 28 * (3 * 2880 * 2880 + 3 * 2880)


heads = st.integers(1, 64)


@given(a=heads, d=st.integers(1, 256), b=st.integers(1, 64), s=st.integers(1, 8192))
def test_a_plain_layer_has_the_paper_s_flops(a: int, d: int, b: int, s: int) -> None:
    h = a * d
    model = Model(name="m", h=h, layers=1, a=a, kv=a, head_dim=d, d_ff=4 * h, v=100, mlp="gelu")
    assert layer_flops(model, b=b, s=s).total == 24 * b * s * h**2 + 4 * b * s**2 * h


def test_the_flops_of_a_llama_3_8b_layer() -> None:
    flops = layer_flops(load_model("llama-3-8b"), b=2, s=1024)
    assert flops.qkv == 2 * 2048 * 6144 * 4096
    assert flops.attn_out == 2 * 2048 * 4096 * 4096
    assert flops.attn_score == flops.attn_over_value == 2 * (2 * 32) * 1024 * 1024 * 128
    assert flops.mlp == 3 * 2 * 2048 * 4096 * 14336
    assert (flops.router, flops.experts) == (0, 0)


def test_a_layer_with_experts_pays_for_those_taken_and_the_shared_one() -> None:
    model = load_model("deepseek-v3")
    sparse, dense = layer_flops(model, b=1, s=10), layer_flops(model, b=1, s=10, dense=True)
    assert sparse.experts == 3 * 2 * 10 * 7168 * (8 * 2048 + 2048)
    assert (sparse.router, sparse.mlp) == (2 * 10 * 7168 * 256, 0)
    assert (dense.experts, dense.router, dense.mlp) == (0, 0, 3 * 2 * 10 * 7168 * 18432)
    assert forward_flops(model, b=1, s=10) == 58 * sparse.total + 3 * dense.total + 2 * 10 * 7168 * 129280


@pytest.mark.parametrize("name", names())
def test_one_token_costs_two_flops_for_each_weight_of_a_gemm_and_the_scores(name: str) -> None:
    model = load_model(name)
    terms = parameters(model)
    idle = parameters(model).total - active_parameters(model)
    used = terms.attention + terms.mlp + terms.experts + terms.router - idle + model.v * model.h
    assert forward_flops(model, b=1, s=1) == 2 * used + model.layers * 4 * model.a * model.head_dim


def test_bytes_of_weights_training_and_kv_cache() -> None:
    model = load_model("llama-2-7b")
    assert weight_bytes(model) == 2 * 6_738_415_616
    assert weight_bytes(model, element_bytes=1) == 6_738_415_616
    assert training_bytes(model) == 16 * 6_738_415_616
    assert kv_cache_bytes(model) == 2 * 32 * 4096 * 2  # half a MiB a token
    assert kv_cache_bytes(load_model("llama-3-8b")) == kv_cache_bytes(model) // 4


def test_ranks_share_a_layer_s_weights() -> None:
    model = load_model("llama-2-7b")
    assert layer_weights(model, tp=8).total * 8 == layer_weights(model).total == 4 * 4096**2 + 3 * 4096 * 11008


def test_a_rank_beyond_the_key_value_heads_holds_one() -> None:
    # 32 heads over 16 ranks: 2 each, and one of the 8 key/value heads
    assert layer_weights(load_model("llama-3-8b"), tp=16).qkv == 4096 * (2 + 2) * 128


def test_every_rank_holds_the_whole_router() -> None:
    model = load_model("mixtral-8x7b")
    assert layer_weights(model, tp=4).router == layer_weights(model).router == 4096 * 8
    assert layer_weights(model, tp=4).experts == 8 * 3 * 4096 * 14336 // 4


def test_a_tp_that_does_not_divide_is_refused() -> None:
    model = load_model("qwen2.5-7b")
    with pytest.raises(InvalidValueError, match="tp=8 does not divide a=28"):
        layer_weights(model, tp=8)


@given(a=st.sampled_from([8, 16, 32]), group=st.sampled_from([1, 2, 4, 8]), tp=st.sampled_from([1, 2, 4, 8]))
def test_the_ranks_together_hold_the_layer_and_the_replicated_key_value_heads(a: int, group: int, tp: int) -> None:
    kv = a // group
    model = Model(name="m", h=512, layers=2, a=a, kv=kv, head_dim=64, d_ff=1024, v=100)
    whole, rank = layer_weights(model), layer_weights(model, tp=tp)
    assert rank.mlp * tp == whole.mlp
    assert rank.attn_out * tp == whole.attn_out
    assert rank.qkv * tp == whole.qkv + 512 * 2 * (max(kv, tp) - kv) * 64
