"""The Bundles that Families form, found in columns: each is made when somebody asks for it."""

from collections.abc import Sequence

import numpy as np

from orchestrator.gemm_columns import GemmSets, table_of
from orchestrator.grouping import hosted
from orchestrator.lazy import Lazy
from tasks.family import Bundle, Family
from tasks.gemm import Gemm


class Bundles(Lazy[Bundle]):
    """Bundles of Families; sets: the Gemms of each."""

    def __init__(self, families: Sequence[Family], of: GemmSets) -> None:
        """Group ``families``, whose Gemms are ``of``."""
        members, begins = hosted(of.gemms, of.starts)
        first = members[begins[:-1]]
        lengths = np.diff(of.starts)[first]
        starts = np.concatenate(([0], np.cumsum(lengths)))
        shift = of.starts[:-1][first] - starts[:-1]
        self.sets = GemmSets(
            table=of.table,
            gemms=of.gemms[np.arange(starts[-1]) + np.repeat(shift, lengths)],
            starts=starts,
            rivals=np.maximum.reduceat(of.rivals[members], begins[:-1]),
        )

        def make(place: int) -> Bundle:
            found = members[begins[place] : begins[place + 1]].tolist()
            return Bundle(families=tuple(families[each] for each in found))

        super().__init__(len(first), make)


def bundle(families: Sequence[Family]) -> Bundles:
    """Group Families so that one whose Gemms are all among another's is measured with it, in the same rounds.

    Families that only overlap stay apart: each needs the shared Gemms in its own rounds to compare with them.
    """
    numbers: dict[Gemm, int] = {}
    gemms = [[numbers.setdefault(gemm, len(numbers)) for gemm in family.gemms] for family in families]
    sets = GemmSets(
        table=table_of(numbers),
        gemms=np.array([number for each in gemms for number in each], dtype=np.int64),
        starts=np.concatenate(([0], np.cumsum([len(each) for each in gemms], dtype=np.int64))),
        rivals=np.array([len(family.candidates) for family in families], dtype=np.int64),
    )
    return Bundles(families, sets)
