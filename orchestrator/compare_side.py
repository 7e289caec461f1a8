"""One of the things that are compared: the timings of one GPU model, out of a run or a published table."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from orchestrator.catalogue import GpuSpec
from orchestrator.imports.table import Defect, TimingTable
from tasks.gemm import LAYOUTS, Gemm

MATRIX_LAYOUT = "nt"
"""Which of a run's layouts stands beside a table that tells none: a weight's, as ``nn.Linear`` keeps it."""


class Shape(NamedTuple):
    """What is the same Gemm on two sides; layout None: not told."""

    kind: str
    b: int
    m: int
    n: int
    k: int
    dtype: str
    layout: str | None = None

    @property
    def gemm(self) -> Gemm:
        """The Gemm; FLOPs and bytes do not depend on a layout that is not told."""
        return Gemm(**{**self._asdict(), "layout": self.layout or LAYOUTS[0]})

    def __str__(self) -> str:
        """Return it as a run names it, without what is not told."""
        layout = "" if self.layout is None else f"-{self.layout}"
        return f"{self.kind}-{self.b}x{self.m}x{self.n}x{self.k}-{self.dtype}{layout}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of one call, joules where measured, and what it is in a model (``mlp.gate_up``)."""

    seconds: float
    energy_j: float | None = None
    roles: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True, slots=True)
class Contenders:
    """A Family's ranked values on one GPU model, with their cost per FLOP over the best one's."""

    axis: str
    relative: Mapping[int, float]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side. name: as the user wrote it. spec: None for a GPU that the catalogue has not.

    protocol: what must be equal between runs, by name; None for an import, whose protocol is not this project's.
    environment: what was found of each thing that may differ. families: by id, with the pass where it is no forward.
    defects: of an import; of ``read`` rows.
    """

    name: str
    path: str
    gpu: str
    spec: GpuSpec | None
    timings: Mapping[Shape, Timing]
    environment: Mapping[str, tuple[str, ...]]
    protocol: Mapping[str, str] | None = None
    families: Mapping[str, Contenders] = field(default_factory=dict)
    source: str | None = None
    defects: tuple[Defect, ...] = ()
    read: int = 0
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def imported(self) -> bool:
        """Whether it was published by somebody else."""
        return self.protocol is None

    def without_layout(self) -> dict[Shape, Timing]:
        """The timings by what a table tells; of several layouts that of a weight, else the first by name."""
        found: dict[Shape, Timing] = {}
        for shape in sorted(self.timings, key=lambda each: (each.layout != MATRIX_LAYOUT, each.layout or "")):
            found.setdefault(shape._replace(layout=None), self.timings[shape])
        return found


def side_of_table(name: str, table: TimingTable) -> Side:
    """Make a side of a published table."""
    timings = {
        Shape(row.kind, row.b, row.m, row.n, row.k, row.dtype): Timing(
            seconds=row.seconds, roles=frozenset(() if row.role is None else (row.role,))
        )
        for row in table.rows
    }
    return Side(
        name=name,
        path=str(table.path.resolve()),
        gpu=table.gpu.key,
        spec=table.gpu,
        timings=timings,
        environment={},
        source=table.source,
        defects=table.defects,
        read=table.read,
    )
