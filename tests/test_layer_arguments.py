"""The words of ``layer``: what they mean, and that everything wrong with them is said at once."""

import pytest

from orchestrator.errors import ConfigError
from orchestrator.layer_arguments import parse
from orchestrator.models import load_model


def test_a_model_runs_as_the_words_say() -> None:
    (case,) = parse(["model=llama-3-8b", "tp=8", "batch=2", "seq=1_024", "dtype=fp16", "training=true"]).cases
    assert case.model == load_model("llama-3-8b")
    assert (case.tp, case.b, case.s, case.dtype, case.training) == (8, 2, 1024, "fp16", True)


def test_what_is_not_given_has_the_defaults_of_a_layer() -> None:
    (case,) = parse(["h=4096"]).cases
    assert (case.tp, case.b, case.s, case.dtype, case.training) == (1, 4, 2048, "bf16", False)


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
    ([], "arguments: give model=, such as model=llama-3-8b, or also h="),
    (["h=0"], "argument 'h=0': h: 0 is too small; it must be >= 1"),
    (["h=256,,512"], "argument 'h=256,,512': h: no value; give a whole number"),
    (["h=" + "128," * 32 + "128"], "h: 33 values; at most 32 are timed at once"),
    (["h=256", "hd=64"], "unknown key 'hd'; did you mean h? there are: model, h, a, kv"),
    (["h=256", "dtype=fp8"], "argument 'dtype=fp8': dtype: unknown dtype 'fp8'; there are: bf16, fp16, fp32, tf32"),
    (["h=256", "rounds=9"], "rounds: 9 is too small; it must be >= 10"),
    (["h=256", "tp=3"], "tp=3 does not divide"),
    (["h=256", "a=4", "head_dim=63"], "head_dim=63 is odd"),
]


@pytest.mark.parametrize(("words", "message"), BAD)
def test_bad_words_are_refused_with_the_reason(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse(words)
    assert message in str(error.value)
    assert error.value.exit_code == 2


def test_what_does_not_divide_is_said_once_for_each_h() -> None:
    with pytest.raises(ConfigError) as error:
        parse(["h=256,384", "tp=4"])
    assert len(error.value.problems) == 2
    assert all(problem.origin == "argument 'h=256,384' and argument 'tp=4'" for problem in error.value.problems)
