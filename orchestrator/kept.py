"""The Ray that a command leaves behind for the next one: where it is found, and who may use it.

One for each user of a host. A process of its own, the keeper (orchestrator.keeper), owns it and ends it. Who holds the
lease, a lock that ends with its process, uses it alone; so no two commands ever share a device by it.
"""

import fcntl
import json
import os
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TextIO

from orchestrator.atomic import write_atomic
from orchestrator.errors import ClusterError
from orchestrator.likeness import likeness, unlike
from orchestrator.schema import Cluster

POLL_S = 0.05
END_S = 20.0
"""How long the end of a kept Ray may take."""
TOLD_S = 1.0
LOG_LENGTH = 2000
ANOTHER = "\ncluster.address=local does not look for one and starts its own"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ray:
    """How to reach a kept Ray. like: orchestrator.likeness of the command that started it."""

    address: str
    token: str | None
    like: Mapping[str, str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """What the last command says of its use. clean: it has ended, and left nothing under way.

    keep_s: how long all may stay unused after it; 0: it is to end now.
    """

    pid: int
    clean: bool = False
    keep_s: float = 1.0
    devices: tuple[str, ...] = ()


class Place:
    """The files by which commands and the keeper find each other; only their user may read them."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir()) / f"gemm-orchestrator-{os.getuid()}"
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
        self.folder.mkdir(mode=0o700, exist_ok=True)
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
        """The Ray that is kept; None where it is starting, ending or gone."""
        found = _read(self._ray)
        return Ray(**found) if found else None

    def use(self) -> Use | None:
        """What was said last of its use."""
        found = _read(self._use)
        return Use(**{**found, "devices": tuple(found["devices"])}) if found else None

    def tell_ray(self, ray: Ray) -> None:
        """Say how to reach it."""
        write_atomic(self._ray, json.dumps(asdict(ray)).encode())

    def tell_use(self, use: Use) -> None:
        """Say how it is used."""
        write_atomic(self._use, json.dumps(asdict(use)).encode())

    def forget(self) -> None:
        """Have nobody find it any more."""
        self._ray.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return {}


@contextmanager
def locked(path: Path, timeout_s: float = 0.0, waiting: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Lock a file while the context lasts, or tell that another process has it; ``waiting`` is called now and then."""
    with path.open("a") as file:
        until = time.monotonic() + timeout_s
        while not (mine := _lock(file)) and time.monotonic() < until:
            waiting()
            time.sleep(POLL_S)
        yield mine


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(kw_only=True, slots=True)
class Hold:
    """A command's use of the kept Ray. kept: names of the devices of workers that it leaves; none: all is ended."""

    ray: Ray
    keep_s: float
    kept: list[str] = field(default_factory=list)


@contextmanager
def held(cluster: Cluster, place: Place | None = None) -> Iterator[Hold | None]:
    """Have the kept Ray to oneself; None where there is none and none is asked for, so that one's own is to start.

    One that an unlike command started is ended first. At the end it stays for ``cluster.keep_s`` if workers are left on
    it, else it ends.

    Raises:
        ClusterError: another command does not let it go; it does not start or end; it could not be kept.
    """
    place = place or Place()
    if address := cluster.address or os.environ.get("RAY_ADDRESS"):
        if cluster.keep_s:
            # Nor one that was started for this command alone: what would find it?
            raise ClusterError(f"cluster.keep_s={cluster.keep_s:g}: the Ray at {address} is not this command's to keep")
        yield None
        return
    if not cluster.keep_s and not place.kept:
        yield None
        return
    with ExitStack() as stack:
        place.make()
        stack.enter_context(_leased(place, cluster.start_timeout_s, ANOTHER))
        ray = _found(place) or (_started(place, cluster) if cluster.keep_s else None)
        if ray is None:
            stack.close()
            yield None
            return
        hold = Hold(ray=ray, keep_s=cluster.keep_s)
        try:
            yield hold
        except BaseException:
            hold.kept.clear()
            raise
        finally:
            _let_go(place, hold)


def release(place: Place | None = None) -> Use | None:
    """End the kept Ray and its workers; return what was said of them, None where nothing was kept.

    Raises:
        ClusterError: a command uses it, or it does not end.
    """
    place = place or Place()
    if not place.kept:
        return None
    with _leased(place, TOLD_S):
        use = place.use()
        end(place)
    return use or Use(pid=os.getpid())


def end(place: Place) -> None:
    """Have the keeper end, and wait for it; for who holds the lease.

    Raises:
        ClusterError: it does not.
    """
    place.tell_use(Use(pid=os.getpid(), keep_s=0.0))
    with locked(place.keeper, END_S) as gone:
        if not gone:
            raise ClusterError(f"the kept Ray does not end within {END_S:g} s: see {place.log}")
    place.forget()


@contextmanager
def _leased(place: Place, timeout_s: float, advice: str = "") -> Iterator[None]:
    said = time.monotonic() + TOLD_S

    def tell() -> None:
        nonlocal said
        if time.monotonic() > said:
            said = float("inf")
            sys.stderr.write(f"waiting for {_user(place)} to let the kept Ray go\n")

    with locked(place.lease, timeout_s, tell) as mine:
        if not mine:
            raise ClusterError(f"{_user(place)} uses the kept Ray{advice}")
        yield


def _user(place: Place) -> str:
    use = place.use()
    return f"process {use.pid}" if use else "another command"


def _found(place: Place) -> Ray | None:
    """The kept Ray, if it may be gone on with; any other is ended."""
    if not place.kept:
        return None
    ray = place.ray()
    differs = unlike(ray.like, likeness(os.environ)) if ray else []
    if ray is not None and not differs:
        place.tell_use(Use(pid=os.getpid()))
        return ray
    if differs:
        sys.stderr.write(f"the kept Ray and its workers are ended: {', '.join(differs)} differ\n")
    end(place)
    return None


def _started(place: Place, cluster: Cluster) -> Ray:
    """Start a keeper and wait until its Ray can be reached."""
    place.forget()
    place.tell_use(Use(pid=os.getpid()))
    wanted = json.dumps({"gpu": cluster.gpu, "max_gpus": cluster.max_gpus, "like": likeness(os.environ)})
    command = [sys.executable, "-m", "orchestrator.keeper", str(place.folder), wanted]
    with place.log.open("wb") as log:
        # In a session of its own, without the streams of this command: nobody may wait for its end.
        keeper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment()
        )
    until = time.monotonic() + cluster.start_timeout_s
    while (ray := place.ray()) is None:
        if keeper.poll() is not None or time.monotonic() > until:
            keeper.kill()
            raise ClusterError(f"cannot start a Ray to keep: {place.log.read_text(errors='replace')[-LOG_LENGTH:]}")
        time.sleep(POLL_S)
    return ray


def _environment() -> dict[str, str]:
    """The environment by which the keeper imports this very package."""
    import orchestrator

    root = str(Path(orchestrator.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])}


def _let_go(place: Place, hold: Hold) -> None:
    if hold.kept and hold.keep_s:
        place.tell_use(Use(pid=os.getpid(), clean=True, keep_s=hold.keep_s, devices=tuple(hold.kept)))
    else:
        end(place)
