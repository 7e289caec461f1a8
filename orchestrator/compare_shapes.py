"""The shapes that all sides have: how many times as fast each side is, and what only some sides have."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from orchestrator.compare_side import Shape, Side, Timing
from orchestrator.errors import InvalidValueError
from orchestrator.roofline import COMPUTE, MEMORY, roofline

ALL = "all"
CROSSES = "crosses"
UNKNOWN = "unknown"
EXAMPLES = 3

Timings = Mapping[Shape, Timing]


@dataclass(frozen=True, kw_only=True, slots=True)
class SideFigures:
    """One side's figures over a group of shapes.

    p10, median, p90: of the first side's seconds over this one's. peak_share: median of FLOP/s over the catalogue's
    peak. joules_per_flop: median over the shapes whose energy was measured; None where none was.
    """

    p10: float
    median: float
    p90: float
    tflops: float
    peak_share: float | None
    joules_per_flop: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """The shapes of one role, dtype and regime.

    regime: the ceiling that they meet on every GPU; ``crosses`` where the GPUs differ, ``unknown`` where the catalogue
    lacks one of them or its peak, ``all`` for all together.
    """

    role: str
    dtype: str
    regime: str
    count: int
    figures: tuple[SideFigures, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Coverage:
    """How many shapes one side has, how many of them not every other one has, and some of these."""

    shapes: int
    missing_elsewhere: int
    examples: tuple[Shape, ...]


def matched(sides: Sequence[Side]) -> tuple[list[Timings], tuple[Shape, ...]]:
    """Return each side's timings by the shapes on which all can be matched, and the shapes that all have, in order.

    A layout counts only where every side tells it.

    Raises:
        InvalidValueError: there is no such shape.
    """
    told = all(shape.layout is not None for side in sides for shape in side.timings)
    timings: list[Timings] = [side.timings if told else side.without_layout() for side in sides]
    common = set(timings[0]).intersection(*timings[1:])
    if not common:
        examples = "; ".join(f"'{s.name}' has {len(t)}, e.g. {min(t)}" for s, t in zip(sides, timings, strict=True))
        raise InvalidValueError(f"there is no shape (b, m, n, k, dtype) that all have: {examples}")
    return timings, tuple(sorted(common, key=lambda shape: (shape.dtype, shape[:5], shape.layout or "")))


def coverage(timings: Sequence[Timings], common: Sequence[Shape]) -> tuple[Coverage, ...]:
    """Say of each side what is left out of the comparison."""
    shared = frozenset(common)
    missing = [sorted(found.keys() - shared, key=str) for found in timings]
    return tuple(
        Coverage(shapes=len(found), missing_elsewhere=len(left), examples=tuple(left[:EXAMPLES]))
        for found, left in zip(timings, missing, strict=True)
    )


def groups(sides: Sequence[Side], timings: Sequence[Timings], common: Sequence[Shape]) -> tuple[Group, ...]:
    """Return the groups: for each dtype all shapes, then by regime, then by role and regime where roles are known."""
    members: dict[tuple[str, str, str], list[Shape]] = defaultdict(list)
    for shape in common:
        regime = _regime(sides, shape)
        roles = sorted(frozenset().union(*(found[shape].roles for found in timings)))
        for place in ((ALL, ALL), (ALL, regime), *((role, regime) for role in roles)):
            members[shape.dtype, *place].append(shape)
    order = sorted(members, key=lambda key: (key[0], key[1] != ALL, key[1], key[2] != ALL, key[2]))
    return tuple(
        Group(
            role=role,
            dtype=dtype,
            regime=regime,
            count=len(shapes := members[dtype, role, regime]),
            figures=tuple(
                _figures(side, found, timings[0], shapes) for side, found in zip(sides, timings, strict=True)
            ),
        )
        for dtype, role, regime in order
    )


def _regime(sides: Sequence[Side], shape: Shape) -> str:
    met = {None if side.spec is None else roofline(shape.gemm, side.spec).side for side in sides}
    if None in met:
        return UNKNOWN
    return CROSSES if met == {COMPUTE, MEMORY} else str(met.pop())


def _figures(side: Side, timings: Timings, first: Timings, shapes: Sequence[Shape]) -> SideFigures:
    speedups = np.array([first[shape].seconds / timings[shape].seconds for shape in shapes])
    p10, middle, p90 = np.percentile(speedups, [10, 50, 90]).tolist()
    rates = np.array([shape.gemm.flops / timings[shape].seconds / 1e12 for shape in shapes])
    peak = None if side.spec is None else side.spec.peak(shapes[0].dtype)
    energies = [energy / shape.gemm.flops for shape in shapes if (energy := timings[shape].energy_j) is not None]
    return SideFigures(
        p10=p10,
        median=middle,
        p90=p90,
        tflops=float(np.median(rates)),
        peak_share=None if peak is None else float(np.median(rates)) / peak,
        joules_per_flop=float(np.median(energies)) if energies else None,
    )
