"""Real Ray clusters for tests, started as docs/launch says: each process is found again, and none is left behind."""

import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]
SCRIPTS = ROOT / "docs" / "launch"
BIN = Path(sys.executable).parent
MARK = "LAUNCHED_BY_TEST"
"""A variable whose value all processes of one test inherit."""
WAIT_S = 60.0
END_S = 15.0
SMALL_SPACE = (
    "conf=cpu",
    "space.h=64",
    "space.tp=1",
    "space.seq=16",
    "space.d_ff={ratio: 8/3, distance: 8, step: 4}",
    "timing.max_seconds=0.2",
)
"""A sweep of two Families on the CPU."""


GIVEN: set[int] = set()


def free_port() -> int:
    """Return a port that nobody listens on, and that this process was not given before: a kernel may give one twice."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = int(server.getsockname()[1])
        if port not in GIVEN:
            GIVEN.add(port)
            return port


def marked(mark: str) -> list[int]:
    """Return the processes that have inherited ``mark``, apart from those that have ended."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue  # ended, or somebody else's
    return found


class Launch:
    """One test's processes, with a token, a temporary directory and ports of their own."""

    def __init__(self, folder: Path, extra: Mapping[str, str]) -> None:
        self.mark = secrets.token_hex(8)
        self.folder = folder
        self._started: list[subprocess.Popen[str]] = []
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "SLURM_"))}
        self.environment = {
            **kept,
            "HOME": str(folder),
            "PATH": f"{BIN}{os.pathsep}{kept['PATH']}",
            "CUDA_VISIBLE_DEVICES": "",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": str(folder),
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            MARK: self.mark,
            **extra,
        }

    def popen(self, *words: str, **extra: str) -> subprocess.Popen[str]:
        """Start a command in a process group of its own, its output in a file."""
        with (self.folder / f"{len(self._started)}.log").open("w") as stream:
            process = subprocess.Popen(
                [*words],
                env={**self.environment, **extra},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                text=True,
            )
        self._started.append(process)
        return process

    def run(self, *words: str, cwd: Path = ROOT, **extra: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(
            [*words],
            env={**self.environment, **extra},
            cwd=cwd,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def logs(self) -> str:
        """Return what the commands have written so far."""
        return "\n".join(path.read_text() for path in sorted(self.folder.glob("*.log")))

    def end(self) -> list[int]:
        """End all processes; return those that did not end when they were told to."""
        stop_ray(self.mark)
        left = terminate(marked(self.mark))
        for process in left:
            os.kill(process, signal.SIGKILL)
        for started in self._started:
            started.wait(10)
        return left


def stop_ray(mark: str) -> None:
    """End the Ray of one test as ``ray stop`` ends all of a host, its GCS last: the others say farewell to it."""
    for pattern in (r"/raylet$", r"/ray/.*\.py$", r"/gcs_server$"):
        terminate([process for process in marked(mark) if any(re.search(pattern, word) for word in words(process))])


def words(process: int) -> list[str]:
    """Return a process's command line; nothing where it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text().split("\0")[:-1]
    except OSError:
        return []


def terminate(processes: Sequence[int]) -> list[int]:
    """Send SIGTERM; return those that have not ended some seconds later."""
    left = list(processes)
    for process in left:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    until = time.monotonic() + END_S
    while (left := [process for process in left if words(process)]) and time.monotonic() < until:
        time.sleep(0.05)
    return left


@contextmanager
def launch(**extra: str) -> Iterator[Launch]:
    """Yield a Launch in a folder whose name is short, for Ray's sockets are in it. All of it is gone afterwards."""
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="launch-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        launched = Launch(folder, extra)
        try:
            yield launched
        finally:
            assert launched.end() == [], launched.logs()


def node_options() -> list[str]:
    """Return options of ``ray start`` that let several nodes, and other clusters, share this host."""
    ports = (
        "dashboard-agent-listen-port",
        "dashboard-agent-grpc-port",
        "metrics-export-port",
        "runtime-env-agent-port",
    )
    return ["--object-store-memory=134217728", *(f"--{name}={free_port()}" for name in ports)]


def wait_for_port(port: int, launched: Launch, process: subprocess.Popen[str]) -> None:
    """Return once something listens on ``port``."""

    def listening() -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
        return False

    wait_for(listening, launched, process)


def wait_for_shard(run: Path, launched: Launch, process: subprocess.Popen[str]) -> None:
    """Return once the run in ``run`` has a Shard."""
    wait_for(lambda: bool(list(run.glob("shards/*/*/[!.]*.parquet"))), launched, process)


def wait_for(happened: Callable[[], bool], launched: Launch, process: subprocess.Popen[str]) -> None:
    """Return once it has; a process that ends before fails the test, and so does a minute."""
    until = time.monotonic() + WAIT_S
    while not happened():
        assert process.poll() is None, launched.logs()
        assert time.monotonic() < until, launched.logs()
        time.sleep(0.1)
