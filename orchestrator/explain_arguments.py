"""The words of ``explain``: one Gemm for a GPU, or a run; every mistake reported with its origin."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from orchestrator.axis import MAX_DIMENSION
from orchestrator.errors import shorten
from orchestrator.explanation import Gpu
from orchestrator.rules import Integer, Rule, Text
from orchestrator.schema import AROUND
from orchestrator.shape_code import SHAPE, axis_name
from orchestrator.shape_code import parse as parse_shape
from orchestrator.words import ALIASES, GPU, Key, Words, one_of
from tasks.gemm import ELEMENT_BYTES, LAYOUTS, Gemm, kind_of

CHOSEN = tuple(name for name in AROUND if name not in ALIASES)
"""What a value may be called here: ``batch`` is another name of ``b``."""
_SIZE = Integer(high=MAX_DIMENSION)


@dataclass(frozen=True, kw_only=True, slots=True)
class _ShapeRule(Rule):
    """A shape as h/d_ff/a; kept as its number."""

    type_text: str = axis_name(SHAPE)

    def _check(self, value: object) -> int:
        return parse_shape(value)


GEMM_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        "m": Key(rule=_SIZE, help="rows of C; for a layer's linear its tokens"),
        "n": Key(rule=_SIZE, help="columns of C"),
        "k": Key(rule=_SIZE, help="the reduction dimension"),
        "b": Key(rule=_SIZE, help="matrices of a batch: more than one is torch.bmm [1]"),
        "dtype": one_of("dtype", ELEMENT_BYTES, "element type: {} [fp16]"),
        "layout": one_of("layout", LAYOUTS, "{}; nt: B is stored (n, k), as nn.Linear keeps it [nt]"),
        "gpu": GPU,
    }
)
RUN_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        "family": Key(rule=Text(type_text="the id of a Family"), help="only the Families whose id begins with this"),
        "value": Key(rule=_SIZE, help="only this value of the dimension that was chosen, in detail"),
        **{name: Key(rule=_SIZE, help=f"the same where {name} was chosen") for name in CHOSEN},
        SHAPE: Key(rule=_ShapeRule(), help=f"the same where shapes were chosen: {axis_name(SHAPE)}"),
    }
)
NEEDED = ("m", "n", "k", "gpu")
DEFAULT_RUN = "latest"


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmWish:
    """One Gemm on one GPU of the catalogue. notes: how the words were understood."""

    gemm: Gemm
    gpu: Gpu
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunWish:
    """A run. family: how the ids of the Families begin; axis, value: a Candidate (no axis: of what was chosen)."""

    run: str
    family: str = ""
    axis: str | None = None
    value: int | None = None


def parse(words: Sequence[str]) -> GemmWish | RunWish:
    """Return what the words ask for, or raise ConfigError with everything that is wrong."""
    runs = [word for word in words if not re.match(r"\w+=", word)]
    known = f"{', '.join(GEMM_KEYS)} for a Gemm; {', '.join(RUN_KEYS)} for a run"
    read = Words([word for word in words if word not in runs], {**GEMM_KEYS, **RUN_KEYS}, known)
    if len(runs) > 1:
        read.report("arguments", f"one run at a time, but got {' and '.join(map(repr, runs))}")
    of_gemm = [f"{key}=" for key in read.origins if key in GEMM_KEYS]
    strangers = [f"'{shorten(run)}'" for run in runs] + [f"{key}=" for key in read.origins if key in RUN_KEYS]
    if of_gemm and strangers:
        message = f"{', '.join(strangers)} is of a run, {', '.join(of_gemm)} of one Gemm: give one of both"
        read.report("arguments", message)
    return _gemm(read) if of_gemm else _run(read, runs)


def _run(read: Words, runs: Sequence[str]) -> RunWish:
    given = [key for key in ("value", *CHOSEN, SHAPE) if key in read.origins]
    if len(given) > 1:
        read.report(read.origin(*given), "one value at a time")
    read.refuse()
    chosen = {"axis": None if given[0] == "value" else given[0], "value": read.values[given[0]]} if given else {}
    return RunWish(run=runs[0] if runs else DEFAULT_RUN, **read.given("family"), **chosen)


def _gemm(read: Words) -> GemmWish:
    if missing := [f"{key}=" for key in NEEDED if key not in read.origins]:
        read.report("arguments", f"a Gemm lacks {', '.join(missing)}")
    read.refuse()
    sizes = {"b": 1, "dtype": "fp16", "layout": "nt", **read.given(*GEMM_KEYS)}
    del sizes["gpu"]
    spec = read.gpu()
    assert spec is not None
    gemm = Gemm(kind=kind_of(sizes["dtype"], batched=sizes["b"] > 1), **sizes)
    return GemmWish(gemm=gemm, gpu=Gpu(name=spec.key, sms=spec.sm_count, spec=spec), notes=tuple(read.notes))
