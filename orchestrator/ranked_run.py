"""A run's ranking as it is written and printed at the end of a sweep, and by ``rank``: whole, or in batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

from orchestrator.forms import TABLES
from orchestrator.large_ranking import LargeRanking, is_large
from orchestrator.ranking import Ranking, rank
from orchestrator.ranking_output import printed_ranking
from orchestrator.ranking_stream import RankingStream
from orchestrator.store import RunStore
from orchestrator.tables import FamilyTable, family_tables, status_counts
from orchestrator.terminal import markdown


class RankedRun(Protocol):
    """A ranking of either kind."""

    large: ClassVar[bool]
    """Whether it may be larger than memory: where it cannot be written it is nowhere else."""

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each Shard that could not be read."""

    @property
    def statuses(self) -> frozenset[str]:
        """How the run's Candidates have ended."""

    def write(self) -> None:
        """Write ``ranking.parquet`` and ``ranking.md``; raise StoreError where the disk refuses."""

    def printed(self, problems: Sequence[str] = ()) -> bool:
        """Print it; tell whether it could be written. problems: what there is to say beside its own."""


def rank_run(store: RunStore, top: int, form: str = TABLES, *, include_suspects: bool = False) -> RankedRun:
    """Rank a run; a large one in batches, unless programs are to read the rows from standard output.

    top: Candidates of a Family that are shown. form, include_suspects: as ``printed_as`` and ``rank`` take them.
    """
    stream = RankingStream(store.reader(), include_suspects)
    if form == TABLES and is_large(stream):
        return LargeRanking(store, stream, top)
    ranking = rank(store, include_suspects=include_suspects, reader=stream.reader)
    return WholeRanking(store=store, ranking=ranking, top=top, form=form)


@dataclass(frozen=True, kw_only=True)
class WholeRanking:
    """A ranking in memory."""

    store: RunStore
    ranking: Ranking
    top: int
    form: str
    large: ClassVar[bool] = False

    @property
    def problems(self) -> tuple[str, ...]:
        """As ``RankedRun`` has it."""
        return self.ranking.problems

    @cached_property
    def statuses(self) -> frozenset[str]:
        """As ``RankedRun`` has it."""
        return frozenset(status_counts(self.ranking.table))

    @cached_property
    def families(self) -> tuple[FamilyTable, ...]:
        """What is printed and written of each Family."""
        return tuple(family_tables(self.ranking.table, self.top))

    def write(self) -> None:
        """As ``RankedRun`` has it."""
        path, ranking = self.store.path, self.ranking
        text = markdown(
            path,
            ranking.table,
            self.top,
            notes=ranking.notes,
            problems=ranking.problems,
            fleets=ranking.fleets,
            families=self.families,
        )
        self.store.write_ranking(ranking.table, text)

    def printed(self, problems: Sequence[str] = ()) -> bool:
        """As ``RankedRun`` has it."""
        return printed_ranking(self.form, self.store, self.ranking, self.top, problems, lambda: self.families)
