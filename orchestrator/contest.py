"""One Family's Candidates against each other: what each costs, in which order, and how sure that is."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from orchestrator.visits import Seconds, ShardKey, Visits, shard_key
from tasks.settings import BASELINES
from tasks.statistics import compare

Row = dict[str, Any]

PERCENTILES = (5, 25, 50, 75, 95)
MEDIAN = PERCENTILES.index(50)

_GEMM = ("part", "gemm_id", "kind", "b", "m", "n", "k")


class Contest:
    """The comparison of one Family's Candidates, each given as its facts rows (one per part and Shard).

    A Candidate's cost in a round is the sum of its parts' seconds in that round; a round that lacks a part does not
    count for it. Rounds of several devices stand under one another: each is compared only within itself, and who left
    the rounds is found device by device. What is absolute (seconds, percentiles, cv) is the median over the devices of
    what it is on each, however many rounds each made.

    Of what was measured one shape after another (protocol ``sequential``) the calls of two Candidates have no moment in
    common: each Candidate counts once a device, by the mean of its calls, which are only its spread. There, and by
    protocol ``seed``, no number of devices makes an interval.
    """

    def __init__(self, candidates: Sequence[Sequence[Row]], visits: Mapping[ShardKey, Visits]) -> None:
        """Collect every Candidate's samples and compare those that have any."""
        self._rows = candidates
        self._parts = [_distinct_parts(rows) for rows in candidates]
        keys = sorted({shard_key(row) for rows in candidates for row in rows} & visits.keys())
        calls, apart = visits, candidates[0][0]["protocol"] == "sequential"
        if apart:
            visits = {key: visits[key].averaged() for key in keys}
        self._seconds = [_seconds(rows, self._parts[i], keys, visits) for i, rows in enumerate(candidates)]
        totals = np.column_stack([seconds.sum(axis=1) for seconds in self._seconds])
        self._rounds = np.isfinite(totals).sum(axis=0)
        self._flops = [sum(row["flops"] for row in parts) for parts in self._parts]
        first = candidates[0][0]
        log_cost = np.log(totals / np.array(self._flops))
        lengths = [len(visits[key].seconds) for key in keys]
        blocks = np.repeat(np.arange(len(keys)), lengths)
        races = {shard_key(row): row["rounds"] for rows in candidates for row in rows}
        racing = [np.arange(-length, 0) >= -races[key] for key, length in zip(keys, lengths, strict=True)]
        comparison = compare(
            log_cost,
            first["tie_pct"],
            first["confidence"],
            first["looks"],
            blocks,
            np.concatenate([np.empty(0, dtype=bool), *racing]),
        )
        # Devices are no rounds: what the order of the shapes has made of their figures, it has made on each of them.
        self._comparison = comparison = replace(comparison, apart=first["protocol"] in BASELINES)
        # What one that stayed takes is what it took in the rounds by which it is compared.
        undisturbed = [
            np.where(comparison.disturbed[:, None], np.nan, seconds) if stayed else seconds
            for seconds, stayed in zip(self._seconds, comparison.stayed, strict=True)
        ]
        # What one that left little behind takes is what it would have taken in these rounds, as all others did.
        steady = np.exp(comparison.steadied)[:, None]
        undisturbed = [
            seconds * steady if near else seconds for seconds, near in zip(undisturbed, comparison.near, strict=True)
        ]
        self._every_total, self._ends = totals, np.cumsum(lengths)[:-1]
        totals = np.column_stack([seconds.sum(axis=1) for seconds in undisturbed])
        self._totals = totals
        self._percentiles = _over_devices(totals, lengths, lambda rows: percentiles(rows, PERCENTILES))
        self._cv = _over_devices(totals, lengths, variation)
        self._samples = [int(np.isfinite(seconds).sum()) for seconds in self._seconds]
        if apart:
            self._spread(keys, calls)
        # All parts of all Candidates at once: one call per column would take longer than all the rest.
        parts = np.concatenate(undisturbed, axis=1)
        self._medians = _over_devices(parts, lengths, lambda rows: percentiles(rows, [50])[0])
        self._first_part = np.cumsum([0, *map(len, self._parts)])
        self._groups = [group for group in comparison.groups if group is not None]
        self._over_best = comparison.against(comparison.order[0]) if comparison.order else None
        baseline = next((i for i in comparison.order if candidates[i][0]["baseline"]), None)
        self._over_baseline = None if baseline is None else comparison.against(baseline)

    def _spread(self, keys: Sequence[ShardKey], calls: Mapping[ShardKey, Visits]) -> None:
        """Take the spread from the calls; the figure itself stays what it is."""
        each = [_seconds(rows, parts, keys, calls) for rows, parts in zip(self._rows, self._parts, strict=True)]
        totals = np.column_stack([seconds.sum(axis=1) for seconds in each])
        lengths = [len(calls[key].seconds) for key in keys]
        figure = self._percentiles[MEDIAN]
        self._percentiles = _over_devices(totals, lengths, lambda rows: percentiles(rows, PERCENTILES))
        self._percentiles[MEDIAN] = figure
        self._cv = _over_devices(totals, lengths, variation)
        self._samples = [int(np.isfinite(seconds).sum()) for seconds in each]

    @property
    def resolved(self) -> bool:
        """Whether every pair is separated or tied."""
        return bool(self._groups) and bool(self._comparison.resolved)

    @property
    def stayed(self) -> list[bool]:
        """Which Candidates were measured in every round."""
        return [bool(stayed) for stayed in self._comparison.stayed]

    def totals(self, candidates: Sequence[int]) -> list[Seconds]:
        """Seconds of one call of every part, ``[rounds, candidates]`` of each device; NaN where it does not count."""
        return np.split(self._totals[:, list(candidates)], self._ends)

    def together(self, candidates: Sequence[int]) -> list[Seconds]:
        """Seconds of one call of every part, ``[rounds, candidates]`` of each device, before any of them had left.

        Of each device those rounds in which all of these Candidates were measured that it measured at all.
        """
        devices = np.split(self._every_total[:, list(candidates)], self._ends)
        return [rows[np.isfinite(rows[:, np.isfinite(rows).any(axis=0)]).all(axis=1)] for rows in devices]

    def result(self, candidate: int) -> Row:
        """Return the ranking's columns that come from samples; null ones for a Candidate that has none."""
        rows, group = self._rows[candidate], self._comparison.groups[candidate]
        if group is None:
            failed = [row for row in rows if row["status"] != "ok"]
            status = failed[-1]["status"] if failed else "skipped"
            return {"rank": None, "tie_group": None, "status": status, "message": _message(failed), "parts": []}
        return {
            "rank": 1 + sum(other < group for other in self._groups),
            "tie_group": group,
            **_ratio("relative", candidate, self._over_best),
            **_ratio("speedup", candidate, self._over_baseline, inverse=True),
            **self._cost(candidate),
            "parts": self._part_costs(candidate),
            "energy_j": _energy(self._parts[candidate]),
            "launch": ", ".join(sorted({row["launch"] for row in rows if row["launch"]})),
            "status": "ok",
            "message": "",
        }

    def _cost(self, candidate: int) -> Row:
        p5, p25, median, p75, p95 = self._percentiles[:, candidate].tolist()
        cv = float(self._cv[candidate])
        return {
            "seconds": median,
            "tflops": self._flops[candidate] / median / 1e12,
            "p5_s": p5,
            "p25_s": p25,
            "p75_s": p75,
            "p95_s": p95,
            "samples": self._samples[candidate],
            "rounds": int(self._rounds[candidate]),
            "cv": cv if math.isfinite(cv) else None,
        }

    def _part_costs(self, candidate: int) -> list[Row]:
        first, end = self._first_part[candidate : candidate + 2]
        medians = self._medians[first:end].tolist()
        return [
            {
                **{name: row[name] for name in _GEMM},
                "seconds": seconds,
                "tflops": row["flops"] / seconds / 1e12,
                "share": seconds / sum(medians),
            }
            for row, seconds in zip(self._parts[candidate], medians, strict=True)
        ]


