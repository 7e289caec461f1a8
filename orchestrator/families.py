"""The Families of an expansion, in columns: each is made when somebody asks for it."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import numpy as np

from orchestrator.column import Array
from orchestrator.gemm_columns import SIZES, GemmSets, GemmTable, Sort
from orchestrator.grouping import grouped, keys
from orchestrator.lazy import Lazy
from orchestrator.sift import Sifted
from orchestrator.slate import key_fields
from tasks.family import Family, FamilyKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline(FamilyKey):
    """A Family without the Gemms of its Candidates: their values, and the baseline among them or None."""

    values: tuple[int, ...]
    baseline: int | None


class _Measured:
    """The Families of one role and dtype: the Slates of which a Point is left."""

    def __init__(self, sifted: Sifted) -> None:
        self.sifted = sifted
        self.rows = np.flatnonzero(sifted.codes == 0)
        owners = sifted.owners[self.rows]
        new = np.ones(len(owners), dtype=bool)
        np.not_equal(owners[1:], owners[:-1], out=new[1:])
        begins = np.flatnonzero(new)
        self.starts = np.append(begins, len(owners))
        self.slates = owners[begins]
        self.family_of = np.cumsum(new, dtype=np.int32) - 1
        self.parts = len(sifted.sorts)

    def __len__(self) -> int:
        return len(self.slates)

    def outline(self, place: int) -> Outline:
        sifted, number = self.sifted, int(self.slates[place])
        key = key_fields(sifted.slates.slate(number).key)
        row = int(sifted.baselines[number])
        baseline = None if row < 0 else int(sifted.slates.values[row])
        return Outline(**key, values=self._values(place), baseline=baseline)

    def family(self, place: int) -> Family:
        sifted, number = self.sifted, int(self.slates[place])
        slate, row = sifted.slates.slate(number), int(sifted.baselines[number])
        baseline = None if row < 0 else int(sifted.slates.values[row])
        candidates = tuple(slate.candidate(value, baseline=value == baseline) for value in self._values(place))
        return Family(**key_fields(slate.key), candidates=candidates)

    def _values(self, place: int) -> tuple[int, ...]:
        rows = self.rows[self.starts[place] : self.starts[place + 1]]
        return tuple(self.sifted.slates.values[rows].tolist())

    def sorts(self, known: dict[Sort, int]) -> Array:
        """The sort of all Gemms, by its place among those that are known: a row a part, Candidate by Candidate."""
        places = [known.setdefault(sort, len(known)) for sort in self.sifted.sorts]
        return np.tile(np.array(places, dtype=np.int32), len(self.rows))

    def column(self, size: int) -> Array:
        """One size of all Gemms: a row a part, Candidate by Candidate."""
        found = np.empty((len(self.rows), self.parts), dtype=np.int64)
        for part, sizes in enumerate(self.sifted.sizes):
            found[:, part] = sizes[size]
        return found.reshape(-1)


class Families(Lazy[Family]):
    """The Families of an expansion; sets: the Gemms of each."""

    def __init__(self, parts: Sequence[_Measured]) -> None:
        """Take those of each role and dtype, at least one."""
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))
        super().__init__(self._ends[-1], self._family)
        self.sets = self._sets()

    def outlines(self, count: int | None = None) -> Iterator[Outline]:
        """Yield the first ``count`` Families without their Candidates' Gemms, or all."""
        for place in range(min(len(self), len(self) if count is None else count)):
            part, own = self._find(place)
            yield part.outline(own)

    def _sets(self) -> GemmSets:
        """Find the distinct Gemms."""
        sorts: dict[Sort, int] = {}
        sort = np.concatenate([part.sorts(sorts) for part in self._parts])
        owners = [
            np.repeat(part.family_of + np.int32(end - len(part)), part.parts)
            for part, end in zip(self._parts, self._ends, strict=True)
        ]
        groups = grouped(keys(chain([sort], self._columns())), np.concatenate(owners), len(self))
        b, m, n, k = (column[groups.first] for column in self._columns())
        return GemmSets(
            table=GemmTable(sorts=tuple(sorts), sort=sort[groups.first], sizes=(b, m, n, k)),
            gemms=groups.numbers,
            starts=groups.starts,
            rivals=np.concatenate([np.diff(part.starts) for part in self._parts]),
        )

    def _columns(self) -> Iterator[Array]:
        """Yield b, m, n and k of all Gemms."""
        for size in range(len(SIZES)):
            yield np.concatenate([part.column(size) for part in self._parts])

    def _find(self, place: int) -> tuple[_Measured, int]:
        part = bisect_right(self._ends, place)
        return self._parts[part], place - (self._ends[part - 1] if part else 0)

    def _family(self, place: int) -> Family:
        part, own = self._find(place)
        return part.family(own)


def families_of(sifted: Iterable[Sifted]) -> Families | None:
    """The Families that are left of the Slates of each role and dtype, or None where there is none."""
    parts = [part for each in sifted if len(part := _Measured(each))]
    return Families(parts) if parts else None
