import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from orchestrator import cli
from orchestrator.errors import ConfigError, OrchestratorError
from orchestrator.hf_config import parse
from orchestrator.model import Model
from orchestrator.model_counts import parameters
from orchestrator.models import load_model, names

CONFIGS = Path(__file__).parent / "data" / "configs"
SHAPES = {  # h, layers, a, kv, head_dim, d_ff, v, mlp, tied
    "llama-1-7b": (4096, 32, 32, 32, 128, 11008, 32000, "swiglu", False),
    "llama-2-7b": (4096, 32, 32, 32, 128, 11008, 32000, "swiglu", False),
    "llama-3-8b": (4096, 32, 32, 8, 128, 14336, 128256, "swiglu", False),
    "llama-3.2-1b": (2048, 16, 32, 8, 64, 8192, 128256, "swiglu", True),
    "llama-4-scout": (5120, 48, 40, 8, 128, 16384, 202048, "swiglu", False),
    "llava-1.5-7b": (4096, 32, 32, 32, 128, 11008, 32064, "swiglu", False),
    "mistral-7b": (4096, 32, 32, 8, 128, 14336, 32000, "swiglu", False),
    "mistral-nemo-12b": (5120, 40, 32, 8, 128, 14336, 131072, "swiglu", False),  # a·head_dim is not h
    "mistral-small-3.1-24b": (5120, 40, 32, 8, 128, 32768, 131072, "swiglu", False),
    "mixtral-8x7b": (4096, 32, 32, 8, 128, 14336, 32000, "swiglu", False),
    "qwen2.5-7b": (3584, 28, 28, 4, 128, 18944, 152064, "swiglu", False),
    "qwen2.5-0.5b": (896, 24, 14, 2, 64, 4864, 151936, "swiglu", True),
    "qwen2-vl-7b": (3584, 28, 28, 4, 128, 18944, 152064, "swiglu", False),
    "qwen3-8b": (4096, 36, 32, 8, 128, 12288, 151936, "swiglu", False),
    "qwen3-30b-a3b": (2048, 48, 32, 4, 128, 6144, 151936, "swiglu", False),
    "qwen1.5-moe-a2.7b": (2048, 24, 16, 16, 128, 5632, 151936, "swiglu", False),
    "gemma-7b": (3072, 28, 16, 16, 256, 24576, 256000, "swiglu", True),
    "gemma-2-2b": (2304, 26, 8, 4, 256, 9216, 256000, "swiglu", True),
    "gemma-3-4b": (2560, 34, 8, 4, 256, 10240, 262208, "swiglu", True),
    "gpt2": (768, 12, 12, 12, 64, 3072, 50257, "gelu", True),
    "pythia-12b": (5120, 36, 40, 40, 128, 20480, 50688, "gelu", False),
    "falcon-7b": (4544, 32, 71, 1, 64, 18176, 65024, "gelu", True),
    "falcon-40b": (8192, 60, 128, 8, 64, 32768, 65024, "gelu", True),
    "opt-125m": (768, 12, 12, 12, 64, 3072, 50272, "gelu", True),
    "bloom-560m": (1024, 24, 16, 16, 64, 4096, 250880, "gelu", True),
    "phi-2": (2560, 32, 32, 32, 80, 10240, 51200, "gelu", False),
    "phi-3-mini": (3072, 32, 32, 32, 96, 8192, 32064, "swiglu", False),
    "starcoder2-3b": (3072, 30, 24, 2, 128, 12288, 49152, "gelu", True),
    "olmoe-1b-7b": (2048, 16, 16, 16, 128, 1024, 50304, "swiglu", False),
    "dbrx": (6144, 40, 48, 8, 128, 10752, 100352, "swiglu", False),
    "gpt-oss-20b": (2880, 24, 64, 8, 64, 2880, 201088, "swiglu", False),
    "deepseek-v3": (7168, 61, 128, 128, 128, 18432, 129280, "swiglu", False),
}
EXPERTS = {  # experts, topk, expert_d_ff, shared_d_ff, dense_layers
    "mixtral-8x7b": (8, 2, 14336, 0, 0),
    "qwen3-30b-a3b": (128, 8, 768, 0, 0),
    "qwen1.5-moe-a2.7b": (60, 4, 1408, 5632, 0),
    "olmoe-1b-7b": (64, 8, 1024, 0, 0),
    "dbrx": (16, 4, 10752, 0, 0),
    "gpt-oss-20b": (32, 4, 2880, 0, 0),
    "deepseek-v3": (256, 8, 2048, 2048, 3),
    "llama-4-scout": (16, 1, 8192, 8192, 0),
}
READY_MADE = {
    "llama-2-7b": "llama-2-7b",
    "llama-3-8b": "llama-3-8b",
    "mistral-7b": "mistral-7b",
    "mixtral-8x7b": "mixtral-8x7b",
    "qwen2.5-7b": "qwen2.5-7b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "deepseek-v3": "deepseek-v3",
    "pythia-12b": "pythia-12b",
}
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
}
QWEN_MOE = LLAMA | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 768,
}
DEEPSEEK = QWEN_MOE | {"model_type": "deepseek_v2", "n_routed_experts": 8, "n_shared_experts": 2}
EXPERT_KEYS = (
    "n_routed_experts",
    "num_local_experts",
    "n_shared_experts",
    "first_k_dense_replace",
    "moe_layer_freq",
    "moe_layers",
    "mlp_only_layers",
    "decoder_sparse_step",
    "kv_lora_rank",
    "multi_query",
    "head_dim",
    "attn_config",
)
BROKEN: list[tuple[dict[str, Any], str]] = [
    ({"hidden_size": ...}, r"hidden_size \(or n_embd, d_model, n_embed\): is missing; give the hidden size"),
    ({"hidden_size": None}, r"hidden_size: has no value; give the hidden size, such as 4096"),
    ({"hidden_size": "4096"}, r"hidden_size: '4096' is not a whole number; give the hidden size"),
    ({"hidden_size": 4096.0}, r"hidden_size: 4096\.0 .* is not a whole number; write 4096"),
    ({"hidden_size": True}, r"hidden_size: true \(a boolean\) is not a whole number"),
    ({"num_hidden_layers": 0}, r"num_hidden_layers: 0 is too small; it must be >= 1"),
    ({"num_hidden_layers": ...}, r"num_hidden_layers .*: is missing; give the number of layers"),
    ({"num_attention_heads": ...}, r"num_attention_heads .*: is missing; give the number of attention heads"),
    ({"intermediate_size": -11008}, r"intermediate_size: -11008 is too small"),
    ({"intermediate_size": ...}, r"intermediate_size .*: is missing"),
    ({"vocab_size": ...}, r"vocab_size: is missing; give the size of the vocabulary"),
    ({"vocab_size": [32000]}, r"vocab_size: \[32000\] is not a whole number"),
    ({"vocab_size": 2**40}, r"vocab_size: 1099511627776 is too large"),
    (
        {"num_attention_heads": 30},
        r"num_attention_heads: 30 does not divide hidden_size=4096; give head_dim.* 16, 32, 64",
    ),
    ({"num_key_value_heads": 5}, r"num_key_value_heads: 5 does not divide num_attention_heads=32; .* such as 2, 4, 8"),
    ({"num_key_value_heads": 64}, r"num_key_value_heads: 64 does not divide num_attention_heads=32"),
    ({"head_dim": 0}, r"head_dim: 0 is too small"),
    ({"tie_word_embeddings": "no"}, r"tie_word_embeddings: 'no' is no boolean; give true or false"),
    ({"attention_bias": 1}, r"attention_bias: 1 is no boolean"),
    ({"model_type": 7}, r"model_type: 7 is no text"),
    ({"is_encoder_decoder": True}, r"is_encoder_decoder: .* only decoder-only models"),
    ({"text_config": "llama"}, r"text_config: 'llama' is no mapping of keys"),
    ({"num_experts": -8}, r"num_experts: -8 is too small"),
    (QWEN_MOE | {"num_experts_per_tok": 16}, r"num_experts_per_tok: 16 is more than num_experts=8"),
    (QWEN_MOE | {"num_experts_per_tok": ...}, r"num_experts_per_tok .*: is missing; give the number of experts that"),
    (QWEN_MOE | {"moe_intermediate_size": ...}, r"moe_intermediate_size .*: is missing; give the hidden size of one"),
    (QWEN_MOE | {"mlp_only_layers": "0"}, r"mlp_only_layers: '0' is no list of whole numbers"),
    (DEEPSEEK | {"first_k_dense_replace": 33}, r"first_k_dense_replace: 33 is more than num_hidden_layers=32"),
    (
        {"model_type": "gpt2"},
        r"max_position_embeddings \(or n_positions, n_ctx\): is missing; give the number",
    ),
]


