"""The Families of an expansion and the Bundles that they form, made from columns when somebody asks for them."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain

import numpy as np

from orchestrator.column import Array
from orchestrator.gemm_columns import SIZES, BundleColumns, GemmTable, Sort, table_of
from orchestrator.grouping import Groups, grouped, hosted, keys
from orchestrator.lazy import Lazy
from orchestrator.sift import Sifted
from orchestrator.slate import key_fields
from tasks.family import Bundle, Family
from tasks.gemm import Gemm


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

    def family(self, place: int) -> Family:
        sifted, number = self.sifted, int(self.slates[place])
        slate = sifted.slates.slate(number)
        rows = self.rows[self.starts[place] : self.starts[place + 1]]
        baseline = int(sifted.baselines[number])
        candidates = tuple(
            slate.candidate(value, baseline=row == baseline)
            for row, value in zip(rows.tolist(), sifted.slates.values[rows].tolist(), strict=True)
        )
        return Family(**key_fields(slate.key), candidates=candidates)

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


class Bundles(Lazy[Bundle]):
    """Bundles of Families; columns: the same in columns."""

    def __init__(self, families: Sequence[Family], sizes: Array, groups: Groups, table: GemmTable) -> None:
        """Group ``families``; ``sizes``: how many Candidates each has."""
        members, begins = hosted(groups)
        first = members[begins[:-1]]
        lengths = np.diff(groups.starts)[first]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        shift = groups.starts[:-1][first] - starts[:-1]
        self.columns = BundleColumns(
            table=table,
            gemms=groups.gemms[np.arange(starts[-1]) + np.repeat(shift, lengths)],
            starts=starts,
            rivals=np.maximum.reduceat(sizes[members], begins[:-1]) > 1,
        )

        def make(place: int) -> Bundle:
            found = members[begins[place] : begins[place + 1]].tolist()
            return Bundle(families=tuple(families[each] for each in found))

        super().__init__(len(first), make)


class Families(Lazy[Family]):
    """The Families of an expansion."""

    def __init__(self, parts: Sequence[_Measured]) -> None:
        """Take those of each role and dtype."""
        self._parts = parts
        self._ends = list(accumulate(map(len, parts)))
        super().__init__(self._ends[-1] if self._ends else 0, self._family)

    def bundles(self) -> Bundles:
        """Find the distinct Gemms and group the Families by them."""
        sorts: dict[Sort, int] = {}
        sort = np.concatenate([part.sorts(sorts) for part in self._parts])
        shift = [0, *self._ends]
        of = [
            np.repeat(part.family_of + np.int32(begin), part.parts)
            for part, begin in zip(self._parts, shift, strict=False)
        ]
        groups = grouped(keys(chain([sort], self._columns())), np.concatenate(of), len(self))
        b, m, n, k = (column[groups.first] for column in self._columns())
        table = GemmTable(sorts=tuple(sorts), sort=sort[groups.first], sizes=(b, m, n, k))
        sizes = np.concatenate([np.diff(part.starts) for part in self._parts])
        return Bundles(self, sizes, groups, table)

    def _columns(self) -> Iterator[Array]:
        """Yield b, m, n and k of all Gemms."""
        for size in range(len(SIZES)):
            yield np.concatenate([part.column(size) for part in self._parts])

    def _family(self, place: int) -> Family:
        part = bisect_right(self._ends, place)
        return self._parts[part].family(place - (self._ends[part - 1] if part else 0))


def families_of(sifted: Iterable[Sifted]) -> Families:
    """The Families that are left of the Slates of each role and dtype."""
    return Families([part for each in sifted if len(part := _Measured(each))])


def bundle(families: Sequence[Family]) -> Bundles:
    """Group Families so that one whose Gemms are all among another's is measured with it, in the same rounds.

    Families that only overlap stay apart: each needs the shared Gemms in its own rounds to compare with them.
    """
    numbers: dict[Gemm, int] = {}
    rows = [numbers.setdefault(gemm, len(numbers)) for family in families for gemm in family.gemms]
    owners = np.repeat(np.arange(len(families)), [len(family.gemms) for family in families])
    groups = grouped(np.array(rows, dtype=np.int64), owners, len(families))
    sizes = np.array([len(family.candidates) for family in families], dtype=np.int64)
    return Bundles(families, sizes, groups, table_of(numbers))
