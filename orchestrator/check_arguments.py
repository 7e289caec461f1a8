"""The arguments of ``check``: ``key=value`` words made into a Case, every mistake reported with its origin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from orchestrator import catalogue
from orchestrator.check_case import RUNNING, Case
from orchestrator.errors import ConfigError, InvalidValueError, OrchestratorError, Problem, nearest, shorten
from orchestrator.model import Model
from orchestrator.reshape import DIMENSIONS, conflicts, reshaped
from orchestrator.rules import Choice, Integer, Rule, Text
from tasks.gemm import ELEMENT_BYTES

_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_LONGEST = 40
MODES = ("training", "inference")
NEEDED = ("h", "a", "layers", "v")
MAY_BE_ZERO = ("experts", "topk", "expert_d_ff", "shared_d_ff", "dense_layers")
HELP: Mapping[str, str] = MappingProxyType(
    {
        "model": "a ready-made model, or the path of a config.json (Hugging Face)",
        "h": "hidden size",
        "a": "attention heads",
        "kv": "key/value heads [a]",
        "head_dim": "size of a head [h/a]",
        "d_ff": "hidden size of the MLP",
        "v": "vocabulary",
        "layers": "layers",
        "mlp": "kind of MLP: swiglu|gelu [swiglu]",
        "experts": "routed experts of a layer [0]",
        "topk": "experts a token goes to",
        "expert_d_ff": "hidden size of an expert",
        "shared_d_ff": "hidden size of the experts that every token takes [0]",
        "dense_layers": "layers with a dense MLP in a model with experts [0]",
        "tp": "tensor-parallel size [1]",
        "b": "microbatch, in sequences [4]",
        "s": "tokens of a sequence [2048]",
        "gpu": "GPU of the catalogue, or a family: the one with the least memory",
        "mode": "training|inference [training]",
        "dtype": f"element type: {'|'.join(ELEMENT_BYTES)} [fp16]",
        "results": "a run whose ranking says what a d_ff gains: path, name or latest",
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What the words ask for. results: a run, None where there is none."""

    case: Case
    results: str | None


def _rules() -> dict[str, Rule]:
    numbers: dict[str, Rule] = {key: Integer(low=0 if key in MAY_BE_ZERO else 1) for key in (*DIMENSIONS, *RUNNING)}
    return numbers | {
        "model": Text(type_text="a name or path"),
        "mlp": Choice(what="MLP", names=lambda: ("swiglu", "gelu")),
        "gpu": Choice(what="GPU", names=catalogue.names),
        "mode": Choice(what="mode", names=lambda: MODES),
        "dtype": Choice(what="dtype", names=lambda: ELEMENT_BYTES),
        "results": Text(type_text="a run"),
    }


def parse(words: Sequence[str]) -> Asked:
    """Return what the words ask for, or raise ConfigError with everything that is wrong; the last of a key counts."""
    return _Parser(words).asked()


class _Parser:
    """Values by key, the word that each is from, and the problems met on the way."""

    def __init__(self, words: Sequence[str]) -> None:
        self._problems: list[Problem] = []
        self._values: dict[str, int | str] = {}
        self._origins: dict[str, str] = {}
        rules = _rules()
        for word in words:
            self._read(word, rules)

    def asked(self) -> Asked:
        model = self._model()
        if self._problems or model is None:
            raise ConfigError(self._problems)
        text = self._texts()
        running: dict[str, Any] = {key: self._values[key] for key in RUNNING if key in self._values}
        case = Case(
            model=model,
            gpu=_smallest(text["gpu"]) if "gpu" in text else None,
            training=text.get("mode", MODES[0]) == MODES[0],
            **running,
        )
        return Asked(case=replace(case, dtype=text.get("dtype", case.dtype)), results=text.get("results"))

    def _read(self, word: str, rules: Mapping[str, Rule]) -> None:
        origin = f"argument '{shorten(word)}'"
        key, equals, text = (part.strip() for part in word.partition("="))
        if not equals:
            self._report(origin, "is not of the form key=value, such as tp=8 or model=llama-2-7b")
        elif key not in rules:
            close = nearest(key, rules)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            self._report(origin, f"unknown key '{shorten(key)}'; {hint}there are: {', '.join(HELP)}")
        else:
            try:
                self._origins[key] = origin
                self._values[key] = rules[key].check(_number(text) if isinstance(rules[key], Integer) else text)  # type: ignore[assignment]
            except InvalidValueError as error:
                self._report(origin, f"{key}: {error}")

    def _texts(self) -> dict[str, str]:
        return {key: value for key, value in self._values.items() if isinstance(value, str)}

    def _model(self) -> Model | None:
        sizes = {key: int(self._values[key]) for key in DIMENSIONS if key in self._values}
        base = self._named() if "model" in self._origins else self._from_sizes(sizes)
        if base is None or self._problems:
            return None
        try:
            return reshaped(base, sizes) if sizes else base
        except InvalidValueError as error:
            self._report(" and ".join(dict.fromkeys(self._origins[key] for key in sizes)), str(error))
            return None

    def _named(self) -> Model | None:
        """Load ``model=``; ``mlp=`` beside it makes it another one."""
        from orchestrator.models import load_model

        name = self._texts().get("model")
        if name is None:
            return None
        try:
            model = load_model(name)
        except ConfigError as error:
            self._problems += error.problems
            return None
        except OrchestratorError as error:
            self._report(self._origins["model"], str(error))
            return None
        mlp = self._texts().get("mlp", model.mlp)
        return model if mlp == model.mlp else replace(model, mlp=mlp, parameters=None)

    def _from_sizes(self, sizes: Mapping[str, int]) -> Model | None:
        """Make a model of sizes alone."""
        needed = (*NEEDED, "expert_d_ff" if sizes.get("experts") else "d_ff")
        if missing := [key for key in needed if key not in self._origins]:
            self._report("arguments", f"give model=, or also {', '.join(f'{key}=' for key in missing)}")
        if self._problems:
            return None
        h, a = sizes["h"], sizes["a"]
        if "head_dim" not in sizes and h % a:
            origins = f"{self._origins['h']} and {self._origins['a']}"
            self._report(origins, f"a ({a}) must divide h ({h}); give head_dim where it is not h / a")
            return None
        whole: dict[str, Any] = {"kv": a, "head_dim": h // a, "d_ff": 0, **sizes}
        model = Model(name="", mlp=self._texts().get("mlp", "swiglu"), **whole)
        for problem in conflicts(model):
            self._report("arguments", problem)
        return model

    def _report(self, origin: str, message: str) -> None:
        self._problems.append(Problem(origin=origin, message=message))


def _number(text: str) -> int | str:
    """Read a whole number in decimal digits, which may be grouped (``1_024``); other texts stay what they are."""
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST else text


def _smallest(gpu: str) -> catalogue.GpuSpec:
    """Return the GPU of this key, or the one of this family with the least memory."""
    return min(catalogue.family_or_key(gpu), key=lambda spec: spec.memory_gb)