def write(path: Path, values: object) -> str:
    path.write_text(json.dumps(values), "utf-8")
    return str(path)


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in (LLAMA | changes).items() if value is not ...}


def shape(model: Model) -> tuple[object, ...]:
    m = model
    return (m.h, m.layers, m.a, m.kv, m.head_dim, m.d_ff, m.v, m.mlp, m.tied)


def experts(model: Model) -> tuple[int, ...]:
    return (model.experts, model.topk, model.expert_d_ff, model.shared_d_ff, model.dense_layers)


def test_there_is_a_test_for_every_file() -> None:
    assert {path.stem for path in CONFIGS.glob("*.json")} == set(SHAPES)


@pytest.mark.parametrize("name", SHAPES)
def test_a_config_json_is_read_as_its_users_have_it(name: str) -> None:
    model = load_model(str(CONFIGS / f"{name}.json"))
    assert shape(model) == SHAPES[name]
    assert experts(model) == EXPERTS.get(name, (0, 0, 0, 0, 0))
    assert model.name == name
    assert model.origin == str(CONFIGS / f"{name}.json")


def test_a_key_that_is_not_in_a_multimodal_file_is_said_to_be_assumed() -> None:
    notes = " ".join(load_model(str(CONFIGS / "gemma-3-4b.json")).notes)
    assert "num_attention_heads=8, vocab_size=262208, num_key_value_heads=4, head_dim=256" in notes
    assert "the text_config of a gemma3 model" in notes


