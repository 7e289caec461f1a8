"""The arguments of ``layer``: ``key=value`` words made into one LayerCase per h, every mistake reported at once."""

import importlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from orchestrator.errors import ConfigError, InvalidValueError, OrchestratorError, Problem, describe, nearest, shorten
from orchestrator.layer import DTYPES, LayerCase, problems
from orchestrator.model import Model
from orchestrator.reshape import conflicts, reshaped
from orchestrator.rules import Choice, Integer, Rule, Text

_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_LONGEST = 40
MOST_VALUES = 32
SIZES = ("h", "a", "kv", "head_dim", "d_ff", "experts", "topk", "expert_d_ff", "shared_d_ff", "positions")
MAY_BE_ZERO = ("experts", "topk", "expert_d_ff", "shared_d_ff", "positions")
RUNNING = ("tp", "ep", "b", "s")
HEAD_DIM = 128
"""Size of a head where nothing says what it is: that of Llama, Mistral and GPT-3 175B."""
SWIGLU_MULTIPLE = 256
"""Llama rounds 8h/3 up to a multiple of this (its reference code, ``multiple_of``)."""
HELP: Mapping[str, str] = MappingProxyType(
    {
        "model": "a ready-made model, or the path of a config.json (Hugging Face)",
        "h": "hidden size; several as 2560,4096 give a table each",
        "a": "attention heads [h / head_dim]",
        "kv": "key/value heads [a]",
        "head_dim": f"size of a head [h / a; {HEAD_DIM} where a is not given either]",
        "d_ff": "hidden size of the MLP [4h with gelu; 8h/3 rounded up to a multiple of 256]",
        "mlp": "kind of MLP: swiglu|gelu [swiglu]",
        "norm": "kind of norm: rms|layer [rms; layer with gelu]",
        "positions": "learned positions: rotary ones are not timed then [0]",
        "experts": "routed experts of a layer [0]",
        "topk": "experts a token goes to",
        "expert_d_ff": "hidden size of an expert",
        "shared_d_ff": "hidden size of the experts that every token takes [0]",
        "tp": "tensor-parallel size: one rank is timed [1]",
        "ep": "expert-parallel size [1]",
        "b": "microbatch, in sequences [4]",
        "s": "tokens of a sequence [2048]",
        "dtype": f"element type: {'|'.join(DTYPES)} [bf16]",
        "training": "true|false: with dropout [false]",
        "rounds": "most rounds; 10 are the least [30]",
        "seed": "of the order in a round [0]",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the words ask for: a case per h, in the order given."""

    cases: tuple[LayerCase, ...]
    rounds: int = 30
    seed: int = 0


def _rules() -> dict[str, Rule]:
    numbers: dict[str, Rule] = {key: Integer(low=0 if key in MAY_BE_ZERO else 1) for key in (*SIZES, *RUNNING)}
    return numbers | {
        "model": Text(type_text="a name or path"),
        "mlp": Choice(what="MLP", names=lambda: ("swiglu", "gelu")),
        "norm": Choice(what="norm", names=lambda: ("rms", "layer")),
        "dtype": Choice(what="dtype", names=lambda: DTYPES),
        "training": Choice(what="value", names=lambda: ("true", "false")),
        "rounds": Integer(low=10, high=10_000),
        "seed": Integer(low=0),
    }


def parse(words: Sequence[str]) -> Asked:
    """Return what the words ask for, or raise ConfigError with everything that is wrong; the last of a key counts."""
    return _Parser(words).asked()


class _Parser:
    """Values by key, the word that each is from, and the problems met on the way."""

    def __init__(self, words: Sequence[str]) -> None:
        self._problems: list[Problem] = []
        self._values: dict[str, int | str] = {}
        self._h: list[int] = []
        self._origins: dict[str, str] = {}
        rules = _rules()
        for word in words:
            self._read(word, rules)

    def asked(self) -> Asked:
        models = self._models()
        running: dict[str, Any] = {key: self._values[key] for key in (*RUNNING, "dtype") if key in self._values}
        training = self._values.get("training") == "true"
        cases = [LayerCase(model=model, training=training, **running) for model in models] if models else []
        for case in [] if self._problems else cases:
            for message in problems(case):
                self._report(self._origin(*SIZES, "model", *RUNNING, "mlp"), message)
        if self._problems:
            raise ConfigError(self._problems)
        limits: dict[str, Any] = {key: self._values[key] for key in ("rounds", "seed") if key in self._values}
        return Asked(cases=tuple(cases), **limits)

    def _read(self, word: str, rules: Mapping[str, Rule]) -> None:
        origin = f"argument '{shorten(word)}'"
        key, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            self._report(origin, "is not of the form key=value, such as tp=8 or model=llama-3-8b")
        elif key not in rules:
            close = nearest(key, rules)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            self._report(origin, f"unknown key '{shorten(key)}'; {hint}there are: {', '.join(HELP)}")
        else:
            self._origins[key] = origin
            try:
                self._take(key, text, rules[key])
            except InvalidValueError as error:
                self._report(origin, f"{key}: {error}")

    def _take(self, key: str, text: str, rule: Rule) -> None:
        if not isinstance(rule, Integer):
            self._values[key] = str(rule.check(text))
        elif key == "h":
            self._h = [_checked(part.strip(), rule) for part in text.split(",")]
            if len(self._h) > MOST_VALUES:
                raise InvalidValueError(f"{len(self._h)} values; at most {MOST_VALUES} are timed at once")
        else:
            self._values[key] = _checked(text, rule)

    def _models(self) -> list[Model]:
        base = self._named() if "model" in self._origins else None
        if "model" not in self._origins and "h" not in self._origins:
            self._report("arguments", "give model=, such as model=llama-3-8b, or h=")
        if self._problems:
            return []
        sizes = {key: int(self._values[key]) for key in SIZES if key in self._values}
        made = [self._model(base, sizes | ({"h": h} if h else {})) for h in self._h or [0]]
        return [model for model in made if model is not None]

    def _named(self) -> Model | None:
        try:
            model: Model = importlib.import_module("orchestrator.models").load_model(str(self._values.get("model", "")))
        except ConfigError as error:
            self._problems += error.problems
            return None
        except OrchestratorError as error:
            self._report(self._origins["model"], str(error))
            return None
        return model

    def _model(self, base: Model | None, sizes: dict[str, int]) -> Model | None:
        try:
            model = self._from_sizes(sizes) if base is None else reshaped(base, sizes) if sizes else base
        except InvalidValueError as error:
            self._report(self._origin(*SIZES), str(error))
            return None
        kinds: dict[str, Any] = {key: self._values[key] for key in ("mlp", "norm") if key in self._values}
        return replace(model, **kinds) if kinds else model

    def _from_sizes(self, sizes: Mapping[str, int]) -> Model:
        """Make a model of sizes alone."""
        h, mlp = sizes["h"], str(self._values.get("mlp", "swiglu"))
        head_dim = sizes.get("head_dim") or (h // sizes["a"] if "a" in sizes else HEAD_DIM)
        if "a" in sizes and "head_dim" not in sizes and h % sizes["a"]:
            raise InvalidValueError(f"a ({sizes['a']}) must divide h ({h}); give head_dim where it is not h / a")
        if "a" not in sizes and h % head_dim:
            raise InvalidValueError(f"head_dim ({head_dim}) must divide h ({h}); give a= where it does not")
        a = sizes.get("a", h // head_dim)
        whole: dict[str, Any] = {"kv": a, "d_ff": d_ff(h, mlp), **sizes, "a": a, "head_dim": head_dim}
        norm = "layer" if mlp == "gelu" else "rms"
        model = Model(name="", layers=1, v=0, mlp=mlp, norm=norm, **whole)
        if found := conflicts(model):
            raise InvalidValueError("; ".join(found))
        return model

    def _origin(self, *keys: str) -> str:
        return " and ".join(dict.fromkeys(self._origins[key] for key in keys if key in self._origins))

    def _report(self, origin: str, message: str) -> None:
        problem = Problem(origin=origin, message=message)
        if problem not in self._problems:
            self._problems.append(problem)


def d_ff(h: int, mlp: str) -> int:
    """Return the usual hidden size of an MLP.

    >>> d_ff(4096, "swiglu"), d_ff(4096, "gelu")
    (11008, 16384)
    """
    return 4 * h if mlp == "gelu" else -(-8 * h // (3 * SWIGLU_MULTIPLE)) * SWIGLU_MULTIPLE


def _checked(text: str, rule: Rule) -> int:
    value = int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST else text
    if value == "":
        raise InvalidValueError(f"no value; give {rule.type_text}")
    found = rule.check(value)
    if not isinstance(found, int):
        raise InvalidValueError(f"{describe(found)} is not {rule.type_text}")
    return found
