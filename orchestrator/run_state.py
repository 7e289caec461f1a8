"""In what state a run is, and what a user would do with it next."""

import os
import shlex
import socket
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from orchestrator.cli import PROGRAM
from tasks.records import NO_FAILURE, STATUSES

RUNNING, FINISHED, BROKEN_OFF, UNKNOWN = "running", "finished", "broken off", "unknown"
RESUMABLE = ("interrupted", "unfinished", "failed", BROKEN_OFF)
"""States in which something may be left to measure."""


def state(manifest: Mapping[str, Any]) -> str:
    """Return the state that the manifest tells; broken off where its driver was on this host and is gone."""
    told = str(manifest.get("status", UNKNOWN))
    here = manifest.get("host") == socket.gethostname() and isinstance(manifest.get("pid"), int)
    return BROKEN_OFF if told == RUNNING and here and not _alive(manifest["pid"]) else told


def next_command(run: Path, state: str, statuses: Collection[str]) -> str:
    """Return the command that is useful next. statuses: how the run's Candidates, or Gemms, have ended.

    >>> next_command(Path("results/a"), "finished", ["ok", "oom"])
    'python -m orchestrator resume=results/a retry=failed'
    """
    place = shlex.quote(f"./{run}" if str(run)[0] in "-~" else str(run))  # no option, nor the home directory
    if state == RUNNING:
        return f"{PROGRAM} status {place}"
    if state in RESUMABLE:
        return f"{PROGRAM} resume={place}"
    if any(status in STATUSES and status not in NO_FAILURE for status in statuses):
        return f"{PROGRAM} resume={place} retry=failed"
    return f"{PROGRAM} report {place}"


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # a number that no process has
        return False
    except PermissionError:
        return True
    return True
