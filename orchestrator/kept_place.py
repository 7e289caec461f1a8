"""The files by which commands and the keeper of a kept Ray find each other, and the locks on them."""

import fcntl
import json
import os
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any

from orchestrator.atomic import write_atomic
from orchestrator.errors import ClusterError

POLL_S = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class Ray:
    """How to reach a kept Ray. node: its only one. like: orchestrator.likeness of the command that started it."""

    address: str
    token: str | None
    node: str
    like: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """What the last command says of its use. clean: it has ended, and left nothing under way.

    keep_s: how long all may stay unused after it; 0: it is to end now. devices: what is held, names by UUID.
    """

    pid: int
    clean: bool = False
    keep_s: float = 1.0
    devices: Mapping[str, str] = field(default_factory=dict)


class Place:
    """The files by which commands and the keeper find each other; only their user may read them.

    Raises:
        ClusterError: no folder is named, and none for temporary files can be written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or _temporary() / f"gemm-orchestrator-{os.getuid()}"
        self._ray = self.folder / "ray.json"
        self._use = self.folder / "use.json"
        self.lease = self.folder / "lease"
        self.keeper = self.folder / "keeper"  # locked by the keeper while it lives
        self.log = self.folder / "keeper.log"

    def make(self) -> None:
        """Make the folder.

        Raises:
            ClusterError: somebody else's, or open to others: what lies there must not be believed.
        """
        with _usable(self.folder), suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        facts = self.folder.lstat()
        if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != os.getuid() or facts.st_mode & 0o077:
            raise ClusterError(f"{self.folder} must be a directory of your own that nobody else may enter (mode 700)")

    @property
    def kept(self) -> bool:
        """Whether a keeper lives."""
        if not self.keeper.exists():
            return False
        self.make()
        with locked(self.keeper) as free:
            return not free

    def ray(self) -> Ray | None:
        """The Ray that is kept; None where it is starting, ending or gone, or of a version that says other things."""
        with suppress(TypeError):
            ray = Ray(**_read(self._ray))
            return ray if isinstance(ray.like, dict) else None
        return None

    def use(self) -> Use | None:
        """What was said last of its use; None where nothing was, or by a version that says other things."""
        found = _read(self._use)
        with suppress(TypeError):
            use = Use(**found)
            said = isinstance(use.pid, int) and isinstance(use.keep_s, int | float) and isinstance(use.devices, dict)
            return use if said and "devices" in found else None
        return None

    def told_at(self) -> datetime | None:
        """When that was said, in this host's time."""
        with suppress(FileNotFoundError):
            return datetime.fromtimestamp(self._use.stat().st_mtime).astimezone()
        return None

    def tell_ray(self, ray: Ray) -> None:
        """Say how to reach it."""
        write_atomic(self._ray, json.dumps(asdict(ray)).encode())

    def tell_use(self, use: Use) -> None:
        """Say how it is used."""
        write_atomic(self._use, json.dumps(asdict(use)).encode())

    def forget(self) -> None:
        """Have nobody find it any more."""
        with _usable(self._ray):
            self._ray.unlink(missing_ok=True)


def _temporary() -> Path:
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise ClusterError(f"no directory for temporary files can be written: {error.strerror}; set TMPDIR") from error


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Name what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise ClusterError(f"{path}: {error.strerror or error}; a kept Ray is found by it") from error


def opened(path: Path, mode: str) -> IO[Any]:
    """Open a file of a place.

    Raises:
        ClusterError: it is something else, or not writable.
    """
    with _usable(path):
        return path.open(mode)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text())
        return found if isinstance(found, dict) else {}
    return {}


@contextmanager
def locked(path: Path, timeout_s: float = 0.0, waiting: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Lock a file while the context lasts, or tell that another process has it; ``waiting`` is called now and then.

    Raises:
        ClusterError: it cannot be opened.
    """
    with opened(path, "a") as file:
        until = time.monotonic() + timeout_s
        while not (mine := _lock(file)) and time.monotonic() < until:
            waiting()
            time.sleep(POLL_S)
        yield mine


def _lock(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