def test_learned_positions_are_those_of_the_table() -> None:
    # OPT's table has two rows before the first position
    assert load_model(str(CONFIGS / "gpt2.json")).positions == 1024
    assert load_model(str(CONFIGS / "opt-125m.json")).positions == 2050
    assert load_model(str(CONFIGS / "llama-2-7b.json")).positions == 0


def test_what_multi_head_latent_attention_leaves_out_is_said() -> None:
    for text in ("deepseek-v3", str(CONFIGS / "deepseek-v3.json")):
        notes = " ".join(load_model(text).notes)
        assert "plain multi-head attention" in notes
        assert "KV cache differ" in notes


def test_latent_attention_takes_the_heads_of_its_values(tmp_path: Path) -> None:
    # transformers writes the size of the rotary part as head_dim
    config = json.loads((CONFIGS / "deepseek-v3.json").read_text("utf-8")) | {"head_dim": 64}
    assert load_model(write(tmp_path / "saved.json", config)).head_dim == 128


@pytest.mark.parametrize(
    ("keys", "dense"),
    [
        ({}, 0),
        ({"decoder_sparse_step": 2}, 16),
        ({"mlp_only_layers": [0, 5]}, 2),
        ({"mlp_only_layers": [0, 1], "decoder_sparse_step": 2}, 17),  # layer 1 is one of the 16 with experts
        ({"first_k_dense_replace": 3}, 3),
        ({"first_k_dense_replace": 3, "moe_layer_freq": 2}, 18),  # 4, 6, ..., 30 have experts
        ({"moe_layer_freq": [0] + [1] * 31}, 1),
        ({"moe_layers": [1, 3]}, 30),
        ({"interleave_moe_layer_step": 2}, 16),
    ],
)
def test_layers_without_experts_are_counted_as_each_family_writes_them(
    keys: dict[str, Any], dense: int, tmp_path: Path
) -> None:
    assert load_model(write(tmp_path / "m.json", QWEN_MOE | keys)).dense_layers == dense


def test_shared_experts_are_given_by_number_or_by_size(tmp_path: Path) -> None:
    assert load_model(write(tmp_path / "m.json", DEEPSEEK)).shared_d_ff == 2 * 768
    sized = QWEN_MOE | {"shared_expert_intermediate_size": 5632}
    assert load_model(write(tmp_path / "m.json", sized)).shared_d_ff == 5632


