"""The ranking of a run that is larger than memory: the same rows in the same order as ``ranking.rank``, in batches.

A survey of all files says where each Family's rows lie. Families are then ranked some thousands at a time: regular ones
all at once (``orchestrator.regular``), each other one as ``rank`` does it.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orchestrator.canary import PREFIX
from orchestrator.columns import RANKING_SCHEMA, SHARD_SCHEMA
from orchestrator.ranking import FACTS_COLUMNS, FAMILY, Doubts, Row, current, rank_family
from orchestrator.reading import UNREADABLE, ShardFile, ShardReader
from orchestrator.regular import ranked
from orchestrator.shape_code import CHOSEN, SHAPE
from orchestrator.survey import SHARD, Survey, checked, codes, named, nothing, require_sound, rows_of, shards, survey
from orchestrator.suspects import notes, readings
from orchestrator.timed import Families, Ints, ranges, timed
from orchestrator.verdict import judge
from orchestrator.visits import COLUMNS as SAMPLE_COLUMNS
from orchestrator.visits import ShardKey, Visits, shard_key, visits_by_shard

BATCH = 400_000
"""Rows of facts and samples after which a batch of Families ends."""
FILES_KEPT = 2
"""Files whose rows are kept: the next batch mostly needs the same."""

_READ = {
    "facts": list(dict.fromkeys((*FACTS_COLUMNS, *checked("facts")))),
    "sample": list(dict.fromkeys((*SAMPLE_COLUMNS, *checked("sample")))),
}
_SURVEYED = tuple(dict.fromkeys((*SHARD, *FAMILY, "axis", "canary", "first_round")))


@dataclass(slots=True)
class RankingStream:
    """A ranking on its way. problems, notes: as ``Ranking`` has them; known once ``batches`` has begun.

    devices: how many measured something.
    """

    reader: ShardReader
    include_suspects: bool = False
    notes: tuple[str, ...] = ()
    devices: int = 0
    _files: list[ShardFile] = field(default_factory=list)
    _rows: OrderedDict[tuple[int, str], pa.Table] = field(default_factory=OrderedDict)

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each file that could not be read."""
        return self.reader.problems

    @property
    def rows(self) -> int:
        """How many rows the run has, facts and samples."""
        return sum(file.fragment.metadata.num_rows for file in self.reader.files())

    def batches(self) -> Iterator[pa.Table]:
        """Yield the ranking (RANKING_SCHEMA), Families together and in order.

        Raises:
            DamagedError: a file turned out to be damaged; it is named, and left out if ``batches`` is begun anew.
        """
        self._rows.clear()
        self._files = self.reader.files()
        place = self._place()
        for first, end in _batches(place.weight):
            yield self._batch(place, first, end)

    def _place(self) -> "_Places":
        found = survey_files(self.reader, self._files)
        facts = found.facts
        self.devices = len(pc.unique(facts["uuid"]))
        shard, sampled = shards(facts, found.samples)
        canary = np.asarray(pc.starts_with(facts["bundle_id"], f"{PREFIX}-").to_numpy(zero_copy_only=False), dtype=bool)
        doubts = self._doubts(found, shard, sampled, canary)
        own = facts.filter(pa.array(~canary))
        shard = shard[~canary]
        has_samples = np.isin(shard, sampled)
        suspect = np.zeros(len(shard), dtype=bool)
        if doubts.verdict.bad:
            pairs = zip(own["uuid"].to_pylist(), own["canary"].to_pylist(), strict=True)
            suspect = np.array([doubts.verdict.suspect(uuid, number) for uuid, number in pairs], dtype=bool)
        good = has_samples & (~suspect | self.include_suspects)
        latest = _latest(own, good, has_samples)
        own, shard, suspect, good = own.filter(pa.array(latest)), shard[latest], suspect[latest], good[latest]
        keys = frozenset(_keys(own, suspect)) if suspect.any() else frozenset[ShardKey]()
        if doubts.verdict.reasons:
            ranked_keys = frozenset(_keys(own, good))
            self.notes = notes(own.to_pylist(), keys, ranked_keys, doubts.verdict)
        doubts = Doubts(verdict=doubts.verdict, suspects=frozenset() if self.include_suspects else keys)
        return _places(own, found.samples, shard, sampled, good & (~suspect | self.include_suspects), doubts)

    def _doubts(self, found: Survey, shard: Ints, sampled: Ints, canary: NDArray[np.bool_]) -> Doubts:
        """Judge the devices by their canaries."""
        if not canary.any():
            return Doubts(verdict=judge(()), suspects=frozenset())
        facts = [row for n in np.flatnonzero(canary) for row in self._pylist("facts", found.facts, [int(n)])]
        own = np.flatnonzero(np.isin(sampled, shard[canary]))
        samples = self._stretches("sample", found.samples, own)[0]
        return Doubts(verdict=judge(readings(facts, _visits(samples, facts))), suspects=frozenset())

    def _batch(self, place: "_Places", first: int, end: int) -> pa.Table:
        """Rank the Families ``first`` to ``end``."""
        entries = np.arange(place.begins[first], place.begins[end])
        family = place.family[entries]
        alone = np.diff(place.begins)[family] == 1
        simple = alone & place.good[entries] & (place.stretch_count[entries] == 1)
        tables, numbers, odd = [], [], family[~simple]
        if simple.any():
            chosen = entries[simple]
            facts, start, rows = self._stretches("facts", place.facts, chosen)
            stretch, which = np.unique(place.stretch[chosen], return_inverse=True)
            samples, sample_start, sample_rows = self._stretches("sample", place.samples, stretch)
            found = timed(
                Families(
                    facts=facts,
                    samples=samples,
                    number=family[simple],
                    start=start,
                    rows=rows,
                    sample_start=sample_start[which],
                    sample_rows=sample_rows[which],
                )
            )
            for form in np.unique(found.form[found.form >= 0]).tolist():
                table, number = ranked(found, form)
                tables.append(table)
                numbers.append(number)
            odd = np.concatenate([odd, family[simple][found.form < 0]])
        for number in np.unique(odd).tolist():
            rows_ = self._one(place, number)
            tables.append(pa.Table.from_pylist(rows_, schema=RANKING_SCHEMA))
            numbers.append(np.full(len(rows_), number))
        whole = pa.concat_tables(tables)
        if len(tables) == 1:
            return whole
        return whole.take(pa.array(np.argsort(np.concatenate(numbers), kind="stable"))).combine_chunks()

    def _one(self, place: "_Places", number: int) -> list[Row]:
        """Rank one Family row by row."""
        entries = np.arange(place.begins[number], place.begins[number + 1])
        facts = [current(row) for row in self._pylist("facts", place.facts, entries.tolist())]
        own = np.unique(place.by_shard[ranges(place.left[entries], place.stretch_count[entries])])
        visits = _visits(self._stretches("sample", place.samples, own)[0], facts) if len(own) else {}
        good = {key: seen for key, seen in visits.items() if key not in place.doubts.suspects}
        return rank_family(facts, good, place.doubts)

    def _pylist(self, record: str, where: pa.Table, entries: Sequence[int]) -> list[Row]:
        """Rows as dicts, in the order of ``entries``."""
        table, start, rows = self._stretches(record, where, np.array(entries, dtype=np.int64))
        found: list[Row] = table.take(pa.array(ranges(start, rows))).to_pylist()
        return found

    def _stretches(self, record: str, where: pa.Table, entries: Ints) -> tuple[pa.Table, Ints, Ints]:
        """Read stretches of rows: a table with all of them, where each begins in it, and how many rows it has."""
        file, start, rows = (codes(where[name])[entries] for name in ("file", "start", "rows"))
        begins, tables, before = np.zeros(len(entries), dtype=np.int64), [], 0
        for number in np.unique(file).tolist():
            own = np.flatnonzero(file == number)
            own = own[np.argsort(start[own], kind="stable")]
            index = ranges(start[own], rows[own])
            whole = self._of_file(number, record)
            together = len(index) and index[-1] - index[0] + 1 == len(index) and (np.diff(start[own]) >= 0).all()
            tables.append(whole.slice(index[0], len(index)) if together else whole.take(pa.array(index)))
            begins[own] = before + np.cumsum(rows[own]) - rows[own]
            before += len(index)
        if not tables:
            return self._of_file(0, record).slice(0, 0), begins, rows
        return pa.concat_tables(tables).unify_dictionaries(), begins, rows

    def _of_file(self, number: int, record: str) -> pa.Table:
        key = (number, record)
        if key in self._rows:
            self._rows.move_to_end(key)
            return self._rows[key]
        file = self._files[number]
        try:
            table = rows_of(file, record, _READ[record])
            require_sound(table, record)
        except UNREADABLE as error:
            self.reader.set_aside(file.path, str(error))
            raise DamagedError(file.path) from error
        self._rows[key] = table
        while len(self._rows) > 2 * FILES_KEPT:
            self._rows.popitem(last=False)
        return table


