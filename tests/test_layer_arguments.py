"""The words of ``layer``: what they mean, and that everything wrong with them is said at once."""

import sys
from types import SimpleNamespace

import pytest

from orchestrator.errors import ConfigError, InvalidValueError
from orchestrator.layer_arguments import parse
from orchestrator.model import Model

LLAMA = Model(name="llama-3-8b", h=4096, layers=32, a=32, kv=8, head_dim=128, d_ff=14336, v=128256)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> None:
    """One ready-made model."""

    def load_model(text: str) -> Model:
        if text != "llama-3-8b":
            raise InvalidValueError(f"unknown model '{text}'; there are: llama-3-8b")
        return LLAMA

    monkeypatch.setitem(sys.modules, "orchestrator.models", SimpleNamespace(load_model=load_model))


def test_a_model_runs_as_the_words_say(models: None) -> None:
    (case,) = parse(["model=llama-3-8b", "tp=8", "b=2", "s=1_024", "dtype=fp16", "training=true"]).cases
    assert case.model == LLAMA
    assert (case.tp, case.b, case.s, case.dtype, case.training) == (8, 2, 1024, "fp16", True)


def test_dimensions_replace_those_of_a_model(models: None) -> None:
    (case,) = parse(["model=llama-3-8b", "h=8192", "d_ff=28672"]).cases
    assert (case.model.h, case.model.d_ff, case.model.a, case.model.head_dim) == (8192, 28672, 32, 256)


def test_without_a_model_the_rest_follows_from_h() -> None:
    (case,) = parse(["h=4096"]).cases
    model = case.model
    assert (model.a, model.kv, model.head_dim, model.d_ff, model.mlp, model.norm) == (
        32,
        32,
        128,
        11008,
        "swiglu",
        "rms",
    )
    assert (case.tp, case.b, case.s, case.dtype, case.training) == (1, 4, 2048, "bf16", False)


def test_a_gelu_layer_is_4h_wide_and_has_layer_norm() -> None:
    model = parse(["h=2560", "a=32", "mlp=gelu", "positions=2048"]).cases[0].model
    assert (model.d_ff, model.norm, model.head_dim, model.positions) == (10240, "layer", 80, 2048)


def test_several_h_are_several_cases() -> None:
    cases = parse(["h=2560,4096,8192,16384", "mlp=gelu"]).cases
    assert [(case.model.h, case.model.a, case.model.d_ff) for case in cases] == [
        (2560, 20, 10240),
        (4096, 32, 16384),
        (8192, 64, 32768),
        (16384, 128, 65536),
    ]


def test_the_last_of_a_key_counts() -> None:
    assert parse(["h=256", "h=512", "head_dim=64"]).cases[0].model.h == 512


BAD = [
    ([], "arguments: give model=, such as model=llama-3-8b, or h="),
    (["tp=2"], "arguments: give model=, such as model=llama-3-8b, or h="),
    (["h"], "argument 'h': is not of the form key=value, such as tp=8 or model=llama-3-8b"),
    (["h=0"], "argument 'h=0': h: 0 is too small; it must be >= 1"),
    (["h=4096.0"], "argument 'h=4096.0': h: '4096.0' is not a whole number"),
    (["h=256,,512"], "argument 'h=256,,512': h: no value; give a whole number"),
    (["h="], "argument 'h=': h: no value; give a whole number"),
    (["h=" + "1" * 50], "is not a whole number"),
    (["h=3000000000"], "it must be <= 2147483647"),
    (["h=" + "128," * 32 + "128"], "h: 33 values; at most 32 are timed at once"),
    (["h=256", "a=3"], "a (3) must divide h (256); give head_dim where it is not h / a"),
    (["h=200"], "head_dim (128) must divide h (200); give a= where it does not"),
    (["h=256", "a=4", "kv=3"], "kv (3) must divide a (4)"),
    (["h=256", "hd=64"], "unknown key 'hd'; did you mean h? there are: model, h, a, kv"),
    (["h=256", "dtype=fp8"], "argument 'dtype=fp8': dtype: unknown dtype 'fp8'; there are: bf16, fp16, fp32, tf32"),
    (["h=256", "training=yes"], "training: unknown value 'yes'; there are: true, false"),
    (["h=256", "mlp=relu"], "mlp: unknown MLP 'relu'"),
    (["h=256", "rounds=9"], "rounds: 9 is too small; it must be >= 10"),
    (["h=256", "tp=3"], "tp=3 does not divide"),
    (["h=256", "a=4", "head_dim=63"], "head_dim=63 is odd"),
    (["h=256", "experts=4", "topk=5", "expert_d_ff=64"], "1 <= topk <= experts must hold, but got 5 and 4"),
    (["h=256", "experts=4", "topk=2"], "a model with experts needs expert_d_ff"),
    (["model=lama"], "argument 'model=lama': unknown model 'lama'; there are: llama-3-8b"),
    (["model="], "argument 'model=': model: empty; give a name or path"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_words_are_refused_with_the_reason(models: None, words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(words)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_everything_wrong_is_said_at_once() -> None:
    with pytest.raises(ConfigError) as error:
        parse(["h=0", "tpp=2", "b=x", "dtype=int3", "s"])
    assert [problem.origin for problem in error.value.problems] == [
        "argument 'h=0'",
        "argument 'tpp=2'",
        "argument 'b=x'",
        "argument 'dtype=int3'",
        "argument 's'",
    ]


def test_what_does_not_divide_is_said_once_for_each_h() -> None:
    with pytest.raises(ConfigError) as error:
        parse(["h=256,384", "tp=4"])
    assert len(error.value.problems) == 2
    assert all(problem.origin == "argument 'h=256,384' and argument 'tp=4'" for problem in error.value.problems)
