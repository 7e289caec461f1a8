"""A model sets the space: its own dimensions, the neighbours of the chosen one, its own value marked."""

import json
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.config import compose, model_notes, to_dict, to_yaml
from orchestrator.model import Model
from orchestrator.model_space import space_of
from orchestrator.models import names
from orchestrator.space import expand_space
from tasks.family import Family


def families(*words: str) -> tuple[Family, ...]:
    return tuple(expand_space(compose("h200", ["space.tp=1", *words])).families)


def chosen(family: Family) -> tuple[list[int], list[int]]:
    values = [candidate.value for candidate in family.candidates]
    return values, [candidate.value for candidate in family.candidates if candidate.baseline]


def test_d_ff_around_the_models_own() -> None:
    (family,) = families("model=llama-3-8b")
    assert family.family_id == "mlp-h4096-tp1-b4-s2048-fp16"
    assert chosen(family) == (list(range(13312, 15361, 64)), [14336])


def test_heads_around_the_models_own_have_usual_sizes() -> None:
    attn, attention = families("model=gpt-3-2.7b", "space.around=a")
    # 2560 = 2^9 · 5: heads of 16, 32, 40, 64, 80, 128, 160 and 256
    assert chosen(attn) == ([10, 16, 20, 32, 40, 64, 80, 160], [32])
    assert [attn.role, attention.role] == ["attn", "attention"]


def test_heads_of_a_grouped_model_are_multiples_of_its_key_value_heads() -> None:
    attn, _ = families("model=llama-3-8b", "space.around=a")
    assert all(value % 8 == 0 for value in chosen(attn)[0])
    assert chosen(attn)[1] == [32]


def test_key_value_heads_around_the_models_own_divide_its_heads() -> None:
    (grouped,) = families("model=llama-3-8b", "space.around=kv")
    assert chosen(grouped) == ([1, 2, 4, 8, 16, 32], [8])
    (multi_head,) = families("model=llama-2-7b", "space.around=kv")
    assert chosen(multi_head) == ([1, 2, 4, 8, 16, 32], [32])


def test_the_divisors_of_many_heads_are_found_at_once() -> None:
    model = Model(name="x", h=4096, layers=1, a=2**30, kv=8, head_dim=1, d_ff=1, v=1)
    assert space_of(model, "kv")["kv"] == {"values": [2**i for i in range(31)], "baseline": 8}


@pytest.mark.parametrize("word", ["space.around='a'", "space={around: a}", " space.around = a"])
def test_what_is_chosen_may_be_written_in_every_way_that_an_argument_may(word: str) -> None:
    assert families("model=gpt-3-2.7b", word) == families("model=gpt-3-2.7b", "space.around=a")


def test_h_around_the_models_own_keeps_the_rest() -> None:
    (family,) = families("model=llama-3-8b", "space.around=h")
    assert family.family_id == "layer-a32-kv8-f14336-tp1-b4-s2048-fp16-by-h"
    # heads of 96, 104, … 160
    assert chosen(family) == (list(range(3072, 5121, 256)), [4096])
    (qwen,) = families("model=qwen2.5-7b", "space.around=h")  # 28 heads
    assert [value / 28 % 8 for value in chosen(qwen)[0]] == [0] * 9


def test_heads_of_a_size_of_their_own_are_half_to_twice_as_many() -> None:
    attn, _ = families("model=qwen3-30b-a3b", "space.around=a")
    assert chosen(attn) == (list(range(16, 65, 4)), [32])


def test_what_a_model_leaves_out_is_told_with_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["plan", "conf=h200", "model=deepseek-v3", "space.tp=8"]) == 0
    assert "without multi-head latent attention (MLA)" in " ".join(capsys.readouterr().out.split())
    assert model_notes(compose("h200", ["space.tp=8"])) == ()


def test_the_vocabulary_around_the_models_own() -> None:
    (family,) = families("model=gpt-3-2.7b", "space.around=v")
    values, own = chosen(family)
    assert (family.role, own, values[0], values[-1]) == ("logits", [50257], 49233, 51281)


def test_a_mixture_of_experts_is_chosen_by_its_experts() -> None:
    (family,) = families("model=mixtral-8x7b")
    assert family.family_id == "experts-h4096-e8-k2-ep1-tp1-b4-s2048-fp16"
    experts, dense = families("model=deepseek-v3")
    assert (chosen(experts)[1], chosen(dense)[1]) == ([2048], [18432])


def test_other_arguments_win_wherever_they_stand() -> None:
    for words in (["space.h=1024", "model=llama-3-8b"], ["model=llama-3-8b", "space.h=1024"]):
        (family,) = families(*words)
        assert family.h == 1024


def test_the_model_is_told_in_the_configuration_which_reads_back(tmp_path: Path) -> None:
    made = compose("h200", ["model=qwen3-30b-a3b", "space.around=a"])
    assert (made.space.model, made.overrides) == ("qwen3-30b-a3b", ("model=qwen3-30b-a3b", "space.around=a"))
    file = tmp_path / "mine.yaml"
    file.write_text(to_yaml(made))
    assert to_dict(compose(str(file))) == to_dict(made)


def test_a_hugging_face_config_sets_the_space(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "num_hidden_layers": 2, "intermediate_size": 688}
    file.write_text(json.dumps({"model_type": "llama", "vocab_size": 1000, **sizes}))
    (family,) = families(f"model={file}")
    # a quarter of 688 in whole steps of 32: 160
    assert chosen(family) == (list(range(528, 849, 32)), [688])


@pytest.mark.parametrize("around", ["d_ff", "h", "a", "kv", "v"])
@pytest.mark.parametrize("name", names())
def test_every_ready_made_model_can_be_swept_around_every_dimension(name: str, around: str) -> None:
    found = families(f"model={name}", f"space.around={around}")
    for family in found:
        values, own = chosen(family)
        assert len(values) > 1
        assert len(own) == 1