class DamagedError(Exception):
    """A file cannot be read; the reader has set it aside."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Places:
    """facts: a row for each stretch of a Family's rows, Families in order; ``begins[i]`` is the first of the i-th.

    by_shard: rows of ``samples``, those of a Shard together: of the Shard of each row of ``facts`` there are
    ``stretch_count``, from ``left`` on, the first of which is ``stretch``.
    """

    facts: pa.Table
    samples: pa.Table
    good: NDArray[np.bool_]
    family: Ints
    begins: Ints
    by_shard: Ints
    left: Ints
    stretch: Ints
    stretch_count: Ints
    weight: Ints
    doubts: Doubts


def _places(
    own: pa.Table, samples: pa.Table, shard: Ints, sampled: Ints, good: NDArray[np.bool_], doubts: Doubts
) -> _Places:
    keys = [_sort_key(own, name) for name in FAMILY]
    table = pa.table([*keys, pa.array(np.arange(own.num_rows))], names=[*FAMILY, "row"])
    order = pc.sort_indices(table, [(name, "ascending") for name in table.column_names])
    ordered = table.take(order)
    changes = np.zeros(own.num_rows, dtype=bool)
    changes[:1] = True
    for name in FAMILY:
        values = codes(ordered[name])
        changes[1:] |= values[1:] != values[:-1]
    family = np.cumsum(changes) - 1
    begins = np.append(np.flatnonzero(changes), own.num_rows)
    row = order.to_numpy()
    shard, good, own = shard[row], good[row], own.take(order)
    by_shard = np.argsort(sampled, kind="stable")
    left = np.searchsorted(sampled[by_shard], shard)
    count = np.searchsorted(sampled[by_shard], shard, side="right") - left
    stretch = by_shard[np.minimum(left, max(len(by_shard) - 1, 0))] if len(by_shard) else np.zeros_like(left)
    sample_rows = codes(samples["rows"])
    weight = codes(own["rows"]) + (np.where(count > 0, sample_rows[stretch], 0) if len(by_shard) else 0)
    per_family = np.add.reduceat(weight, begins[:-1]) if own.num_rows else np.zeros(0, dtype=np.int64)
    return _Places(
        facts=own,
        samples=samples,
        good=good,
        family=family,
        begins=begins,
        by_shard=by_shard,
        left=left,
        stretch=stretch,
        stretch_count=count,
        weight=per_family,
        doubts=doubts,
    )


def _sort_key(own: pa.Table, name: str) -> pa.ChunkedArray:
    """As ``ranking`` sorts Families: what is chosen differs within one, and so does not count."""
    column = own[name]
    if pa.types.is_string(column.type):
        return column
    axes = pa.array([name, *([SHAPE] if name in CHOSEN else [])])
    return pc.if_else(pc.is_in(own["axis"].cast(pa.string()), axes), -1, pc.fill_null(column, -1))


def survey_files(reader: ShardReader, files: Sequence[ShardFile]) -> Survey:
    """Survey files; one that is damaged is set aside, and DamagedError raised."""
    found = []
    for number, file in enumerate(files):
        try:
            found.append(survey(number, file, _SURVEYED))
        except UNREADABLE as error:
            reader.set_aside(file.path, str(error))
            raise DamagedError(file.path) from error
    if not found:
        return Survey(facts=nothing(_SURVEYED), samples=nothing(SHARD))
    return Survey(
        facts=pa.concat_tables([each.facts for each in found]),
        samples=pa.concat_tables([each.samples for each in found]),
    )


def _batches(weight: Ints) -> Iterator[tuple[int, int]]:
    """Stretches of Families of about BATCH rows."""
    first, total = 0, np.cumsum(weight)
    while first < len(weight):
        before = total[first - 1] if first else 0
        end = max(int(np.searchsorted(total, before + BATCH, side="right")), first + 1)
        yield first, end
        first = end


def _latest(own: pa.Table, good: NDArray[np.bool_], sampled: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The latest attempt, per device and Bundle; one without samples, or suspect, never hides a better one."""
    bundle = codes(named(own, SHARD[:2]))
    attempt = codes(own["attempt"])
    score = (good.astype(np.int64) << 41) + (sampled.astype(np.int64) << 40) + attempt
    order = np.lexsort((score, bundle))
    last = np.append(bundle[order][1:] != bundle[order][:-1], True) if len(order) else np.zeros(0, dtype=bool)
    best = np.zeros(int(bundle.max(initial=-1)) + 1, dtype=np.int64)
    best[bundle[order][last]] = attempt[order][last]
    return np.asarray(attempt == best[bundle])


def _keys(own: pa.Table, chosen: NDArray[np.bool_]) -> Iterator[ShardKey]:
    for row in own.select(SHARD).filter(pa.array(chosen)).to_pylist():
        yield shard_key(row)


def _visits(samples: pa.Table, facts: Sequence[Row]) -> dict[ShardKey, Visits]:
    first = {shard_key(row): row["first_round"] or 0 for row in facts}
    plain = samples.select(SAMPLE_COLUMNS).cast(pa.schema([SHARD_SCHEMA.field(name) for name in SAMPLE_COLUMNS]))
    return {key: seen.since(first[key]) for key, seen in visits_by_shard(plain).items() if key in first}
