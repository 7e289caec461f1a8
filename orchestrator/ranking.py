"""Shards merged into one order per GPU model and Family, with tie groups and intervals."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.at_once import ranked_at_once
from orchestrator.canary import Reading
from orchestrator.columns import RANKING_SCHEMA
from orchestrator.contest import Contest
from orchestrator.fleet import Fleet, fleets
from orchestrator.reading import ShardReader
from orchestrator.shape import DIMENSIONS
from orchestrator.shape_code import CHOSEN, SHAPE
from orchestrator.store import RunStore
from orchestrator.suspects import held_back, notes, readings, split, suspect_shards, without
from orchestrator.timed import Ints
from orchestrator.verdict import Verdict, judge
from orchestrator.visits import COLUMNS as SAMPLE_COLUMNS
from orchestrator.visits import ShardKey, Visits, shard_key, visits_by_shard
from tasks.gemm import largest_power_of_two

Row = dict[str, Any]

REGIME = ("gpu", "protocol", "protocol_version", "l2", "power")
"""What rankings never mix: each combination found in a run is ranked on its own."""

AT_ONCE = 8
"""Families from which on the regular ones are ranked at once."""

FAMILY = (*REGIME, "role", "dtype", "h", "tp", "batch", "seq", "family_id")
_TELEMETRY = (
    "sm_clock_mean_mhz",
    "sm_clock_min_mhz",
    "temperature_max_c",
    "power_mean_w",
    "power_limited",
    "throttled",
)
_POINT = (
    *("gpu", "family_id", "role", "tp", "batch", "seq", "dtype", "passes", *DIMENSIONS),
    *("axis", "value", "baseline", "params", "mlp_params", "local_dim"),
)

_SHARD = ("uuid", "host", "bundle_id", "attempt", "canary")
_MEASURING = ("first_round", "rounds", "tie_pct", "confidence", "looks", "stop_reason")
_PART = ("part", "gemm_id", "kind", "b", "m", "n", "k", "flops", "status", "message", "launch", "energy_j")

FACTS_COLUMNS = tuple(dict.fromkeys((*FAMILY, *_POINT, *_TELEMETRY, *_SHARD, *_MEASURING, *_PART)))
"""What of the facts rows a ranking is made from: a third of what there is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranking:
    """The merged result (RANKING_SCHEMA), and one line for each Shard that could not be read.

    notes: one line for each suspect device, and what of it was left out. fleets: the devices of each model beside one
    another, where there are several. readings: of their canaries. visits: the samples of the Shards that are ranked.
    """

    table: pa.Table
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fleets: tuple[Fleet, ...] = ()
    readings: tuple[Reading, ...] = ()
    visits: Mapping[ShardKey, Visits] = field(default_factory=dict, repr=False, compare=False)


def rank(store: RunStore, *, include_suspects: bool = False, reader: ShardReader | None = None) -> Ranking:
    """Rank every Family of a run from its Shards alone; the same Shards give the same rows in the same order.

    What a device measured while its canaries were bad counts only with ``include_suspects``. reader: the run's, where
    it is open already.
    """
    sweep = _sweep(reader or store.reader(), include_suspects=include_suspects)
    doubts, suspects = sweep.doubts, sweep.suspects
    return Ranking(
        table=_table(sweep),
        problems=sweep.problems,
        notes=notes(sweep.facts, suspects, sweep.good, doubts.verdict),
        fleets=fleets(sweep.facts, sweep.visits, sweep.readings, doubts.verdict),
        readings=tuple(sweep.readings),
        visits={key: sweep.good[key] for key in {shard_key(row) for row in sweep.facts} & sweep.good.keys()},
    )


