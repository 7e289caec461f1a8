"""Many Gemms as columns: those of one kind, dtype and layout, and the distinct ones of a whole plan."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from orchestrator.column import Array
from tasks.family import Bundle
from tasks.gemm import Gemm

Sort = tuple[str, str, str]
"""Kind, dtype and layout."""

SIZES = ("b", "m", "n", "k")


class GemmColumns(Gemm):
    """Gemms of one sort whose b, m, n and k are Columns or arrays; what a Gemm calculates is then one too."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """A Gemm's own checks are for one; what is measured is made a Gemm."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GemmTable:
    """Distinct Gemms. sort: of each its place among ``sorts``; sizes: b, m, n and k of each, int64."""

    sorts: Sequence[Sort]
    sort: Array
    sizes: tuple[Array, Array, Array, Array]

    def __len__(self) -> int:
        return len(self.sort)

    def gemm(self, row: int) -> Gemm:
        """One of them."""
        kind, dtype, layout = self.sorts[self.sort[row]]
        b, m, n, k = (int(values[row]) for values in self.sizes)
        return Gemm(kind=kind, b=b, m=m, n=n, k=k, dtype=dtype, layout=layout)

    def by_sort(self) -> Iterator[tuple[Array, GemmColumns]]:
        """Yield the rows of each sort that there is, and its Gemms as int64 arrays."""
        for place, (kind, dtype, layout) in enumerate(self.sorts):
            rows = np.flatnonzero(self.sort == place)
            if rows.size:
                sizes: dict[str, Any] = dict(zip(SIZES, (values[rows] for values in self.sizes), strict=True))
                yield rows, GemmColumns(kind=kind, dtype=dtype, layout=layout, **sizes)

    def flops(self) -> Array:
        """FLOPs of one call of each."""
        return self.each(lambda gemms: gemms.flops, np.int64)

    def bytes(self) -> Array:
        """Fewest bytes that one call of each moves."""
        return self.each(lambda gemms: gemms.bytes, np.int64)

    def each(self, of: Callable[[GemmColumns], Any], dtype: type) -> Array:
        """What ``of`` calculates for each of them."""
        found: Array = np.empty(len(self), dtype=dtype)
        for rows, gemms in self.by_sort():
            found[rows] = of(gemms)
        return found


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GemmSets:
    """Which Gemms Bundles have, or Families.

    gemms: those of all sets one after the other, as rows of ``table``; those of set i from ``starts[i]`` to
    ``starts[i + 1]``. rivals: of each set how many Candidates compete in it, or in the largest of its Families.
    """

    table: GemmTable
    gemms: Array
    starts: Array
    rivals: Array

    def sums(self, values: Array) -> Array:
        """Of each set the sum of what its Gemms have."""
        found: Array = np.add.reduceat(values, self.starts[:-1]) if len(values) else values
        return found

    def exact_sums(self, values: Array) -> list[int]:
        """The same of whole numbers, each of which int64 takes, although it may not take their sum."""
        half = 32
        high, low = self.sums(values >> half).tolist(), self.sums(values & (2**half - 1)).tolist()
        return [(upper << half) + lower for upper, lower in zip(high, low, strict=True)]

    def only(self, wanted: Array) -> "GemmSets":
        """Keep of ``gemms`` those that a mask wants, and the sets of which any is left."""
        counts = self.sums(wanted.astype(np.int64))
        left = counts > 0
        return GemmSets(
            table=self.table,
            gemms=self.gemms[wanted],
            starts=np.concatenate(([0], np.cumsum(counts[left]))),
            rivals=self.rivals[left],
        )

    def medians(self, values: Array) -> Array:
        """Of each set the median of what its Gemms have; what numpy has for it imports numpy.ma, which takes 10 ms."""
        lengths = np.diff(self.starts)
        found = np.empty(len(lengths), dtype=np.float64)
        for length in set(lengths.tolist()):
            rows = np.flatnonzero(lengths == length)
            ordered = np.sort(values[self.starts[rows][:, None] + np.arange(length)], axis=1)
            found[rows] = (ordered[:, (length - 1) // 2] + ordered[:, length // 2]) / 2
        return found


def table_of(gemms: Iterable[Gemm]) -> GemmTable:
    """Distinct Gemms as columns."""
    known = list(gemms)
    sorts: dict[Sort, int] = {}
    sort = [sorts.setdefault((gemm.kind, gemm.dtype, gemm.layout), len(sorts)) for gemm in known]
    b, m, n, k = (np.array([getattr(gemm, size) for gemm in known], dtype=np.int64) for size in SIZES)
    return GemmTable(sorts=tuple(sorts), sort=np.array(sort, dtype=np.int64), sizes=(b, m, n, k))


def sets_of(bundles: Iterable[Bundle]) -> GemmSets:
    """The Gemms of Bundles as columns."""
    numbers: dict[Gemm, int] = {}
    gemms: list[int] = []
    starts, rivals = [0], []
    for bundle in bundles:
        gemms += [numbers.setdefault(gemm, len(numbers)) for gemm in bundle.gemms]
        starts.append(len(gemms))
        rivals.append(max(len(family.candidates) for family in bundle.families))
    return GemmSets(
        table=table_of(numbers),
        gemms=np.array(gemms, dtype=np.int64),
        starts=np.array(starts),
        rivals=np.array(rivals, dtype=np.int64),
    )
