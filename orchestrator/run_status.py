"""How far a run is, on what, and what failed: as records of plain values and for reading."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.canary import is_canary
from orchestrator.forms import CsvTable
from orchestrator.laps import told
from orchestrator.printing import LABEL, wrapped
from orchestrator.run_state import BROKEN_OFF, RUNNING, UNKNOWN, next_command, state
from orchestrator.store import RunStore
from tasks.records import NO_FAILURE

GEMM = ("gemm_id", "bundle_id", "attempt", "gpu", "uuid", "host", "status", "message")
DEVICE = ("gpu", "uuid", "host")
TOLD = {
    BROKEN_OFF: "broken off: its process is gone; what it measured is ranked by the verb rank",
    UNKNOWN: "unknown: no manifest",
}
SHOWN = 10
"""Failures of each status that are listed."""

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """What is known. gemms: a row for each Gemm of a Bundle on a device, as it ended the last time."""

    store: RunStore
    manifest: Row
    bundles: int
    devices: tuple[Row, ...]
    gemms: tuple[Row, ...]
    problems: tuple[str, ...]

    @property
    def state(self) -> str:
        """The state, in a word or two."""
        return state(self.manifest)

    @property
    def counts(self) -> dict[str, int]:
        """Gemms per status, the most frequent first."""
        return dict(Counter(row["status"] for row in self.gemms).most_common())

    @property
    def failed(self) -> bool:
        """Whether a Gemm failed or a Shard could not be read."""
        return any(status not in NO_FAILURE for status in self.counts) or bool(self.problems)


def run_status(store: RunStore) -> RunStatus:
    """Read a run's manifest and the facts of its Shards."""
    reader = store.reader()
    reader.samples(("seconds",))  # a Shard in which they are corrupt is not ranked: here it counts for nothing either
    rows = reader.facts(GEMM).table.to_pylist()
    own = sorted((row for row in rows if not is_canary(row["bundle_id"])), key=lambda row: row["attempt"])
    devices = sorted({tuple(row[name] for name in DEVICE) for row in rows})
    return RunStatus(
        store=store,
        manifest=store.manifest(),
        bundles=len({row["bundle_id"] for row in own}),
        devices=tuple(dict(zip(DEVICE, each, strict=True)) for each in devices),
        gemms=tuple({(row["gemm_id"], row["uuid"], row["bundle_id"]): row for row in own}.values()),
        problems=tuple(reader.problems),
    )


def document(found: RunStatus) -> Row:
    """Return everything as plain values; what is not known is null."""
    manifest = found.manifest
    return {
        "run": found.store.name,
        "path": str(found.store.path),
        "conf": manifest.get("conf"),
        "overrides": list(manifest.get("overrides", ())),
        "state": found.state,
        "started_utc": manifest.get("started_utc"),
        "ended_utc": manifest.get("ended_utc"),
        "bundles": {"measured": found.bundles, "all": manifest.get("bundles")},
        "devices": list(found.devices),
        "seconds": manifest.get("seconds"),
        "counts": found.counts,
        "gemms": [{name: row[name] for name in GEMM} for row in found.gemms],
        "problems": list(found.problems),
    }


def csv_table(found: RunStatus) -> CsvTable:
    """Return a row a Gemm with its status and message."""
    return CsvTable(columns=GEMM, rows=found.gemms, notes=found.problems)


def lines(found: RunStatus, width: int) -> Iterator[str]:
    """Yield the lines for reading; words, such as a path or an id, stay whole."""
    for label, text in _told(found):
        yield from wrapped(text, width, label.ljust(LABEL))
    for status in found.counts:
        if status != "ok":
            for text in _failures(status, [row for row in found.gemms if row["status"] == status]):
                yield from wrapped(text, width, f"{status}: ")
    for problem in found.problems:
        yield from wrapped(problem, width)
    if found.state != RUNNING:
        yield f"next: {next_command(found.store.path, found.state, found.counts)}"


def _told(found: RunStatus) -> Iterator[tuple[str, str]]:
    manifest = found.manifest
    yield "run", str(found.store.path)
    yield "conf", " ".join([manifest.get("conf", "?"), *manifest.get("overrides", [])])
    when = f"started {manifest.get('started_utc', '?')}, ended {manifest.get('ended_utc', '-')}"
    yield "state", f"{TOLD.get(found.state, found.state)}, {when}"
    yield "bundles", f"{found.bundles} of {manifest.get('bundles', '?')} have a shard"
    for device in found.devices:
        yield "device", f"{device['gpu']} {device['uuid']} on {device['host']}"
    if seconds := manifest.get("seconds"):
        yield "time", told(seconds)
    yield "gemms", ", ".join(f"{count:,} {status}" for status, count in found.counts.items()) or "none yet"


def _failures(status: str, rows: list[Row]) -> list[str]:
    lines = [f"{row['gemm_id']}: {row['message']}" for row in rows[:SHOWN]]
    return lines + ([f"… and {len(rows) - SHOWN:,} more"] if len(rows) > SHOWN else [])