def _table(sweep: "_Sweep") -> pa.Table:
    families = list(_families(sweep.facts))
    tables, owners = _at_once(sweep, families) if len(families) >= AT_ONCE else ([], [])
    done = {int(number) for each in owners for number in np.unique(each)}
    others = {
        number: rank_family([sweep.facts[i] for i in family], sweep.good, sweep.doubts)
        for number, family in enumerate(families)
        if number not in done
    }
    tables.append(pa.Table.from_pylist([row for rows in others.values() for row in rows], schema=RANKING_SCHEMA))
    owners.append(np.repeat(list(others), [len(rows) for rows in others.values()]).astype(np.int64))
    if len(tables) == 1:
        return tables[0]
    order = np.argsort(np.concatenate(owners), kind="stable")
    return pa.concat_tables(tables).take(pa.array(order)).combine_chunks()


def _at_once(sweep: "_Sweep", families: Sequence[Sequence[int]]) -> tuple[list[pa.Table], list[Ints]]:
    """Rank those of one Shard that nothing is held against, as far as they are regular."""
    keys = [{shard_key(sweep.facts[i]) for i in family} for family in families]
    known = sweep.good.keys() - sweep.doubts.suspects
    simple = {
        number: [sweep.places[i] for i in family]
        for number, family in enumerate(families)
        if len(keys[number]) == 1 and keys[number] <= known
    }
    return ranked_at_once(sweep.table, sweep.samples, simple) if simple else ([], [])


def contests(store: RunStore) -> Iterator[tuple[list[list[Row]], Contest]]:
    """Yield each Family as ``rank`` compares it: the facts rows of each Candidate by value, and their Contest."""
    sweep = _sweep(store.reader(), include_suspects=False)
    for family in _families(sweep.facts):
        rows = [sweep.facts[i] for i in family]
        candidates = _candidates(without(rows, sweep.doubts.suspects, sweep.good))
        yield candidates, Contest(candidates, sweep.good)