@pytest.mark.parametrize(
    ("keys", "mlp", "norm", "tied"),
    [
        ({"rms_norm_eps": 1e-6}, "swiglu", "rms", True),
        ({"hidden_act": "silu"}, "swiglu", "layer", True),
        ({"hidden_act": "gelu", "tie_word_embeddings": False}, "gelu", "layer", False),
    ],
)
def test_an_unknown_model_type_is_guessed_from_its_keys_and_the_notes_say_so(
    keys: dict[str, Any], mlp: str, norm: str, tied: bool, tmp_path: Path
) -> None:
    model = load_model(write(tmp_path / "m.json", LLAMA | {"model_type": "newest"} | keys))
    assert (model.mlp, model.norm, model.tied) == (mlp, norm, tied)
    assert "model_type 'newest' is not a known one" in model.notes[0]


def test_experts_in_keys_that_are_not_known_are_noted(tmp_path: Path) -> None:
    model = load_model(write(tmp_path / "m.json", LLAMA | {"my_expert_count": 8}))
    assert model.experts == 0
    assert any("my_expert_count" in note for note in model.notes)


def test_the_whole_multimodal_model_ties_its_weights(tmp_path: Path) -> None:
    config = {"model_type": "vl", "tie_word_embeddings": True, "text_config": LLAMA | {"tie_word_embeddings": False}}
    assert load_model(write(tmp_path / "m.json", config)).tied


def test_falcon_shares_one_head_unless_its_file_says_otherwise(tmp_path: Path) -> None:
    falcon = {key: value for key, value in LLAMA.items() if key != "num_key_value_heads"} | {"model_type": "falcon"}
    assert load_model(write(tmp_path / "m.json", falcon)).kv == 1
    assert load_model(write(tmp_path / "m.json", falcon | {"multi_query": False})).kv == 32
    grouped = falcon | {"new_decoder_architecture": True, "num_kv_heads": 4}
    assert load_model(write(tmp_path / "m.json", grouped)).kv == 4


@pytest.mark.parametrize(("changes", "message"), BROKEN)
def test_a_broken_file_is_told_the_key_and_what_is_wanted(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write(tmp_path / "m.json", changed(changes))
    with pytest.raises(ConfigError, match=message) as caught:
        load_model(path)
    assert {problem.origin for problem in caught.value.problems} == {path}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=4,
)


@given(name=st.sampled_from(sorted(SHAPES)), data=st.data())
def test_any_value_of_any_key_is_read_or_refused(name: str, data: st.DataObject) -> None:
    config = json.loads((CONFIGS / f"{name}.json").read_text("utf-8"))
    part = config.get("text_config", config)
    part |= data.draw(st.dictionaries(st.sampled_from([*part, *EXPERT_KEYS]), JSON, min_size=1, max_size=3))
    try:
        model = parse(config, name=name, origin="config.json")
    except ConfigError:
        return
    assert min(model.h, model.layers, model.a, model.kv, model.head_dim, model.d_ff, model.v) >= 1
    assert model.a % model.kv == 0
    assert 0 <= model.dense_layers <= model.layers
    assert model.topk <= model.experts
    assert parameters(model).total - model.other_parameters > 0


def test_everything_wrong_is_said_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "m.json", changed({"hidden_size": -1, "vocab_size": ..., "num_key_value_heads": 3}))
    with pytest.raises(ConfigError) as caught:
        load_model(path)
    keys = [problem.message.partition(":")[0] for problem in caught.value.problems]
    assert keys == ["hidden_size", "vocab_size", "num_key_value_heads"]


def test_no_text_of_a_file_commands_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = load_model(write(tmp_path / "m.json", LLAMA | {"model_type": "\x1b[31mred", "moe_\x1b[31m": 1}))
    assert any(r"\x1b[31mred" in note for note in read.notes)
    model = load_model(
        own(tmp_path / "m.yaml", OWN | {"name": "\x1b]0;title\x07", "notes": ["\x9b2J"], "sources": ["\r"]})
    )
    assert model.name == r"\x1b]0;title\x07"
    assert not any("\x1b" in text or "\x9b" in text for text in (*read.notes, *model.notes, *model.sources))
    path = own(tmp_path / "m.yaml", OWN | {"\x1b[31m": 1})
    assert cli.main(["check", f"model={path}"]) == 2
    error = capsys.readouterr().err
    assert r"\x1b[31m: unknown key" in error
    assert error.removesuffix("\n").isprintable()


