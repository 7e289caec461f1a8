"""Runs in a store: which of them a user means, brought into the spool, where they are read as local ones."""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.address import Address, is_uri
from orchestrator.errors import StoreError, shorten, unknown
from orchestrator.patience import each, within
from orchestrator.remote import Remote
from orchestrator.runs import LATEST, LISTED, started
from orchestrator.spool import Origin, spool_root, spooled_path, spooled_paths
from orchestrator.store import RunStore
from orchestrator.transfer import LISTING_S, fetch

log = logging.getLogger(__name__)


def fetched_run(text: str, results: str, spool: str | None = None) -> Path:
    """Return the spooled copy of a run: of the URI ``text``, or of a name or ``latest`` under the URI ``results``.

    Where the store does not answer, what the spool has is used, with a warning.

    Raises:
        StoreError: there is no such run, and which there are.
    """
    base, name = _named(text, results)
    run = spooled_path(spool, base, name) if name != LATEST else _latest(base, spool)
    Origin.require(run, base.child(run.name))  # before the store is asked: one that does not answer is no excuse
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
    runs = _spooled(base, spool)
    if name == LATEST and runs:
        name = _last(runs)
    if name not in runs:
        names = ", ".join(sorted(runs)) or "there are none"
        raise StoreError(
            f"no run '{shorten(name)}' of {base} in {spool_root(spool, base)}: {names}; if it was measured with "
            "another run.spool, give that"
        )
    return spooled_path(spool, base, name)


def _named(text: str, results: str) -> tuple[Address, str]:
    """The directory that holds the run, and the run's name."""
    if is_uri(text):
        address = Address.parse(text)
        if not address.path:
            store = f"{address.scheme}://{address.authority or 'BUCKET'}"
            raise StoreError(f"{text} names no run; write {store}/RUN")
        return address.parent, address.name
    if not text or "/" in text:
        raise StoreError(f"no run '{text}' under {results}: give its name, {LATEST}, or the whole URI")
    return Address.parse(results), text


def _latest(base: Address, spool: str | None) -> Path:
    """The spool's path of the run that began last, of those in the store and those that wait in the spool."""
    manifests = _spooled(base, spool)
    try:
        remote = Remote(base)
        names = within(LISTING_S, str(base), remote.directories)
        unread = [name for name in names if name not in manifests]
        manifests |= dict(zip(unread, each(lambda name: _manifest(remote, name), unread), strict=True))
    except StoreError as error:
        if not manifests:
            raise
        log.warning("%s\nthe latest of those in %s is used", error, spool_root(spool, base))
    if not manifests:
        raise StoreError(f"no run '{LATEST}': there are no runs under {base}")
    return spooled_path(spool, base, _last(manifests))


def _last(manifests: Mapping[str, Mapping[str, object]]) -> str:
    """The name of the run that began last; one that does not say when began before all others."""
    first = datetime.min.replace(tzinfo=UTC)
    return max(manifests, key=lambda name: (started(manifests[name]) or first, name))


def _spooled(base: Address, spool: str | None) -> dict[str, Mapping[str, object]]:
    """The manifests of the runs in the spool that belong to ``base``, by name."""
    return {path.name: _readable(RunStore(path)) for path in spooled_paths(spool, base)}


def _readable(store: RunStore) -> Mapping[str, object]:
    try:
        return store.manifest()
    except StoreError:  # of a run that nobody may have asked for
        return {}


def _manifest(remote: Remote, name: str) -> Mapping[str, object]:
    try:
        found = json.loads(remote.read(f"{name}/manifest.json"))
    except (StoreError, ValueError, RecursionError):  # a directory of something else, or a run without a manifest
        return {}
    return found if isinstance(found, dict) else {}


def _with_names(base: Address, name: str, error: StoreError) -> str:
    """The error, with the runs that there are where the store tells them."""
    try:
        names = within(LISTING_S, str(base), Remote(base).directories)
    except StoreError:
        return str(error)
    return f"{error}; {unknown('run', name, names[-LISTED:])}" if names else f"{error}; there are no runs under {base}"