def _sweep(reader: ShardReader, *, include_suspects: bool) -> "_Sweep":
    """Read a run, judge its devices, and keep what is ranked."""
    table = reader.facts(FACTS_COLUMNS).table
    facts = [current(row) for row in table.to_pylist()]
    places = {id(row): place for place, row in enumerate(facts)}  # what is kept below are these very rows
    first = {shard_key(row): row["first_round"] or 0 for row in facts}
    samples = reader.samples(SAMPLE_COLUMNS).table
    found = visits_by_shard(samples)
    visits = {key: seen.since(first[key]) for key, seen in found.items() if key in first}
    canaries, facts = split(facts)
    read = readings(canaries, visits)
    verdict = judge(read)
    suspects = suspect_shards(facts, verdict)
    good = {key: seen for key, seen in visits.items() if include_suspects or key not in suspects}
    latest = _latest(facts, visits, good)
    return _Sweep(
        facts=latest,
        places=[places[id(row)] for row in latest],
        table=table,
        samples=samples,
        visits=visits,
        good=good,
        readings=read,
        suspects=suspects,
        doubts=Doubts(verdict=verdict, suspects=frozenset() if include_suspects else suspects),
        problems=reader.problems,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sweep:
    """A run's facts rows and visits; good: the visits that are ranked. suspects: Shards that its canaries doubt.

    places: where in ``table`` each of the facts is; table, samples: all rows as they were read.
    """

    facts: list[Row]
    places: list[int]
    table: pa.Table
    samples: pa.Table
    visits: Mapping[ShardKey, Visits]
    good: Mapping[ShardKey, Visits]
    readings: list[Reading]
    suspects: frozenset[ShardKey]
    doubts: "Doubts"
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Doubts:
    """Which Shards are left out, and the verdict that says why."""

    verdict: Verdict
    suspects: frozenset[ShardKey]


def _latest(facts: Sequence[Row], visits: Mapping[ShardKey, Visits], good: Mapping[ShardKey, Visits]) -> list[Row]:
    """Keep, per device and Bundle, the latest attempt; one without samples, or suspect, never hides a better one."""
    latest: dict[tuple[str, str], tuple[bool, bool, int]] = {}
    for key in {shard_key(row) for row in facts}:
        place = (key.uuid, key.bundle_id)
        latest[place] = max(latest.get(place, (False, False, -1)), (key in good, key in visits, key.attempt))
    return [row for row in facts if latest[row["uuid"], row["bundle_id"]][-1] == row["attempt"]]


def current(row: Row) -> Row:
    """A facts row with what version 1 did not write: there d_ff was chosen, in forward passes."""
    if row["axis"] is not None:
        return row
    chosen = {"axis": "d_ff", "value": row["d_ff"], "passes": "fwd", "params": row["mlp_params"]}
    return {**row, **chosen, "local_dim": row["d_ff"] // row["tp"]}


def _families(facts: Sequence[Row]) -> Iterator[list[int]]:
    """Yield the indices of each Family's rows, Families in order."""

    def family(place: int) -> tuple[Any, ...]:
        # What is chosen differs within the Family: of h, by which Families are sorted, only a fixed one counts.
        row = facts[place]
        chosen = (row["axis"], *(CHOSEN if row["axis"] == SHAPE else ()))
        return tuple(-1 if row[name] is None or name in chosen else row[name] for name in FAMILY)

    for _, places in itertools.groupby(sorted(range(len(facts)), key=family), key=family):
        yield list(places)


def rank_family(rows: Sequence[Row], visits: Mapping[ShardKey, Visits], doubts: Doubts) -> list[Row]:
    """Rank the Candidates of one Family; those without a complete measurement come last, by value."""
    rows = without(rows, doubts.suspects, visits)
    candidates = _candidates(rows)
    contest = Contest(candidates, visits)
    shared = _shared(_measured(rows, visits), resolved=contest.resolved)
    ranked = [
        {**_facts(c), **contest.result(i), **held_back(c, doubts.suspects, doubts.verdict), **shared}
        for i, c in enumerate(candidates)
    ]
    return sorted(ranked, key=_order)


def _candidates(rows: Sequence[Row]) -> list[list[Row]]:
    order = sorted(rows, key=lambda row: (row["value"], shard_key(row)))  # a stable sort: parts keep their order
    return [list(group) for _, group in itertools.groupby(order, key=itemgetter("value"))]


def _order(row: Row) -> tuple[Any, ...]:
    """Tie groups first; inside a tie fewer parameters, then the larger power of two of the local dimension."""
    unmeasured = row["rank"] is None
    return (unmeasured, row["tie_group"] or 0, row["params"] or 0, -row["align_local"], row["value"])


def _facts(rows: Sequence[Row]) -> Row:
    """Collect what is known of one Candidate without its samples."""
    first = rows[0]
    return {
        **{name: first[name] for name in _POINT},
        "align_local": largest_power_of_two(first["local_dim"] or first["value"]),
    }


def _measured(rows: Sequence[Row], visits: Mapping[ShardKey, Visits]) -> Sequence[Row]:
    """Keep the rows of Shards with samples; all of them where no Shard has any."""
    return [row for row in rows if shard_key(row) in visits] or rows


def _shared(rows: Sequence[Row], *, resolved: bool) -> Row:
    """Collect what holds for the whole Family: its regime, and what its devices did meanwhile."""
    shards = list({shard_key(row): row for row in sorted(rows, key=shard_key)}.values())

    def known(name: str) -> list[float]:
        return [row[name] for row in shards if row[name] is not None]

    def over(name: str, merge: Callable[[list[float]], Any]) -> float | None:
        return float(merge(known(name))) if known(name) else None

    return {
        **{name: rows[0][name] for name in REGIME},
        "sm_clock_mean_mhz": over("sm_clock_mean_mhz", np.mean),
        "sm_clock_min_mhz": over("sm_clock_min_mhz", min),
        "temperature_max_c": over("temperature_max_c", max),
        "power_mean_w": over("power_mean_w", np.mean),
        "power_limited": any(row["power_limited"] for row in shards),
        "throttled": any(row["throttled"] for row in shards),
        "resolved": resolved,
        "stop_reason": _joined(row["stop_reason"] for row in shards),
        "devices": sorted({row["uuid"] for row in shards}),
    }


def _joined(values: Iterable[str | None]) -> str:
    return ", ".join(sorted({value for value in values if value}))
