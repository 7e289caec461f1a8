"""The ranking of a large run: written in batches, and the first Families of it shown."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.columns import RANKING_SCHEMA
from orchestrator.ranking_output import state_of
from orchestrator.ranking_stream import DamagedError, RankingStream
from orchestrator.spool import Origin
from orchestrator.store import RunStore
from orchestrator.tables import in_order
from orchestrator.terminal import markdown, show
from orchestrator.transfer import upload

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


def rank_large(store: RunStore, stream: RankingStream, top: int) -> int:
    """Rank a large run, write it, and show its first Families; return 1 where a file could not be read.

    Raises:
        StoreError: the disk refuses: a ranking that is larger than memory is nowhere else.
    """
    while True:
        head = _Head()

        def notes(head: _Head = head) -> list[str]:
            return [*stream.notes, *_left_out(stream, head)]

        def text(head: _Head = head) -> str:
            return markdown(store.path, head.table, top, notes=notes(head), counts=in_order(head.counts))

        try:
            store.write_ranking_batches(head.watched(stream), text)
        except DamagedError:
            continue  # it is set aside now: what was ranked with it is not
        break
    counts = in_order(head.counts)
    show(store.path, head.table, top, stream.problems, notes=notes(), state=state_of(store), counts=counts)
    if Origin.of(store.path) is not None:
        upload(store.path)
    return int(bool(stream.problems))


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


def _left_out(stream: RankingStream, head: _Head) -> Iterator[str]:
    if head.table.num_rows < head.rows:
        yield (
            f"only the first {head.table.num_rows:,} of {head.rows:,} candidates are shown: all are in ranking.parquet"
        )
    if stream.devices > 1:
        yield f"the {stream.devices} devices are not set beside one another: the run is too large"
