"""The ranking of a large run: made in batches, which are written as they come, and the first Families of it shown."""

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.columns import RANKING_SCHEMA
from orchestrator.printing import printed
from orchestrator.ranking_output import state_of
from orchestrator.ranking_stream import DamagedError, RankingStream
from orchestrator.run_state import FINISHED
from orchestrator.store import RunStore
from orchestrator.tables import in_order
from orchestrator.terminal import markdown, show

LARGE = 1_000_000
"""Rows of facts and samples from which on a run is ranked in batches."""
SHOWN = 2_500
"""Rows of such a ranking that are shown, in whole Families."""


@dataclass(slots=True)
class _Head:
    """What is kept of a ranking that passes by."""

    table: pa.Table = field(default_factory=RANKING_SCHEMA.empty_table)
    rows: int = 0
    counts: Counter[str] = field(default_factory=Counter)

    def watched(self, stream: RankingStream) -> Iterator[pa.Table]:
        """Yield the batches, and keep the first Families."""
        for batch in stream.batches():
            if self.table.num_rows == self.rows < SHOWN:
                self.table = pa.concat_tables([self.table, _whole_families(batch, SHOWN - self.rows)])
            self.rows += batch.num_rows
            for each in pc.value_counts(batch["status"]).to_pylist():
                self.counts[each["values"]] += each["counts"]
            yield batch


def is_large(stream: RankingStream) -> bool:
    """Whether a run is ranked in batches."""
    return stream.rows > LARGE


@dataclass(slots=True)
class LargeRanking:
    """A ranking that no memory holds: its rows pass by once, to be written, or else to be counted and shown."""

    store: RunStore
    stream: RankingStream
    top: int
    large: ClassVar[bool] = True
    _head: _Head | None = None
    _written: bool = False

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each Shard that could not be read."""
        self._passed()
        return self.stream.problems

    @property
    def statuses(self) -> frozenset[str]:
        """How the run's Candidates have ended."""
        return frozenset(self._passed().counts)

    def write(self) -> None:
        """Write ``ranking.parquet`` in batches, and ``ranking.md``; raise StoreError where the disk refuses."""

        def written(head: _Head) -> None:
            self.store.write_ranking_batches(head.watched(self.stream), lambda: self._markdown(head))

        self._head = self._through(written)
        self._written = True

    def printed(self, problems: Sequence[str] = ()) -> bool:
        """Show the first Families; tell whether that could be written. problems: what there is to say beside these."""
        head = self._passed()
        said, counts = (*self.stream.problems, *problems), in_order(head.counts)
        state = state_of(self.store)
        # What a run in another state was left with may lack the latest.
        kept = self._written or (state == FINISHED and self.store.ranking_path.exists())
        notes = self._notes(head, kept=kept)
        path, table = self.store.path, head.table
        return printed(lambda: show(path, table, self.top, said, notes=notes, state=state, counts=counts))

    def _passed(self) -> _Head:
        """What is known when all has passed by."""
        if self._head is None:
            self._head = self._through(lambda head: deque(head.watched(self.stream), maxlen=0))
        return self._head

    def _through(self, use: Callable[[_Head], object]) -> _Head:
        """Let all pass by, to be used; anew without a file that turns out to be damaged, which is set aside then."""
        while True:
            head = _Head()
            try:
                use(head)
            except DamagedError:
                continue
            return head

    def _markdown(self, head: _Head) -> str:
        notes, counts = self._notes(head, kept=True), in_order(head.counts)
        path, problems = self.store.path, self.stream.problems
        return markdown(path, head.table, self.top, notes=notes, problems=problems, counts=counts)

    def _notes(self, head: _Head, *, kept: bool) -> list[str]:
        """Say what is not shown. kept: whether the file has all rows."""
        notes, shown = list(self.stream.notes), head.table.num_rows
        if shown < head.rows:
            where = "all are in ranking.parquet" if kept else "`rank` writes all to ranking.parquet"
            notes.append(f"only the first {shown:,} of {head.rows:,} candidates are shown: {where}")
        if self.stream.devices > 1:
            notes.append(f"the {self.stream.devices} devices are not set beside one another: the run is too large")
        return notes


def _whole_families(batch: pa.Table, most: int) -> pa.Table:
    """The first Families of a batch, of so many rows at most."""
    if batch.num_rows <= most:
        return batch
    names = ("gpu", "protocol", "protocol_version", "l2", "power", "family_id")
    last = batch.slice(most, 1).to_pylist()[0]
    same = [pc.equal(batch[name].slice(0, most + 1), last[name]) for name in names]
    whole = most
    while whole and all(each[whole - 1].as_py() for each in same):
        whole -= 1
    return batch.slice(0, whole)