@pytest.mark.parametrize("layers", [10_001, 200_000_000, 2**31 - 1])
def test_more_layers_than_any_model_has_are_refused_at_once(layers: int, tmp_path: Path) -> None:
    mixture = {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": layers}
    with pytest.raises(ConfigError, match=rf"num_hidden_layers: {layers} is too large; it must be <= 10000"):
        load_model(write(tmp_path / "m.json", LLAMA | mixture))
    with pytest.raises(ConfigError, match=r"layers: .* is too large; it must be <= 10000"):
        load_model(own(tmp_path / "m.yaml", OWN | {"layers": layers}))


def test_a_wrong_key_of_a_text_part_says_where_it_is(tmp_path: Path) -> None:
    path = write(tmp_path / "m.json", {"model_type": "llava", "text_config": LLAMA | {"hidden_size": 0}})
    with pytest.raises(ConfigError, match=r"\(text_config\): hidden_size: 0 is too small"):
        load_model(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n  "hidden_size": 4096\n  "vocab_size": 1\n}', "line 3, column 3: is not valid JSON"),
        ("", "line 1, column 1: is not valid JSON"),
        ("[1, 2]", r"\[1, 2\] is no JSON object with a model's keys"),
        ("[" * 100_000, "is nested too deeply"),
        ('{"hidden_size": ' + "9" * 5000 + "}", "is not valid JSON"),
        ('{"hidden_size": 1, "text_config": {"n_layer": 1, "n_layer": 2}}', "found duplicate key n_layer"),
    ],
    ids=["comma", "empty", "list", "deep", "digits", "twice"],
)
def test_a_text_that_is_no_json_object_is_told_the_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        load_model(str(path))


def test_a_directory_stands_for_its_config_json(tmp_path: Path) -> None:
    directory = tmp_path / "my-model"
    directory.mkdir()
    with pytest.raises(ConfigError, match=r"a model's directory must hold its config.json"):
        load_model(str(directory))
    write(directory / "config.json", LLAMA)
    assert load_model(str(directory)).name == "my-model"
    assert load_model(str(directory)) == load_model(str(directory / "config.json"))


def test_a_directory_is_found_from_inside_and_without_a_slash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path / "mine" / "config.json", LLAMA)
    monkeypatch.chdir(tmp_path)
    assert load_model("mine").h == 4096
    monkeypatch.chdir(tmp_path / "mine")
    assert load_model(".").name == "mine"


