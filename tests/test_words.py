"""Words that verbs share: what a key takes, its other name, and that everything wrong is said at once."""

from typing import Any

import pytest

from orchestrator.catalogue import representative
from orchestrator.errors import ConfigError
from orchestrator.rules import Integer, Switch, Text
from orchestrator.words import GPU, Key, Words

KEYS = {
    "b": Key(rule=Integer(), help="microbatch"),
    "h": Key(rule=Integer(low=0, listed=True), help="sizes"),
    "on": Key(rule=Switch(), help="on or off"),
    "run": Key(rule=Text(type_text="a run"), help="a run"),
    "gpu": GPU,
}


@pytest.mark.parametrize(
    ("words", "values"),
    [
        ([], {}),
        (["b=4"], {"b": 4}),
        (["batch=4"], {"b": 4}),
        (["b=4", "batch=8"], {"b": 8}),
        (["batch=8", " b = 1_024 "], {"b": 1024}),
        (["h=0"], {"h": (0,)}),
        (["h=1, 2,+3"], {"h": (1, 2, 3)}),
        (["on=true"], {"on": True}),
        (["on=false"], {"on": False}),
        (["run=a=b/c"], {"run": "a=b/c"}),
    ],
)
def test_what_words_say(words: list[str], values: dict[str, Any]) -> None:
    read = Words(words, KEYS)
    read.refuse()
    assert read.values == values


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("b", "is not of the form key=value, such as tp=8 or model=llama-2-7b"),
        ("b=", "b: no value; give a whole number"),
        ("batch=0", "batch: 0 is too small; it must be >= 1"),
        ("b=x", "b: 'x' is not a whole number"),
        ("b=4.0", "b: '4.0' is not a whole number"),
        ("b=1,2", "b: '1,2' is not a whole number"),
        ("b=010", "b: '010' is an octal or base-60 number to YAML; write a plain decimal number"),
        ("b=3000000000", "b: 3000000000 is too large; it must be <= 2147483647"),
        ("h=1,,2", "h: no value; give a whole number"),
        ("on=yes", "on: 'yes' is neither true nor false"),
        ("run=", "run: empty; give a run"),
        ("=3", "unknown key ''; there are: b, h, on, run, gpu"),
        ("bach=3", "unknown key 'bach'; did you mean batch? there are: b, h, on, run, gpu"),
        ("seq=3", "unknown key 'seq'; there are: b, h, on, run, gpu"),
    ],
)
def test_what_is_wrong_is_said_with_the_word(word: str, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Words([word], KEYS).refuse()
    assert str(error.value) == f"argument '{word}': {message}"


def test_everything_wrong_is_said_at_once_and_the_same_once() -> None:
    read = Words(["b=x", "nope", "zz=1", "nope"], KEYS)
    assert [problem.origin for problem in read.problems] == ["argument 'b=x'", "argument 'nope'", "argument 'zz=1'"]


@pytest.mark.parametrize(
    ("name", "key", "others"),
    [
        ("h100", "h100-sxm", "h100-pcie"),
        ("a100", "a100-sxm-80", "a100-pcie-40, a100-pcie-80, a100-sxm-40"),
        ("v100", "v100-sxm2-32", "v100-sxm2-16"),
        ("a100-pcie-40", "a100-pcie-40", ""),
        ("h200", "h200", ""),
    ],
)
def test_a_family_of_gpus_is_one_of_them_and_which_is_said(name: str, key: str, others: str) -> None:
    read = Words([f"gpu={name}"], KEYS)
    assert read.gpu() == representative(key)
    assert read.notes == ([f"gpu={name} is taken as {key}; name another by its key: {others}"] if others else [])


def test_no_gpu_is_none() -> None:
    assert Words([], KEYS).gpu() is None
