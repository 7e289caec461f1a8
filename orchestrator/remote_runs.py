"""Runs in a store: which of them a user means, brought into the spool, where they are read as local ones."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.address import Address, is_uri
from orchestrator.errors import StoreError, unknown
from orchestrator.patience import each, within
from orchestrator.remote import Remote
from orchestrator.spool import Origin, spool_root
from orchestrator.store import RunStore
from orchestrator.transfer import LISTING_S, fetch

log = logging.getLogger(__name__)

LATEST = "latest"
LISTED = 20
"""Runs that an error lists."""


def fetched_run(text: str, results: str, spool: str | None = None) -> Path:
    """Return the spooled copy of a run: of the URI ``text``, or of a name or ``latest`` under the URI ``results``.

    Where the store does not answer, what the spool has is used, with a warning.

    Raises:
        StoreError: there is no such run, and which there are.
    """
    base, name = _named(text, results)
    root = spool_root(spool, base)
    run = root / name if name != LATEST else _latest(base, root)
    try:
        fetch(base.child(run.name), run)
    except StoreError as error:
        if not RunStore(run).is_run():
            raise StoreError(_with_names(base, run.name, error)) from error
        log.warning("%s\nread from %s, which may lack what others have written", error, run)
    return run


def spooled_run(text: str, results: str, spool: str | None = None) -> Path:
    """Return where the spooled copy of a run lies, and ask no store; ``latest`` is the latest in the spool."""
    base, name = _named(text, results)
    root = spool_root(spool, base)
    runs = _spooled(base, root)
    if name == LATEST and runs:
        name = max(runs, key=lambda run: (started(runs[run]), run))
    if name not in runs:
        raise StoreError(f"no run '{name}' of {base} in {root}: {', '.join(sorted(runs)) or 'there are none'}")
    return root / name


def started(manifest: Mapping[str, object]) -> datetime:
    """When a run began by its manifest; without one that says so, before all others."""
    try:
        moment = datetime.fromisoformat(str(manifest.get("started_utc")))
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _named(text: str, results: str) -> tuple[Address, str]:
    """The directory that holds the run, and the run's name."""
    if is_uri(text):
        address = Address.parse(text)
        if not address.path:
            raise StoreError(f"{text} names no run; write {text.rstrip('/')}/RUN")
        return address.parent, address.name
    if not text or "/" in text:
        raise StoreError(f"no run '{text}' under {results}: give its name, {LATEST}, or the whole URI")
    return Address.parse(results), text


def _latest(base: Address, root: Path) -> Path:
    """The spool's path of the run that began last, of those in the store and those that wait in the spool."""
    manifests = _spooled(base, root)
    try:
        remote = Remote(base)
        names = within(LISTING_S, str(base), remote.directories)
        unread = [name for name in names if name not in manifests]
        manifests |= dict(zip(unread, each(lambda name: _manifest(remote, name), unread), strict=True))
    except StoreError as error:
        if not manifests:
            raise
        log.warning("%s\nthe latest of those in %s is used", error, root)
    if not manifests:
        raise StoreError(f"no run '{LATEST}': there are no runs under {base}")
    return root / max(manifests, key=lambda name: (started(manifests[name]), name))


def _spooled(base: Address, root: Path) -> dict[str, Mapping[str, object]]:
    """The manifests of the runs in the spool that belong to ``base``, by name."""
    paths = [path for path in (root.iterdir() if root.is_dir() else ()) if RunStore(path).is_run()]
    origins = {path: Origin.of(path) for path in paths}
    return {
        path.name: RunStore(path).manifest()
        for path, origin in origins.items()
        if origin is not None and origin.uri == str(base.child(path.name))
    }


def _manifest(remote: Remote, name: str) -> Mapping[str, object]:
    try:
        found = json.loads(remote.read(f"{name}/manifest.json"))
    except (StoreError, ValueError):  # a directory of something else, or a run without a manifest
        return {}
    return found if isinstance(found, dict) else {}


def _with_names(base: Address, name: str, error: StoreError) -> str:
    """The error, with the runs that there are where the store tells them."""
    try:
        names = within(LISTING_S, str(base), Remote(base).directories)
    except StoreError:
        return str(error)
    return f"{error}; {unknown('run', name, names[-LISTED:])}" if names else f"{error}; there are no runs under {base}"
