"""What a run's Shards hold already, and whether a new driver may go on with it."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.canary import Reading, is_canary
from orchestrator.lanes import Earlier
from orchestrator.store import RunStore, file_id
from orchestrator.suspects import readings, split
from orchestrator.verdict import Verdict, judge
from orchestrator.visits import COLUMNS as SAMPLE_COLUMNS
from orchestrator.visits import visits_by_shard
from tasks.records import NO_FAILURE, DeviceInfo
from tasks.settings import BASELINES

Row = dict[str, Any]

ENVIRONMENT = ("driver", "torch", "runtime")
"""Versions that must be those of the devices of the same model that have Shards in the run."""

COLUMNS = (
    "bundle_id",
    "attempt",
    "uuid",
    "gpu",
    "gemm_id",
    "status",
    "rounds",
    "stop_reason",
    "canary",
    "started_utc",
    "protocol",
    "protocol_version",
    "plan_hash",
    *ENVIRONMENT,
)
ANYWAY = "resume_anyway=true goes on all the same, and the manifest says so"


@dataclass(frozen=True, kw_only=True)
class Former:
    """What earlier drivers measured.

    environments: by GPU model, the versions in use then. bundles: those that have ended; failures: their Gemms that
    could not be measured. plans, protocols: what the Shards say of how they came to be.
    """

    earlier: Earlier = field(default_factory=Earlier)
    readings: tuple[Reading, ...] = ()
    canaries: Mapping[str, int] = field(default_factory=dict)
    environments: Mapping[str, frozenset[tuple[str | None, ...]]] = field(default_factory=dict)
    bundles: int = 0
    failures: int = 0
    plans: frozenset[str] = frozenset()
    protocols: frozenset[tuple[str, int]] = frozenset()
    problems: tuple[str, ...] = ()

    def difference(self, device: DeviceInfo) -> str:
        """In what ``device`` differs from those of the run of its model, or ""."""
        known = self.environments.get(device.gpu)
        here = tuple(getattr(device, name) for name in ENVIRONMENT)
        if not known or here in known:
            return ""
        nearest = max(known, key=lambda versions: sum(map(_same, versions, here)))
        changed = [
            f"{name}: {old} in the run, {new} now"
            for name, old, new in zip(ENVIRONMENT, nearest, here, strict=True)
            if old != new
        ]
        return f"{device.gpu} on {device.host}: {'; '.join(changed)}"


def _same(left: object, right: object) -> bool:
    return left == right


def former(
    store: RunStore,
    placement: str,
    min_rounds: int,
    retry: frozenset[str] = frozenset(),
    planned: Mapping[str, frozenset[str]] | None = None,
) -> Former:
    """Read what ``store`` holds; Bundles with a Gemm whose status is in ``retry`` count as not ended.

    planned: the plan's Bundles, and the ids of the Gemms of each. Shards of others, strangers in the run, count for
    nothing; a Bundle that has got further Gemms has not ended.
    """
    reader = store.reader()
    # The samples first, although they are of no use here: a Shard in which they are corrupt has to be measured again.
    samples = reader.samples(SAMPLE_COLUMNS).table
    rows = reader.facts().table.select(COLUMNS).to_pylist()
    canary_rows, sweep_rows = split(rows)
    if planned is not None:
        sweep_rows = [row for row in sweep_rows if row["bundle_id"] in planned]
    found = _readings(samples, canary_rows)
    verdict = judge(found)
    attempts, canaries = _attempts(store, rows, planned or {})
    last: dict[str, dict[str, list[Row]]] = defaultdict(dict)
    for shard in _shards(sweep_rows):
        lane = shard[0]["gpu"] if placement == "split" else shard[0]["uuid"]
        last[lane][shard[0]["bundle_id"]] = shard
    ended = {
        lane: {
            bundle_id: shard
            for bundle_id, shard in shards.items()
            if _has_ended(shard, min_rounds, retry, verdict) and _has_all(shard, planned)
        }
        for lane, shards in last.items()
    }
    kept = [shard for shards in ended.values() for shard in shards.values()]
    return Former(
        earlier=Earlier(ended={lane: frozenset(shards) for lane, shards in ended.items()}, attempts=attempts),
        readings=tuple(found),
        canaries=canaries,
        environments=_environments(sweep_rows),
        bundles=len(kept),
        failures=sum(len(_failed(shard)) for shard in kept),
        plans=frozenset(row["plan_hash"] for row in rows),
        protocols=frozenset((row["protocol"], row["protocol_version"]) for row in sweep_rows),
        problems=reader.problems,
    )


def _attempts(store: RunStore, rows: Sequence[Row], wanted: Iterable[str]) -> tuple[dict[str, int], dict[str, int]]:
    """The highest attempt there is, by Bundle, and by device for its canaries.

    By the files' names, which are not quite the ids: the name of a corrupt one is taken too.
    """
    bundle_ids = {file_id(bundle_id): bundle_id for bundle_id in (*wanted, *(row["bundle_id"] for row in rows))}
    uuids = {file_id(row["uuid"]): row["uuid"] for row in rows}
    attempts: dict[str, int] = {}
    canaries: dict[str, int] = {}
    for device, bundle, attempt in store.attempts():
        bundle_id, uuid = bundle_ids.get(bundle, bundle), uuids.get(device, device)
        attempts[bundle_id] = max(attempts.get(bundle_id, 0), attempt)
        if is_canary(bundle_id):
            canaries[uuid] = max(canaries.get(uuid, 0), attempt)
    return attempts, canaries


def _has_ended(shard: list[Row], min_rounds: int, retry: frozenset[str], verdict: Verdict) -> bool:
    """Whether the Bundle needs no more work after this Shard, its last one."""
    first = shard[0]
    by_rounds = first["protocol"] not in BASELINES  # which have one round, however much of it was made
    whole = first["stop_reason"] != "interrupted" or (by_rounds and first["rounds"] >= min_rounds)
    again = any(row["status"] in retry for row in shard)
    return whole and not again and not verdict.suspect(first["uuid"], first["canary"])


def _has_all(shard: list[Row], planned: Mapping[str, frozenset[str]] | None) -> bool:
    """Whether the Shard knows of every Gemm that its Bundle has in the plan."""
    return planned is None or planned[shard[0]["bundle_id"]] <= {row["gemm_id"] for row in shard}


def _failed(shard: list[Row]) -> set[str]:
    """The Gemms that could not be measured."""
    return {row["gemm_id"] for row in shard if row["status"] not in NO_FAILURE}


def _shards(rows: Iterable[Row]) -> list[list[Row]]:
    """The facts rows of each Shard, in the order in which they were measured."""
    found: dict[tuple[str, str, int], list[Row]] = defaultdict(list)
    for row in rows:
        found[row["uuid"], row["bundle_id"], row["attempt"]].append(row)
    return sorted(found.values(), key=lambda shard: (shard[0]["attempt"], shard[0]["started_utc"]))


def _readings(samples: pa.Table, canaries: list[Row]) -> list[Reading]:
    """The readings of all canaries."""
    if not canaries:
        return []
    named = pc.is_in(samples["bundle_id"], pa.array(sorted({row["bundle_id"] for row in canaries})))
    return readings(canaries, visits_by_shard(samples.filter(named)))


def _environments(rows: Iterable[Row]) -> dict[str, frozenset[tuple[str | None, ...]]]:
    found: dict[str, set[tuple[str | None, ...]]] = defaultdict(set)
    for row in rows:
        found[row["gpu"]].add(tuple(row[name] for name in ENVIRONMENT))
    return {gpu: frozenset(versions) for gpu, versions in found.items()}


def differences(then: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> list[str]:
    """One line for each value of two resolved configurations that differs."""
    found: list[str] = []
    for name in dict.fromkeys((*then, *now)):
        old, new = then.get(name), now.get(name)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            found += differences(old, new, f"{prefix}{name}.")
        elif old != new:
            found.append(f"{prefix}{name}: {old} in the run, {new} now")
    return found