def percentiles(values: Seconds, percents: Sequence[float]) -> Seconds:
    """``[percents, columns]`` of ``values[rounds, columns]`` over the finite rounds of each column; NaN with none.

    Linear between the order statistics, as ``numpy.percentile``; numpy's own that skips NaN goes column by column.
    """
    ordered = np.sort(values, axis=0)  # NaN last
    last = np.isfinite(values).sum(axis=0) - 1
    if len(values) == 0:
        return np.full((len(percents), values.shape[1]), np.nan)
    place = np.maximum(last, 0) * np.array(percents)[:, None] / 100
    below = np.floor(place).astype(np.int64)
    low = np.take_along_axis(ordered, below, axis=0)
    high = np.take_along_axis(ordered, np.minimum(below + 1, np.maximum(last, 0)), axis=0)
    return np.asarray(low + (high - low) * (place - below))


def _over_devices(values: Seconds, lengths: Sequence[int], figure: Callable[[Seconds], Seconds]) -> Seconds:
    """Median over the devices, each with so many of the rounds, of what ``figure`` says of it; NaN where none does."""
    ends = np.cumsum(lengths)[:-1]
    found = [figure(rows) for rows in (np.split(values, ends) if len(lengths) > 1 else [values])]
    stacked = np.stack(found)
    middle: Seconds = percentiles(stacked.reshape(len(found), -1), [50])[0].reshape(stacked.shape[1:])
    return middle


