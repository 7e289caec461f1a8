"""The devices of a run: what each did, and how its rounds, clocks and power went over time."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from statistics import fmean, median
from typing import Any

import numpy as np

from orchestrator.canary import is_canary
from orchestrator.fleet import DeviceSummary
from orchestrator.report.source import ReportRun
from orchestrator.visits import Seconds, ShardKey, Visits, shard_key
from tasks.settings import BASELINES

Row = dict[str, Any]

MOST_DRAWN = 12
"""Devices of a run whose course is drawn: the suspect and slow ones first."""
MOST_SHARDS = 1000
"""Shards of a device that are drawn; of more, every second, third, …"""
BINS = 8
"""Points that the rounds of one Shard become, where there are few Shards."""
POINTS = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One device of a run. canary, time: over its model's, less 1; None without others to compare with.

    capped, throttled: Shards in which its power limit, or heat or a fault, held it back.
    """

    uuid: str
    gpu: str
    host: str
    families: int
    shards: int
    canary: float | None
    time: float | None
    reason: str
    clock_mean: float | None
    clock_min: float | None
    temperature: float | None
    power: float | None
    energy: float | None
    capped: int
    throttled: int

    @property
    def well(self) -> bool:
        """Whether there is nothing against what it measured; a power limit is normal for GEMMs."""
        return not self.reason and not self.throttled

    @property
    def state(self) -> str:
        """The most serious of what there is to say of it."""
        if self.reason:
            return f"suspect: {self.reason}"
        if self.throttled:
            return f"throttled in {self.throttled} of {self.shards} Shards"
        return f"at its power limit in {self.capped} of {self.shards} Shards" if self.capped else "ok"


@dataclass(frozen=True, kw_only=True, slots=True)
class Course:
    """What one device did over time; lists run over its Shards, ``round_*`` over groups of their rounds.

    minutes: since the run's first Shard. level: a round's time over its Family's median, less 1, in percent.
    canary_level: of its canaries, likewise.
    """

    uuid: str
    minutes: list[float]
    families: list[str]
    clock_mean: list[float | None]
    clock_min: list[float | None]
    power: list[float | None]
    temperature: list[float | None]
    round_minutes: list[float]
    level: list[float]
    canary_minutes: list[float]
    canary_level: list[float]


def devices(run: ReportRun) -> list[Device]:
    """Summarize every device, the suspect and the slow ones first."""
    known = {device.uuid: device for fleet in run.ranking.fleets for device in fleet.devices}
    shards: dict[str, list[Row]] = {}
    for row in run.shards:
        shards.setdefault(row["uuid"], []).append(row)
    found = [_device(uuid, rows, known.get(uuid), run.families_of.get(uuid, 0)) for uuid, rows in shards.items()]
    return sorted(found, key=lambda device: (not device.reason, -(device.time or device.canary or 0.0)))


def _device(uuid: str, rows: Sequence[Row], known: DeviceSummary | None, families: int) -> Device:
    def values(name: str) -> list[float]:
        return [row[name] for row in rows if row[name] is not None]

    return Device(
        uuid=uuid,
        gpu=rows[0]["gpu"],
        host=rows[0]["host"] or "",
        families=families,
        shards=len(rows),
        canary=known.canary if known else None,
        time=known.time if known else None,
        reason=known.reason if known else "",
        clock_mean=fmean(values("sm_clock_mean_mhz")) if values("sm_clock_mean_mhz") else None,
        clock_min=min(values("sm_clock_min_mhz"), default=None),
        temperature=max(values("temperature_max_c"), default=None),
        power=fmean(values("power_mean_w")) if values("power_mean_w") else None,
        energy=sum(values("window_energy_j")) if values("window_energy_j") else None,
        capped=sum(bool(row["power_limited"]) for row in rows),
        throttled=sum(bool(row["throttled"]) for row in rows),
    )


def courses(run: ReportRun, uuids: Iterable[str]) -> list[Course]:
    """Follow these devices through the run."""
    times = [row["started_utc"] for row in run.shards if row["started_utc"] is not None]
    begin = min(times, default=None)
    return [_course(run, uuid, begin) for uuid in uuids] if begin is not None else []


def _course(run: ReportRun, uuid: str, begin: datetime) -> Course:
    own = [row for row in run.shards if row["uuid"] == uuid and row["started_utc"] is not None]
    canaries = [row for row in own if is_canary(row["bundle_id"])]
    shards = [row for row in own if not is_canary(row["bundle_id"])]
    shards = shards[:: 1 + len(shards) // MOST_SHARDS]
    bins = max(1, min(BINS, POINTS // max(len(shards), 1)))
    rounds = [point for row in shards for point in _rounds(row, begin, run.ranking.visits, bins)]
    read = {(reading.uuid, reading.number): reading.seconds for reading in run.ranking.readings}
    levels = [(row, read[uuid, row["attempt"]]) for row in canaries if (uuid, row["attempt"]) in read]
    middle = median(seconds for _, seconds in levels) if levels else 1.0
    return Course(
        uuid=uuid,
        minutes=[_minutes(row, begin, 0.5) for row in shards],
        families=[row["family_id"] for row in shards],
        clock_mean=[row["sm_clock_mean_mhz"] for row in shards],
        clock_min=[row["sm_clock_min_mhz"] for row in shards],
        power=[row["power_mean_w"] for row in shards],
        temperature=[row["temperature_max_c"] for row in shards],
        round_minutes=[minute for minute, _ in rounds],
        level=[level for _, level in rounds],
        canary_minutes=[_minutes(row, begin, 0.5) for row, _ in levels],
        canary_level=[100 * (seconds / middle - 1) for _, seconds in levels],
    )


def _minutes(row: Row, begin: datetime, share: float) -> float:
    """Minutes from the begin of the run to where this share of the Shard's rounds was done."""
    waited = (row["prepare_s"] or 0.0) + (row["soak_s"] or 0.0)
    return float(((row["started_utc"] - begin).total_seconds() + waited + share * (row["measuring_s"] or 0.0)) / 60)


def _rounds(row: Row, begin: datetime, visits: Mapping[ShardKey, Visits], bins: int) -> Iterable[tuple[float, float]]:
    """Yield minutes and level of each group of rounds; nothing where the Shard is not ranked, or has no rounds."""
    found = visits.get(shard_key(row))
    if found is None or not found.seconds.size or row["protocol"] in BASELINES:
        return
    for share, level in round_levels(found.seconds, bins):
        yield _minutes(row, begin, share), level


def round_levels(seconds: Seconds, bins: int) -> list[tuple[float, float]]:
    """Part the rounds of ``seconds[round, gemm]`` into groups; return the middle of each and its level in percent.

    A round's level is the median over the Gemms of the time over what the Gemm takes in the middle. Gemms that left the
    rounds do not count: their middle is of other rounds.
    """
    visits = np.isfinite(seconds).sum(axis=0)
    seconds = seconds[:, visits == visits.max()]
    with np.errstate(all="ignore"):
        rates = seconds / np.array([[_median(column) for column in seconds.T]])
    levels = np.array([100 * (_median(each) - 1) for each in rates])
    groups = np.array_split(np.arange(len(levels)), min(bins, len(levels)))
    return [
        (float((group.mean() + 0.5) / len(levels)), _median(levels[group]))
        for group in groups
        if np.isfinite(levels[group]).any()
    ]


def _median(values: Seconds) -> float:
    """The median of what is finite; NaN where nothing is."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if finite.size else float("nan")
