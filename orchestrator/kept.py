"""The Ray that a command leaves behind for the next one: where it is found, and who may use it.

One for each user of a host. A process of its own, the keeper (orchestrator.keeper), owns it and ends it. Who holds the
lease, a lock that ends with its process, uses it alone; so no two commands ever share a device by it.
"""

import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.cluster import own_token
from orchestrator.errors import ClusterError
from orchestrator.kept_now import elsewhere
from orchestrator.kept_place import POLL_S, Place, Ray, Use, locked, opened
from orchestrator.likeness import likeness, unlike
from orchestrator.schema import Cluster

END_S = 20.0
"""How long the end of a kept Ray may take."""
TOLD_S = 1.0
LOG_LENGTH = 2000
ANOTHER = "\ncluster.address=local does not look for one and starts its own"


@dataclass(kw_only=True, slots=True)
class Hold:
    """A command's use of the kept Ray. kept: devices of workers that it leaves, names by UUID; none: all is ended.

    before: those that earlier commands have left; it may have needed fewer.
    """

    ray: Ray
    keep_s: float
    before: Mapping[str, str] = field(default_factory=dict)
    kept: dict[str, str] = field(default_factory=dict)

    @property
    def devices(self) -> dict[str, str]:
        """The devices that stay held."""
        return {**self.before, **self.kept} if self.kept else {}


@contextmanager
def held(cluster: Cluster, place: Place | None = None, meanwhile: Sequence[str] = ()) -> Iterator[Hold | None]:
    """Have the kept Ray to oneself; None where there is none and none is asked for, so that one's own is to start.

    meanwhile: modules to import while one starts. One that an unlike command started is ended first. At the end it
    stays for ``cluster.keep_s`` if workers are left on it, else it ends.

    Raises:
        ClusterError: another command does not let it go; it does not start or end; it could not be kept.
    """
    place = place or Place()
    if address := elsewhere(cluster):
        if cluster.keep_s:
            raise ClusterError(f"cluster.keep_s={cluster.keep_s:g}: the Ray at {address} is not this command's to keep")
        yield None
        return
    if not cluster.keep_s and not place.kept:
        yield None
        return
    with ExitStack() as stack:
        place.make()
        stack.enter_context(_leased(place, cluster.start_timeout_s, ANOTHER))
        before = use.devices if (use := place.use()) else {}
        if ray := _found(place):
            hold = Hold(ray=ray, keep_s=cluster.keep_s, before=before)
        elif cluster.keep_s:
            hold = Hold(ray=_started(place, cluster, meanwhile), keep_s=cluster.keep_s)
        else:
            stack.close()
            yield None
            return
        try:
            yield hold
        except BaseException:  # an interrupt too: what its workers do now nobody knows, so that none is left
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


def _started(place: Place, cluster: Cluster, meanwhile: Sequence[str]) -> Ray:
    """Start a keeper and wait until its Ray can be reached."""
    place.forget()
    place.tell_use(Use(pid=os.getpid()))
    wanted = json.dumps({"gpu": cluster.gpu, "max_gpus": cluster.max_gpus, "like": likeness(os.environ)})
    own_token()  # before Ray is imported, here and there
    # -P: what lies in this folder must not hide the packages of this program.
    command = [sys.executable, "-P", "-m", "orchestrator.keeper", str(place.folder), wanted]
    with opened(place.log, "wb") as log:
        # In a session of its own, without the streams of this command: nobody may wait for its end.
        keeper = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=_environment()
        )
    with ThreadPoolExecutor(max_workers=1) as loading:
        loading.submit(lambda: [importlib.import_module(name) for name in meanwhile])
        return _begun(place, keeper, cluster.start_timeout_s)


def _begun(place: Place, keeper: subprocess.Popen[bytes], timeout_s: float) -> Ray:
    until = time.monotonic() + timeout_s
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
        place.tell_use(Use(pid=os.getpid(), clean=True, keep_s=hold.keep_s, devices=hold.devices))
    else:
        end(place)
