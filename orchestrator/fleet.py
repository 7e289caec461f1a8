"""The devices of a run beside one another: what each did, and how a model's devices differ."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median
from typing import Any

import numpy as np

from orchestrator.canary import Reading
from orchestrator.verdict import Verdict, centre
from orchestrator.visits import Seconds, ShardKey, Visits, shard_key

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceSummary:
    """One device. canary, time, worst: time over its model's, less 1, so that 0.02 is 2% slower; None where unknown.

    canary: of its median canary. time: the median over the Families that others of its model measured too; worst: the
    slowest of these. reason: why it is suspect, or nothing.
    """

    uuid: str
    host: str
    families: int
    canary: float | None = None
    time: float | None = None
    worst: float | None = None
    worst_family: str | None = None
    sm_clock_mean_mhz: float | None = None
    temperature_max_c: float | None = None
    power_mean_w: float | None = None
    power_limited: bool = False
    throttled: bool = False
    reason: str = ""

    @property
    def against_model(self) -> float | None:
        """Its time in the Families that it shares, or else of its canaries."""
        return self.canary if self.time is None else self.time


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """All devices of one GPU model, the suspect ones first, then the slowest."""

    gpu: str
    devices: tuple[DeviceSummary, ...]

    @property
    def spread(self) -> tuple[float, float] | None:
        """The 10th and 90th percentile over the devices of ``against_model``; None where fewer than two are known."""
        known = [device.against_model for device in self.devices if device.against_model is not None]
        if len(known) < 2:
            return None
        low, high = np.percentile(known, [10, 90]).tolist()
        return low, high

    @property
    def slowest(self) -> DeviceSummary | None:
        """The slowest device; None where no two can be compared."""
        known = [device for device in self.devices if device.against_model is not None]
        return max(known, key=lambda device: device.against_model or 0.0) if len(known) > 1 else None


def fleets(
    facts: Sequence[Row], visits: Mapping[ShardKey, Visits], readings: Sequence[Reading], verdict: Verdict
) -> tuple[Fleet, ...]:
    """Summarize the devices per model, models by name; nothing for a run with a single device.

    facts: of the sweep's own Bundles, one Shard per device and Bundle. Suspect ones are among them.
    """
    if len({row["uuid"] for row in facts} | {reading.uuid for reading in readings}) < 2:
        return ()
    models = sorted({row["gpu"] for row in facts} | {reading.model for reading in readings})
    return tuple(
        _fleet(
            model,
            [row for row in facts if row["gpu"] == model],
            visits,
            [reading for reading in readings if reading.model == model],
            verdict,
        )
        for model in models
    )


def _fleet(
    model: str, facts: Sequence[Row], visits: Mapping[ShardKey, Visits], readings: Sequence[Reading], verdict: Verdict
) -> Fleet:
    canaries = _canaries(readings)
    times = _times(facts, visits)
    rows: dict[str, list[Row]] = {uuid: [] for uuid in canaries}
    for row in facts:
        rows.setdefault(row["uuid"], []).append(row)
    devices = [
        DeviceSummary(
            uuid=uuid,
            canary=canaries.get(uuid),
            reason=verdict.reasons.get(uuid, ""),
            **_compared(times.get(uuid, {})),
            **_conduct(rows[uuid]),
        )
        for uuid in rows
    ]
    return Fleet(gpu=model, devices=tuple(sorted(devices, key=_order)))


def _order(device: DeviceSummary) -> tuple[Any, ...]:
    slow = device.against_model
    return (not device.reason, slow is None, -(slow or 0.0), device.host, device.uuid)


def _canaries(readings: Iterable[Reading]) -> dict[str, float]:
    """Each device's median canary over its model's, less 1; nothing where there is a single device."""
    seconds: dict[str, list[float]] = {}
    for reading in sorted(readings, key=lambda reading: (reading.uuid, reading.number)):
        seconds.setdefault(reading.uuid, []).append(reading.seconds)
    if len(seconds) < 2:
        return {}
    levels = np.log([median(values) for values in seconds.values()])
    return dict(zip(seconds, np.expm1(levels - centre(levels)).tolist(), strict=True))


def _times(facts: Sequence[Row], visits: Mapping[ShardKey, Visits]) -> dict[str, dict[str, float]]:
    """Per device and Family: time over the model's, less 1, of the Families that several devices measured."""

    def family(row: Row) -> tuple[Any, ...]:
        return (row["family_id"], row["protocol"], row["protocol_version"], row["l2"], row["power"])

    times: dict[str, dict[str, float]] = {}
    for (family_id, *_), rows in itertools.groupby(sorted(facts, key=family), key=family):
        listed = list(rows)
        keys = sorted({shard_key(row) for row in listed} & visits.keys())
        if len(keys) < 2:
            continue
        gemm_ids = sorted({row["gemm_id"] for row in listed})
        for key, ratio in zip(keys, _ratios([_log_medians(visits[key], gemm_ids) for key in keys]), strict=True):
            if np.isfinite(ratio):
                times.setdefault(key.uuid, {})[family_id] = float(np.expm1(ratio))
    return times


def _log_medians(visits: Visits, gemm_ids: Sequence[str]) -> Seconds:
    """Log of each Gemm's median seconds; NaN for those that left the rounds, which ran in other company."""
    seconds = visits.of(gemm_ids)
    counts = np.isfinite(seconds).sum(axis=0)
    stayed = (counts == counts.max(initial=0)) & (counts > 0)
    found = np.full(len(gemm_ids), np.nan)
    found[stayed] = np.log(np.nanmedian(seconds[:, stayed], axis=0))
    return found


def _ratios(devices: Sequence[Seconds]) -> list[float]:
    """Log ratio of each device to what stands for the model, mean over the Gemms that it shares; NaN with none."""
    logs = np.stack(devices)
    logs = logs[:, np.isfinite(logs).sum(axis=0) > 1]
    over = logs - centre(logs) if logs.size else logs
    return [float(row[np.isfinite(row)].mean()) if np.isfinite(row).any() else float("nan") for row in over]


def _compared(times: Mapping[str, float]) -> Row:
    if not times:
        return {}
    worst = max(times, key=lambda family: times[family])
    return {"time": median(times.values()), "worst": times[worst], "worst_family": worst}


def _conduct(rows: Sequence[Row]) -> Row:
    """What a device did, over its Shards; ``rows`` may be empty for one that measured canaries alone."""
    shards = list({shard_key(row): row for row in rows}.values())

    def known(name: str) -> list[float]:
        return [row[name] for row in shards if row[name] is not None]

    return {
        "host": shards[0]["host"] if shards else "",
        "families": len({row["family_id"] for row in rows}),
        "sm_clock_mean_mhz": fmean(known("sm_clock_mean_mhz")) if known("sm_clock_mean_mhz") else None,
        "temperature_max_c": max(known("temperature_max_c"), default=None),
        "power_mean_w": fmean(known("power_mean_w")) if known("power_mean_w") else None,
        "power_limited": any(row["power_limited"] for row in shards),
        "throttled": any(row["throttled"] for row in shards),
    }