def variation(totals: Seconds) -> Seconds:
    """Coefficient of variation of each column over its finite rounds; NaN with fewer than two."""
    finite = np.isfinite(totals)
    count = finite.sum(axis=0)
    mean = np.where(finite, totals, 0.0).sum(axis=0) / np.maximum(count, 1)
    squares = np.where(finite, (totals - mean) ** 2, 0.0).sum(axis=0)
    several = count > 1
    spread = np.sqrt(squares / np.where(several, count - 1, 1))
    return np.where(several, spread / np.where(several, mean, 1.0), np.nan)


def _distinct_parts(rows: Sequence[Row]) -> list[Row]:
    """One facts row per part, in the role's order, whichever Shard it came from."""
    return list({row["part"]: row for row in rows}.values())


def _seconds(
    rows: Sequence[Row], parts: Sequence[Row], keys: Sequence[ShardKey], visits: Mapping[ShardKey, Visits]
) -> Seconds:
    """Return ``[rounds of all Shards, parts]``; NaN where the Candidate was not measured."""
    failed = {shard_key(row) for row in rows if row["status"] != "ok"}
    known = {shard_key(row) for row in rows} - failed
    gemm_ids = [row["gemm_id"] for row in parts]
    blocks = [np.empty((0, len(parts)))]
    for key in keys:
        block = visits[key].of(gemm_ids)
        blocks.append(block if key in known else np.full_like(block, np.nan))
    return np.concatenate(blocks)


def _ratio(name: str, candidate: int, over: tuple[Seconds, Seconds] | None, *, inverse: bool = False) -> Row:
    """Cost per FLOP over another Candidate's, or the ``inverse``, with its interval; null where unknown."""
    if over is None:
        return {}
    estimate, half = float(over[0][candidate]), float(over[1][candidate])
    middle = -estimate if inverse else estimate
    known = math.isfinite(half)
    return {
        name: float(np.exp(middle)),
        f"{name}_low": float(np.exp(middle - half)) if known else None,
        f"{name}_high": float(np.exp(middle + half)) if known else None,
    }


def _message(failed: Sequence[Row]) -> str:
    lines = dict.fromkeys(f"{row['part']}: {row['message']}" if row["message"] else row["part"] for row in failed)
    return "; ".join(lines) or "no samples"


def _energy(parts: Sequence[Row]) -> float | None:
    """Joules of one call of every part; unknown when that of any part is."""
    joules = [row["energy_j"] for row in parts]
    return None if None in joules else float(sum(joules))
