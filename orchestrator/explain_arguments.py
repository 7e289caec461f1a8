"""The words of ``explain``: one Gemm for a GPU, or a run; every mistake reported with its origin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator import catalogue
from orchestrator.axis import MAX_DIMENSION
from orchestrator.errors import ConfigError, InvalidValueError, Problem, nearest, shorten
from orchestrator.explanation import Gpu
from orchestrator.rules import Choice, Integer, Rule, Text
from orchestrator.schema import AROUND
from tasks.gemm import ELEMENT_BYTES, LAYOUTS, Gemm

GEMM_HELP: Mapping[str, str] = MappingProxyType(
    {
        "m": "rows of C; for a layer's linear its tokens",
        "n": "columns of C",
        "k": "the reduction dimension",
        "b": "matrices of a batch: more than one is torch.bmm [1]",
        "dtype": f"element type: {'|'.join(ELEMENT_BYTES)} [fp16]",
        "layout": f"{'|'.join(LAYOUTS)}; nt: B is stored (n, k), as nn.Linear keeps it [nt]",
        "gpu": "GPU of the catalogue",
    }
)
RUN_HELP: Mapping[str, str] = MappingProxyType(
    {
        "family": "only the Families whose id begins with this",
        "value": "only this value of the dimension that was chosen, in detail",
        "d_ff": "the same by the dimension's own name; also " + ", ".join(name for name in AROUND if name != "d_ff"),
    }
)
NEEDED = ("m", "n", "k", "gpu")
DEFAULT_RUN = "latest"

_DIGITS = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_LONGEST = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmWish:
    """One Gemm on one GPU of the catalogue."""

    gemm: Gemm
    gpu: Gpu


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWish:
    """A run. family: how the ids of the Families begin; axis, value: a Candidate (no axis: of what was chosen)."""

    run: str
    family: str = ""
    axis: str | None = None
    value: int | None = None


def _gemm_rules() -> dict[str, Rule]:
    sizes: dict[str, Rule] = {name: Integer(high=MAX_DIMENSION) for name in ("m", "n", "k", "b")}
    return sizes | {
        "dtype": Choice(what="dtype", names=lambda: ELEMENT_BYTES),
        "layout": Choice(what="layout", names=lambda: LAYOUTS),
        "gpu": Choice(what="GPU", names=catalogue.names),
    }


def _run_rules() -> dict[str, Rule]:
    values: dict[str, Rule] = {name: Integer(high=MAX_DIMENSION) for name in ("value", *AROUND)}
    return {"family": Text(type_text="the id of a Family"), **values}


def parse(words: Sequence[str]) -> GemmWish | RunWish:
    """Return what the words ask for, or raise ConfigError with everything that is wrong; the last of a key counts."""
    return _Parser(words).wish()


class _Parser:
    """Values by key, the words that name a run, and the problems met on the way."""

    def __init__(self, words: Sequence[str]) -> None:
        self._problems: list[Problem] = []
        self._runs = [word for word in words if not re.match(r"\w+=", word)]
        self._origins: dict[str, str] = {}
        self._values: dict[str, object] = {}
        self._rules = _gemm_rules() | _run_rules()
        for word in words:
            if word not in self._runs:
                self._read(word)

    def wish(self) -> GemmWish | RunWish:
        of_gemm = [key for key in self._origins if key in GEMM_HELP]
        if len(self._runs) > 1:
            self._report("arguments", f"one run at a time, but got {' and '.join(map(repr, self._runs))}")
        if not of_gemm:
            return self._run()
        strangers = [f"'{shorten(run)}'" for run in self._runs]
        strangers += [f"{key}=" for key in self._origins if key not in GEMM_HELP]
        if strangers:
            gemm = ", ".join(f"{key}=" for key in of_gemm)
            self._report("arguments", f"{', '.join(strangers)} is of a run, {gemm} of one Gemm: give one of both")
        return self._gemm()

    def _read(self, word: str) -> None:
        key, _, text = word.partition("=")
        origin = f"argument '{shorten(word)}'"
        if key not in self._rules:
            close = nearest(key, self._rules)
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            known = f"{', '.join(GEMM_HELP)} for a Gemm; family, value, {', '.join(AROUND)} for a run"
            self._report(origin, f"unknown key '{shorten(key)}'; {hint}there are: {known}")
            return
        rule = self._rules[key]
        self._origins[key] = origin
        try:
            self._values[key] = rule.check(_number(text) if isinstance(rule, Integer) else text)
        except InvalidValueError as error:
            self._report(origin, f"{key}: {error}")

    def _run(self) -> RunWish:
        given = [key for key in ("value", *AROUND) if key in self._origins]
        if len(given) > 1:
            self._report(" and ".join(self._origins[key] for key in given), "one value at a time")
        self._raise()
        axis = given[0] if given and given[0] != "value" else None
        value = self._number(given[0]) if given else None
        family = str(self._values.get("family", ""))
        return RunWish(run=self._runs[0] if self._runs else DEFAULT_RUN, family=family, axis=axis, value=value)

    def _gemm(self) -> GemmWish:
        if missing := [f"{key}=" for key in NEEDED if key not in self._origins]:
            self._report("arguments", f"a Gemm lacks {', '.join(missing)}")
        gpu = self._gpu(str(self._values["gpu"])) if "gpu" in self._values else None
        self._raise()
        assert gpu is not None
        b = self._number("b") if "b" in self._values else 1
        gemm = Gemm(
            kind="mm" if b == 1 else "bmm",
            b=b,
            m=self._number("m"),
            n=self._number("n"),
            k=self._number("k"),
            dtype=str(self._values.get("dtype", "fp16")),
            layout=str(self._values.get("layout", "nt")),
        )
        return GemmWish(gemm=gemm, gpu=gpu)

    def _gpu(self, name: str) -> Gpu | None:
        models = catalogue.family_or_key(name)
        if len(models) > 1:
            keys = ", ".join(spec.key for spec in models)
            self._report(self._origins["gpu"], f"gpu: '{name}' is several GPUs, name one of them: {keys}")
            return None
        return Gpu(name=models[0].key, sms=models[0].sm_count, spec=models[0])

    def _number(self, key: str) -> int:
        value = self._values[key]
        assert isinstance(value, int)
        return value

    def _raise(self) -> None:
        if self._problems:
            raise ConfigError(self._problems)

    def _report(self, origin: str, message: str) -> None:
        self._problems.append(Problem(origin=origin, message=message))


def _number(text: str) -> int | str:
    """Read a whole number in decimal digits, which may be grouped (``1_024``); other texts stay what they are."""
    return int(text) if _DIGITS.fullmatch(text) and len(text) <= _LONGEST else text
