"""Which runs there are, and which of them a user means."""

import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.address import is_uri
from orchestrator.errors import StoreError, shorten, unknown
from orchestrator.store import RunStore

LATEST = "latest"
EXAMPLES = "examples"
LISTED = 20
"""Runs that an error lists, the latest."""


def list_runs(results: str | Path) -> list[Path]:
    """Return the runs directly under ``results`` that can be looked into, the oldest first."""
    root = Path(results)
    children = sorted(root.iterdir()) if root.is_dir() else []
    began = {path: moment for path in children if (moment := _started(path)) is not None}
    return sorted(began, key=lambda path: (began[path], path.name))


def find_run(text: str, results: str | Path, spool: str | None = None) -> RunStore:
    """Open the run that ``text`` means: a path, a name under ``results``, or ``latest``; or the URI of one.

    A run in a store (``text`` or ``results`` is a URI) is brought into the spool first: ``run.spool``. In a path
    ``~`` is the user's home.

    Raises:
        StoreError: there is no such run, and which there are; or the directory is no run.
    """
    text, results = os.path.expanduser(text), os.path.expanduser(results)
    if is_uri(text) or is_uri(str(results)):
        from orchestrator.remote_runs import fetched_run

        return RunStore.open(fetched_run(text, str(results), spool))
    try:
        runs = list_runs(results)
        places = [Path(results) / text, Path(text)] if text else []
        found = [path for path in places if RunStore(path).is_run()] or [path for path in places if path.exists()]
    except OSError as error:
        raise StoreError(f"run '{shorten(text)}' under {shorten(str(results))}: {error.strerror}") from error
    if text == LATEST and runs:
        return RunStore.open(runs[-1])
    if found:
        return RunStore.open(found[0])  # which says what a run is where this is none
    names = [path.name for path in runs] + [f"{EXAMPLES}/{path.name}" for path in list_examples(results)]
    if not names:
        raise StoreError(f"no run '{text}': there are no runs under {results}")
    raise StoreError(unknown("run", text, names[-LISTED:]) + f" (under {results}), or a path, or {LATEST}")


def list_examples(results: str | Path) -> list[Path]:
    """Return the runs in the examples folder of ``results``, none where it may not be looked into."""
    try:
        return list_runs(Path(results) / EXAMPLES)
    except OSError:
        return []


def started(manifest: Mapping[str, object]) -> datetime | None:
    """When a run began by its manifest; None where that does not say."""
    try:
        moment = datetime.fromisoformat(str(manifest.get("started_utc")))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _started(path: Path) -> datetime | None:
    """When a run began by its manifest; without a readable one, when its directory last changed.

    None of what is no run, or may not be looked into, as ``lost+found`` and another user's runs.
    """
    found = None
    try:
        if not RunStore(path).is_run():
            return None
        with suppress(StoreError):
            found = started(RunStore(path).manifest())
        return found or datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return None
