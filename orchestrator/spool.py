"""The local copy of a run that belongs in a store: where it lies, where it belongs, and which of it is there."""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from orchestrator.address import Address
from orchestrator.atomic import write_atomic
from orchestrator.bounded import read_kept
from orchestrator.errors import InvalidValueError, StoreError
from orchestrator.remote import is_visible
from orchestrator.results import nearest_existing
from orchestrator.store import RunStore, safe_name

RECORD = "remote.json"
NAME_LENGTH = 80


def spool_root(spool: str | None, address: Address) -> Path:
    """Return the local directory that holds the runs of the store directory ``address``, and of no other.

    spool: ``run.spool``; None: under the user's state directory, not the cache, which may be emptied at any time.
    """
    name = f"{safe_name(str(address))[:NAME_LENGTH]}-{digest(str(address).encode())[:8]}"
    if spool is not None:
        return Path(spool) / name
    state = os.environ.get("XDG_STATE_HOME", "")
    base = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return base / "gemm-orchestrator" / name


def spooled_path(spool: str | None, address: Address, name: str) -> Path:
    """Return where the run ``name`` of the store directory ``address`` is spooled, or would be.

    One that lies directly under ``run.spool`` is taken too, where it belongs in this store.

    Raises:
        StoreError: ``run.spool`` cannot be looked into.
    """
    root = spool_root(spool, address)
    _looked_into(root / name)
    direct = None if spool is None else Path(spool) / name
    return direct if direct is not None and _belongs(direct, address.child(name)) else root / name


def spooled_paths(spool: str | None, address: Address) -> list[Path]:
    """Return the spooled runs of the store directory ``address``; raises what ``spooled_path`` raises."""
    root = spool_root(spool, address)
    _looked_into(root)
    roots = [root, *([Path(spool)] if spool is not None else [])]
    try:
        found = [path for each in roots if each.is_dir() for path in each.iterdir()]
    except OSError as error:
        raise StoreError(f"cannot look into the spool {root}: {error.strerror}") from error
    runs = []
    for path in found:
        with suppress(StoreError):  # one whose record is unreadable is told of where it is asked for
            runs += [path] if _belongs(path, address.child(path.name)) else []
    return runs


def _looked_into(path: Path) -> None:
    existing = nearest_existing(path, "run.spool")
    if not existing.is_dir():
        raise StoreError(f"run.spool: {existing} is not a directory")


def _belongs(run: Path, address: Address) -> bool:
    if not RunStore(run).is_run():
        return False
    origin = Origin.of(run)
    return origin is not None and origin.uri == str(address)


@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """What ``remote.json`` says: the URI of the run, and for each file that is ever rewritten what the store has.

    synced: SHA-256 by the file's name. A local file that differs is newer than the store's.
    """

    uri: str
    synced: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Path) -> Self | None:
        """Return the origin of the run ``run``; None for one that belongs where it is.

        Raises:
            StoreError: the record is unreadable.
        """
        path = run / RECORD
        try:
            found = json.loads(read_kept(path))
            return cls(uri=str(found["uri"]), synced=dict(found["synced"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, RecursionError, InvalidValueError) as error:
            raise StoreError(f"cannot read {path}, which says where the run belongs: {error}") from error

    @classmethod
    def require(cls, run: Path, address: Address) -> None:
        """Raise StoreError where the run ``run`` is there and belongs elsewhere than at ``address``."""
        origin = cls.of(run)
        if origin is not None and origin.uri != str(address):
            raise StoreError(
                f"{run} belongs in {origin.uri}, not in {address}: the two are not mixed; move it away, or choose "
                "another run.spool"
            )

    @property
    def address(self) -> Address:
        """The run's directory in the store."""
        return Address.parse(self.uri)

    def write(self, run: Path) -> None:
        """Write ``remote.json``."""
        write_atomic(
            run / RECORD, (json.dumps({"uri": self.uri, "synced": dict(self.synced)}, indent=2) + "\n").encode()
        )

    def modified(self, run: Path, name: str) -> bool:
        """Whether the local file is another one than was last sent or fetched."""
        return digest((run / name).read_bytes()) != self.synced.get(name)


def note_synced(run: Path, contents: Mapping[str, bytes]) -> None:
    """Record that the store has these contents of files that are rewritten; of others nothing is kept."""
    kept = {name: digest(content) for name, content in contents.items() if name in rewritten(run)}
    found = Origin.of(run) if kept else None
    if found is not None:
        Origin(uri=found.uri, synced={**found.synced, **kept}).write(run)


def rewritten(run: Path) -> tuple[str, ...]:
    """Names of the files that change during a run's life; all others are written once."""
    store = RunStore(run)
    return tuple(path.name for path in (store.ranking_path, store.markdown_path, store.manifest_path))


def local_sizes(run: Path) -> dict[str, int]:
    """Bytes of each file of the run by its name, in the order to send them: what speaks of others comes after them.

    Raises:
        StoreError: a directory of it cannot be looked into.
    """
    found = (path.relative_to(run).as_posix() for path in _files(run) if path.is_file())
    late = rewritten(run)
    names = sorted((n for n in found if is_visible(n) and n != RECORD), key=lambda n: (_place(n, late), n))
    return {name: (run / name).stat().st_size for name in names}


def _files(directory: Path) -> Iterator[Path]:
    """What is below; ``Path.rglob`` passes over a directory that it may not read."""

    def refuse(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise StoreError(f"cannot look into {error.filename}: {error.strerror or error}") from error

    return (Path(at, name) for at, _, names in os.walk(directory, onerror=refuse) for name in names)


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def _place(name: str, late: tuple[str, ...]) -> int:
    return late.index(name) + 1 if name in late else 0
