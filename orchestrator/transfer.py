"""Brings a spooled run and its store together: sends what the store lacks, fetches what the spool lacks."""

import logging
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from orchestrator.address import Address
from orchestrator.atomic import write_atomic
from orchestrator.errors import StoreError
from orchestrator.patience import each, within
from orchestrator.remote import Remote
from orchestrator.spool import Origin, local_sizes, note_synced, rewritten

log = logging.getLogger(__name__)

LISTING_S = 60.0
"""Seconds that a store may take to list a run."""
PARQUET = b"PAR1"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """What an upload did: files that were sent, and files that the store had already."""

    address: Address
    sent: int
    there: int


def upload(run: Path) -> Sent:
    """Send what the store of a spooled run lacks: by name and size, and what was rewritten here since it was sent.

    Raises:
        StoreError: the run belongs in no store; or the store refuses, and how many files are missing there.
    """
    origin = Origin.of(run)
    if origin is None:
        raise StoreError(
            f"{run} has no remote.json: it was not measured for a store (run.dir=URI), so it is in its place"
        )
    remote, local = Remote(origin.address), local_sizes(run)
    missing = list(local)
    try:
        found = within(LISTING_S, str(origin.uri), remote.sizes)
        missing = lacking(run, origin, found)
        remote.sweep()
        _send(run, remote, missing)
    except StoreError as error:
        raise StoreError(f"{error}\nup to {advice(run, origin.address, len(missing))}") from error
    return Sent(address=origin.address, sent=len(missing), there=len(local) - len(missing))


def lacking(run: Path, origin: Origin, found: Mapping[str, int]) -> list[str]:
    """Names of the run's files that a store with the files ``found`` lacks, in the order to send them."""
    late = rewritten(run)
    return [
        name
        for name, size in local_sizes(run).items()
        if (name not in found or origin.modified(run, name) if name in late else found.get(name) != size)
    ]


def advice(run: Path, address: Address, files: int) -> str:
    """Say how many files are not in the store, that they are kept, and the command that sends them."""
    count = "1 file of the run is" if files == 1 else f"{files} files of the run are"
    return f"{count} missing in {address}; all of it is kept in {run}\nfinish the upload by: {upload_command(run)}"


def upload_command(run: Path) -> str:
    """Return the command that sends what the store of a spooled run lacks."""
    return f"python -m orchestrator upload {shlex.quote(str(run.absolute()))}"


def fetch(address: Address, run: Path) -> None:
    """Bring to the local directory ``run`` what the store has and it lacks; what was rewritten here is kept.

    Raises:
        StoreError: the store has no such run, or does not answer; the local one is of another store; or the disk
            refuses.
    """
    Origin.require(run, address)
    remote = Remote(address)
    found = within(LISTING_S, str(address), remote.sizes)
    if not _is_run(found):
        raise StoreError(f"{address} is not a run: expected manifest.json or shards/ in it")
    origin = Origin.of(run)
    if origin is None:
        origin = Origin(uri=str(address))
        origin.write(run)
    local = local_sizes(run)
    late = rewritten(run)
    wanted = [name for name in found if name not in late and local.get(name) != found[name]]
    each(lambda name: _fetch_once_written(remote, run, name), wanted)
    newer = [n for n in late if n in found and not (n in local and origin.modified(run, n))]
    contents = dict(zip(newer, each(remote.read, newer), strict=True))
    for name, content in contents.items():
        write_atomic(run / name, content)
    note_synced(run, contents)


def _is_run(found: Mapping[str, int]) -> bool:
    return "manifest.json" in found or any(name.startswith("shards/") for name in found)


def _send(run: Path, remote: Remote, names: list[str]) -> None:
    """Send Shards several at once; then, one by one, what speaks of them."""

    def send(name: str) -> None:
        content = (run / name).read_bytes()
        remote.write(name, content)
        note_synced(run, {name: content})

    late = rewritten(run)
    each(send, [name for name in names if name not in late])
    for name in names:
        if name in late:
            each(send, [name])


def _fetch_once_written(remote: Remote, run: Path, name: str) -> None:
    """Fetch a file that is never rewritten; a torn one does not replace what is here."""
    content, path = remote.read(name), run / name
    if path.exists() and path.suffix == ".parquet" and not (content[:4] == content[-4:] == PARQUET):
        log.warning("%s/%s is torn: the local file is kept", remote.address, name)
        return
    write_atomic(path, content)
