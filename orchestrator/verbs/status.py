"""``status``: how far a run is, on what, and what failed."""

import argparse
import os
import socket
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator.canary import is_canary
from orchestrator.printing import printed
from orchestrator.verbs.common import add_run
from tasks.records import NO_FAILURE

if TYPE_CHECKING:
    from orchestrator.store import RunStore

SHOWN = 10
"""Failures of each status that are listed."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the status; 1 where a Gemm failed or a Shard could not be read."""
    from orchestrator.runs import find_run

    store = find_run(arguments.run, arguments.dir, arguments.spool)
    lines, failed = _status(store)
    whole = printed(lambda: sys.stdout.write("\n".join(lines) + "\n"))
    return int(failed or not whole)


def _status(store: "RunStore") -> tuple[list[str], bool]:
    manifest = store.manifest()
    reader = store.reader()
    reader.samples(("seconds",))  # a Shard in which they are corrupt is not ranked: here it counts for nothing either
    rows = reader.facts(
        ("bundle_id", "attempt", "uuid", "gpu", "host", "gemm_id", "status", "message")
    ).table.to_pylist()
    ordered = sorted((row for row in rows if not is_canary(row["bundle_id"])), key=lambda row: row["attempt"])
    gemms = {(row["gemm_id"], row["uuid"], row["bundle_id"]): row for row in ordered}
    counts = Counter(row["status"] for row in gemms.values())
    lines = [*_head(store, manifest, rows), f"gemms     {_counted(counts) or 'none yet'}"]
    for status in counts:
        if status != "ok":
            lines += _failures(status, [row for row in gemms.values() if row["status"] == status])
    lines += list(reader.problems)
    failed = any(status not in NO_FAILURE for status in counts)
    return lines, failed or bool(reader.problems)


def _head(store: "RunStore", manifest: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    bundles = {row["bundle_id"] for row in rows if not is_canary(row["bundle_id"])}
    devices = sorted({(row["gpu"], row["uuid"], row["host"]) for row in rows})
    total = manifest.get("bundles", "?")
    return [
        f"run       {store.path}",
        f"conf      {' '.join([manifest.get('conf', '?'), *manifest.get('overrides', [])])}",
        f"state     {_state(manifest)}, started {manifest.get('started_utc', '?')}, "
        f"ended {manifest.get('ended_utc', '-')}",
        f"bundles   {len(bundles)} of {total} have a shard",
        *(f"device    {gpu} {uuid} on {host}" for gpu, uuid, host in devices),
    ]


def _state(manifest: dict[str, Any]) -> str:
    state = str(manifest.get("status", "unknown: no manifest"))
    here = manifest.get("host") == socket.gethostname() and isinstance(manifest.get("pid"), int)
    if state == "running" and here and not _alive(manifest["pid"]):
        return "broken off: its process is gone; what it measured is ranked by the verb rank"
    return state


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # a number that no process has
        return False
    except PermissionError:
        return True
    return True


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {status}" for status, count in counts.most_common())


def _failures(status: str, rows: list[dict[str, Any]]) -> list[str]:
    lines = [f"{status}: {row['gemm_id']}: {row['message']}" for row in rows[:SHOWN]]
    return lines + ([f"{status}: … and {len(rows) - SHOWN:,} more"] if len(rows) > SHOWN else [])