def test_an_unreadable_file_is_said_to_be_so(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_bytes(b" " * (11 * 2**20))
    for name, message in {
        "missing.json": "there is no such file",
        "llama-2-7.json": "did you mean the ready-made model llama-2-7b",
        "binary.json": "it is not a UTF-8 text",
        "large.json": "is larger than 10 MiB",
        "nul\0.json": "no file can have this name",
        f"{'x' * 300}.json": "cannot be read|no such file",
    }.items():
        with pytest.raises(ConfigError, match=message):
            load_model(str(tmp_path / name))


def test_an_unknown_name_gets_the_nearest_ones_and_the_list() -> None:
    with pytest.raises(ConfigError, match=r"^model: unknown model 'llama3-8b'; did you .*llama-3-8b.*config\.json"):
        load_model("llama3-8b")
    with pytest.raises(ConfigError, match=r"there are: deepseek-v3, gpt-3-2\.7b, llama-2-70b"):
        load_model("")


@pytest.mark.parametrize("text", ["\0", "x" * 5000, "~", "no/such/model", "..", "Qwen/Qwen2.5-7B"])
def test_any_text_gives_an_error_of_the_project(text: str) -> None:
    with pytest.raises(OrchestratorError):
        load_model(text)


def test_the_ready_made_models_are_these() -> None:
    assert names() == (
        "deepseek-v3",
        "gpt-3-2.7b",
        "llama-2-70b",
        "llama-2-7b",
        "llama-3-70b",
        "llama-3-8b",
        "mistral-7b",
        "mixtral-8x7b",
        "pythia-12b",
        "qwen2.5-72b",
        "qwen2.5-7b",
        "qwen3-30b-a3b",
    )


@pytest.mark.parametrize("name", names())
def test_a_ready_made_model_has_its_name_its_file_and_sources(name: str) -> None:
    model = load_model(name)
    assert (model.name, model.origin) == (name, f"conf/model/{name}.yaml")
    assert model.sources


@pytest.mark.parametrize("name", READY_MADE)
def test_a_ready_made_model_is_what_its_config_json_says(name: str) -> None:
    ready, read = load_model(name), load_model(str(CONFIGS / f"{READY_MADE[name]}.json"))
    assert (shape(ready), experts(ready)) == (shape(read), experts(read))
    assert (ready.norm, ready.norms, ready.qkv_bias, ready.linear_bias, ready.qk_norm, ready.positions) == (
        read.norm,
        read.norms,
        read.qkv_bias,
        read.linear_bias,
        read.qk_norm,
        read.positions,
    )


OWN = {"h": 4096, "layers": 32, "a": 32, "d_ff": 11008, "v": 32000}


def own(path: Path, values: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(values), "utf-8")
    return str(path)


def test_a_file_of_ones_own_needs_five_dimensions(tmp_path: Path) -> None:
    model = load_model(own(tmp_path / "mine.yaml", OWN))
    assert shape(model) == (4096, 32, 32, 32, 128, 11008, 32000, "swiglu", False)
    assert model.name == "mine"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 32}, "heads: unknown key 'heads'"),
        ({"h": "4k"}, "h: '4k' is not a whole number; give the hidden size"),
        ({"a": 33}, "a: 33 does not divide h=4096; give head_dim"),
        ({"kv": 3}, "kv: 3 does not divide a=32"),
        ({"mlp": "swigloo"}, "mlp: unknown kind 'swigloo'; did you mean swiglu"),
        ({"norm": "batch"}, "norm: unknown kind 'batch'"),
        ({"experts": 8}, "topk: is missing; give the number of experts that a token takes"),
        ({"topk": 2}, "topk: 2 needs experts"),
        ({"experts": 2, "topk": 3, "expert_d_ff": 8}, "topk: 3 is more than experts=2"),
        ({"experts": 2, "topk": 1, "expert_d_ff": 8, "dense_layers": 33}, "dense_layers: 33 is more than layers=32"),
        ({"tied": "no"}, "tied: 'no' is no boolean"),
        ({"parameters": 0}, "parameters: 0 is too small"),
        ({"parameters": 6_738_415_617}, "parameters: 6738415617 contradicts the dimensions, which have 6738415616"),
        ({"other_parameters": -6_738_415_616}, "other_parameters: -6738415616 leaves 0 parameters"),
        ({"other_parameters": -(10**14)}, "other_parameters: -100000000000000 leaves -99993261584384 parameters"),
        ({"other_parameters": 10**19}, "other_parameters: 10000000000000000000 is too large"),
        ({"sources": "me"}, "sources: 'me' is no list of texts"),
        ({"layers": None}, "layers: has no value"),
    ],
)
def test_a_broken_file_of_ones_own_is_told_the_key(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        load_model(own(tmp_path / "mine.yaml", OWN | changes))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h: [1\n", "line 2: is not valid YAML"),
        ("h: 4096\na: 010\n", "line 2: '010' is an octal or base-60 number"),
        ("h: 1\n? [a]\n: 1\n", "line 2: is not valid YAML: found unhashable key"),
        ("h: !!timestamp x\n", "has a value that is not what its YAML tag says"),
        ("h: 2024-13-10\n", "is not valid YAML: month must be in 1..12"),
        ("h: 1\nlayers: 2\nh: 3\n", "line 3: found duplicate key h"),
        ("4096", "is no mapping"),
        ("", "is no mapping"),
    ],
)
def test_a_text_that_is_no_yaml_mapping_is_told_the_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(text, "utf-8")
    with pytest.raises(ConfigError, match=message):
        load_model(str(tmp_path / "mine.yaml"))


def test_a_model_is_loaded_without_the_heavy_libraries() -> None:
    code = (
        "import sys; from orchestrator.models import load_model; load_model('mixtral-8x7b');"
        "from orchestrator import model_counts;"
        "print([name for name in ('torch', 'ray', 'pyarrow', 'numpy', 'transformers') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
