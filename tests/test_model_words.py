"""Words that make a model: those of a named one, dimensions in place of its own, and dimensions alone."""

from dataclasses import replace

import pytest

from orchestrator.check_arguments import KEYS as CHECK_KEYS
from orchestrator.layer_arguments import KEYS as LAYER_KEYS
from orchestrator.model import Model
from orchestrator.model_words import MODEL_KEYS, RUNNING_KEYS, models
from orchestrator.models import load_model
from orchestrator.words import Words

LLAMA = load_model("llama-3-8b")
PLAIN = Model(name="", h=4096, layers=1, a=32, kv=32, head_dim=128, d_ff=11008, v=0)  # 8/3·4096 = 42.7 · 256


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("model=llama-3-8b", LLAMA),
        ("model=llama-3-8b h=8192", replace(LLAMA, h=8192, head_dim=256, parameters=None)),
        ("model=llama-3-8b a=64 kv=4", replace(LLAMA, a=64, kv=4, head_dim=64, parameters=None)),
        ("model=llama-3-8b mlp=swiglu", LLAMA),
        ("model=llama-3-8b mlp=gelu", replace(LLAMA, mlp="gelu", parameters=None)),
        ("model=llama-3-8b norms=4 norm=layer", replace(LLAMA, norm="layer", norms=4, parameters=None)),
        ("h=4096", PLAIN),
        ("h=4096 a=64", replace(PLAIN, a=64, kv=64, head_dim=64)),
        ("h=4096 head_dim=64 kv=8", replace(PLAIN, a=64, kv=8, head_dim=64)),
        ("h=4096 a=30 head_dim=100", replace(PLAIN, a=30, kv=30, head_dim=100)),
        ("h=4096 mlp=gelu", replace(PLAIN, mlp="gelu", norm="layer", d_ff=16384)),
        ("h=4096 mlp=gelu norm=rms d_ff=64", replace(PLAIN, mlp="gelu", d_ff=64)),
        ("h=4096 v=64 layers=2 positions=9", replace(PLAIN, v=64, layers=2, positions=9)),
        ("h=4096 experts=8 topk=2 expert_d_ff=512", replace(PLAIN, d_ff=0, experts=8, topk=2, expert_d_ff=512)),
    ],
)
def test_the_model_of_words(line: str, model: Model) -> None:
    read = Words(line.split(), MODEL_KEYS)
    assert (models(read), read.problems) == ([model], [])


WRONG = [
    ("", "arguments: give model=, such as model=llama-3-8b, or also h="),
    ("a=30", "arguments: give model=, such as model=llama-3-8b, or also h="),
    (
        "h=4096 a=30",
        "argument 'h=4096' and argument 'a=30': a (30) must divide h (4096); give head_dim where it is not h / a",
    ),
    ("model=llama-3-8b a=24", "argument 'a=24': a (24) must divide h (4096); give head_dim where it is not h / a"),
    ("h=1000", "argument 'h=1000': head_dim (128) must divide h (1000); give a= where it does not"),
    ("h=4096 kv=5", "argument 'kv=5': kv (5) must divide a (32)"),
    ("h=4096 experts=8 expert_d_ff=1", "argument 'experts=8': 1 <= topk <= experts must hold, but got 0 and 8"),
    ("h=4096 experts=8 topk=1", "argument 'experts=8': a model with experts needs expert_d_ff"),
    ("model=llama-2-7b topk=2", "argument 'topk=2': topk=2 needs experts; give experts=, or leave it out"),
    ("model=llama-2-7b shared_d_ff=64", "argument 'shared_d_ff=64': shared_d_ff=64 needs experts"),
    ("h=4096 expert_d_ff=64", "argument 'expert_d_ff=64': expert_d_ff=64 needs experts"),
    ("h=4096 layers=2 dense_layers=2", "argument 'dense_layers=2': dense_layers=2 needs experts"),
    (
        "model=mixtral-8x7b dense_layers=33",
        "argument 'dense_layers=33': dense_layers <= layers must hold, but got 33 and 32",
    ),
    ("h=4096 layers=10001", "argument 'layers=10001': layers: 10001 is too large; it must be <= 10000"),
    ("model=", "argument 'model=': model: empty; give a name or path"),
    ("model=no/such.json", "no/such.json: there is no such file"),
    ("model=llama3-8b", "argument 'model=llama3-8b': unknown model 'llama3-8b'; did you mean llama-3-8b"),
]


@pytest.mark.parametrize(("line", "message"), WRONG)
def test_what_makes_no_model_is_said_once_with_its_words(line: str, message: str) -> None:
    read = Words(line.split(), MODEL_KEYS)
    assert models(read) == []
    (problem,) = read.problems
    assert str(problem).startswith(message)


def test_check_and_layer_take_the_same_keys_for_a_model_and_how_it_runs() -> None:
    for key, what in {**MODEL_KEYS, **RUNNING_KEYS}.items():
        assert CHECK_KEYS[key] == what
        assert replace(LAYER_KEYS[key].rule, listed=False) == what.rule
