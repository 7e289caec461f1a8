"""Timings of one GPU model by shape, and what lies between them: interpolation in log space, and its error."""

import math
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from orchestrator.alignment import aligned
from orchestrator.compare_side import Shape

Axes = tuple[str, ...]
AXES: Axes = ("m", "n", "k")
CHOICES: tuple[tuple[Axes, ...], ...] = tuple(tuple(combinations(AXES, count)) for count in (1, 2, 3))
"""Along what is interpolated: as few axes as possible."""

MOST_APART = 4
"""Neighbours further apart than this tell too little; the widest step of the published tables' n and k is 4."""

NEAR = 4
"""Interpolation misses more among many tokens than among few, or the other way round."""
DEPARTS = 1.3
"""A figure this many times what its neighbours give, or less than one such part: in the published tables that were
looked at 0.01% to 0.4% of the rows are, some of them plainly wrong."""
AXES_NEEDED = 2
"""On one axis alone it may be the neighbour that is off."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Seconds between measured neighbours. spans: the values between which it lies, by axis."""

    seconds: float
    spans: Mapping[str, tuple[int, int]]

    @property
    def axes(self) -> Axes:
        """Along what was interpolated."""
        return tuple(self.spans)

    @property
    def width(self) -> float:
        """How many times the upper neighbours are the lower ones, of all axes together."""
        return math.prod(high / low for low, high in self.spans.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class Error:
    """How far interpolation misses what was measured, leaving it out: of ``count`` shapes, relative.

    near: of those whose m is at most NEAR times this, or one NEAR-th of it; None: of all.
    """

    axes: Axes
    dtype: str
    near: int | None
    count: int
    median: float
    p90: float


class Grid:
    """Measured seconds by shape. Neighbours are alike in all but the axes, and have aligned rows or not alike."""

    def __init__(self, seconds: Mapping[Shape, float]) -> None:
        self.seconds = seconds
        self._aligned = {shape: aligned(shape.gemm) for shape in seconds}
        self._values: dict[Axes, dict[tuple[Shape, bool], list[int]]] = {}

    def estimate(self, shape: Shape) -> Estimate | None:
        """Interpolate a shape along as few axes as possible, of these between the closest neighbours.

        None where it does not lie between measured ones.
        """
        for choice in CHOICES:
            found = [each for axes in choice if (each := self.between(shape, axes)) is not None]
            if found:
                return min(found, key=lambda each: each.width)
        return None

    def between(self, shape: Shape, axes: Axes) -> Estimate | None:
        """Interpolate along exactly these axes, from neighbours that differ from ``shape`` in every one of them.

        The logarithm of the time is linear over that of the dimension; along several axes one after the other.
        """
        return self._between(shape, axes, aligned(shape.gemm))

    def departure(self, shape: Shape) -> float | None:
        """Return how many times a measured shape takes what its neighbours give, at the axis nearest to 1.

        None where it departs by less than DEPARTS on one of the axes along which it lies between two neighbours, or
        there are fewer than AXES_NEEDED of them.
        """
        found = (self.between(shape, (axis,)) for axis in AXES)
        ratios = [self.seconds[shape] / each.seconds for each in found if each is not None]
        alike = bool(ratios) and (min(ratios) > DEPARTS or max(ratios) < 1 / DEPARTS)
        return min(ratios, key=lambda ratio: abs(math.log(ratio))) if alike and len(ratios) >= AXES_NEEDED else None

    def error(self, axes: Axes, dtype: str, near: int | None = None) -> Error | None:
        """Leave out one measured shape after the other, and compare; None where none lies between others."""
        misses = [
            abs(found.seconds / seconds - 1)
            for shape, seconds in self.seconds.items()
            if shape.dtype == dtype and _is_near(shape, near) and (found := self.between(shape, axes)) is not None
        ]
        if not misses:
            return None
        median, p90 = np.percentile(misses, [50, 90]).tolist()
        return Error(axes=axes, dtype=dtype, near=near, count=len(misses), median=median, p90=p90)

    def _between(self, shape: Shape, axes: Axes, fit: bool) -> Estimate | None:
        if not axes:
            same = self._aligned.get(shape) == fit
            return Estimate(seconds=self.seconds[shape], spans={}) if same else None
        axis, at = axes[0], int(getattr(shape, axes[0]))
        values = self._line(shape, axes, fit)
        below = self._first(shape, axes, fit, reversed(values[: bisect_left(values, at)]))
        above = self._first(shape, axes, fit, iter(values[bisect_right(values, at) :]))
        if below is None or above is None or above[0] > MOST_APART * below[0]:
            return None
        weight = math.log(at / below[0]) / math.log(above[0] / below[0])
        low, high = below[1], above[1]
        seconds = math.exp((1 - weight) * math.log(low.seconds) + weight * math.log(high.seconds))
        return Estimate(seconds=seconds, spans={axis: (below[0], above[0]), **low.spans, **high.spans})

    def _first(self, shape: Shape, axes: Axes, fit: bool, values: Iterator[int]) -> tuple[int, Estimate] | None:
        """The nearest value at which there is a time: along the other axes it may have to be interpolated."""
        for value in values:
            found = self._between(_at(shape, axes[0], value), axes[1:], fit)
            if found is not None:
                return value, found
        return None

    def _line(self, shape: Shape, axes: Axes, fit: bool) -> list[int]:
        """The measured values of the first axis among shapes that are alike in all but ``axes``, in order."""
        if axes not in self._values:
            lines: dict[tuple[Shape, bool], set[int]] = defaultdict(set)
            for each, same in self._aligned.items():
                lines[_without(each, axes), same].add(int(getattr(each, axes[0])))
            self._values[axes] = {key: sorted(values) for key, values in lines.items()}
        return self._values[axes].get((_without(shape, axes), fit), [])


def _is_near(shape: Shape, m: int | None) -> bool:
    return m is None or (shape.m <= NEAR * m and m <= NEAR * shape.m)


def _at(shape: Shape, axis: str, value: int) -> Shape:
    return Shape(**{**shape._asdict(), axis: value})


def _without(shape: Shape, axes: Axes) -> Shape:
    return Shape(**{**shape._asdict(), **dict.fromkeys(axes, 0)})
