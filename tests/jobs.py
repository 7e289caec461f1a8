"""The command line as a real process that a test watches, signals and kills."""

import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HOOKS = ROOT / "tests" / "hooks"
MARK = "FAULT_JOB"

SPACE = ("space.roles=seed_bmm", "space.tp=1", "space.batch=1", "space.d_ff={ratio: 8/3, distance: 4, step: 4}")
QUICK = ("timing.min_rounds=2", "timing.max_rounds=3", "timing.max_seconds=0.05")
FAMILIES = 8
SMALL = ("conf=cpu", *SPACE, *QUICK, f"space.h={{start: 32, stop: {24 + 8 * FAMILIES}, step: 8}}")
"""A sweep of FAMILIES Families, each a Bundle, of some milliseconds each."""
AGENTS = ("python", "ray::DashboardA", "ray::RuntimeEnv")
"""As the kernel names them, first and later."""
LIMIT_S = 120.0
"""For what takes seconds: the machine may be busy."""


def until(condition: Callable[[], Any], what: str, limit_s: float = LIMIT_S) -> Any:
    """Wait for a condition; return what it gave."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError(f"{what}: not within {limit_s:g} s")


class Job:
    """One started command; ``out`` and ``err`` are what it has written, once it has ended."""

    def __init__(self, process: subprocess.Popen[bytes], mark: str, run: Path, master: int | None) -> None:
        self.process = process
        self.mark = mark
        self.run = run
        self.master = master
        self.out = self.err = ""
        self._read: list[bytes] = []
        self._reader = threading.Thread(target=self._drain, args=(master,), daemon=True)
        if master is not None:
            self._reader.start()

    def _drain(self, master: int | None) -> None:
        assert master is not None
        try:
            while data := os.read(master, 65536):
                self._read.append(data)
        except OSError:
            return  # the other end, or this one, is closed

    def shards(self) -> list[Path]:
        """The Shards that are on disk now."""
        return sorted(self.run.glob("shards/*/*/[!.]*.parquet"))

    def under_way(self, shards: int = 2) -> "Job":
        """Wait until so many Shards are there."""
        until(lambda: len(self.shards()) >= shards or self.process.poll() is not None, f"{shards} shards")
        assert self.process.poll() is None, self.end()
        return self

    def end(self, limit_s: float = LIMIT_S) -> int:
        """Wait for the end; return the exit code, negative for a signal."""
        out, err = self.process.communicate(timeout=limit_s)
        if self._reader.is_alive():
            self._reader.join(
                1.0
            )  # what was written last may still be on its way; another process may hold the terminal
        self.out = (out or b"").decode()
        self.err = (err or b"").decode() + b"".join(self._read).decode(errors="replace")
        return self.process.returncode

    @property
    def code(self) -> int:
        """The exit code of a command that has ended."""
        assert self.process.returncode is not None
        return int(self.process.returncode)

    def kill(self, number: signal.Signals) -> None:
        """Send a signal to the driver alone."""
        self.process.send_signal(number)

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C: the terminal sends the signal, to all of the foreground group."""
        assert self.master is not None
        os.write(self.master, b"\x03")

    def hang_up(self) -> None:
        """Close the terminal."""
        assert self.master is not None
        os.close(self.master)
        self.master = None

    def processes(self) -> list[str]:
        """What is alive of all that the command has started."""
        return [name for _, name in processes(self.mark)]

    def none_left(self, limit_s: float = 20.0, *, agents: bool = False) -> None:
        """Fail unless all that the command has started ends soon: whatever could hold a device, and Ray's servers.

        agents: also Ray's two helpers of a node, which after a sudden death first try for 60 s to tell of it.
        """

        def left() -> list[str]:
            return [name for name in self.processes() if agents or name not in AGENTS]

        until(lambda: not left(), f"the end of {left()}", limit_s)


def processes(mark: str) -> Iterator[tuple[int, str]]:
    """Yield (process id, name) of the processes whose environment has the mark."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() in (path / "environ").read_bytes():
                yield int(path.name), (path / "comm").read_text().strip()
        except OSError:
            continue  # it has ended, or is another user's


@contextmanager
def job(
    results: Path,
    *words: str,
    terminal: bool = False,
    pace_s: float = 0.0,
    env: dict[str, str] | None = None,
    name: str | None = "it",
    module: tuple[str, ...] = ("-m", "orchestrator"),
    plain: bool = False,
    **options: Any,
) -> Iterator[Job]:
    """Start the command; whatever is left of it in the end is killed.

    plain: with these words and no others, as verbs other than ``run`` take them.
    """
    mark = uuid.uuid4().hex
    environment = {
        **os.environ,
        MARK: mark,
        "PYTHONPATH": f"{HOOKS}{os.pathsep}{ROOT}",
        "FAULT_JOURNAL": str(results.parent / "journal"),
        "FAULT_PACE_S": str(pace_s),
        **(env or {}),
    }
    places = () if plain else (f"run.dir={results}",) if name is None else (f"run.dir={results}", f"run.name={name}")
    command = [sys.executable, *module, *words, *places]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    master = None
    if terminal:
        master, slave = pty.openpty()
        streams |= {"stdin": slave, "stderr": slave, "preexec_fn": lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)}
    process = subprocess.Popen(command, **{**streams, "env": environment, "start_new_session": True, **options})
    if terminal:
        os.close(slave)
    started = Job(process, mark, results / (name or "?"), master)
    try:
        yield started
    finally:
        for pid, _ in processes(mark):
            os.kill(pid, signal.SIGKILL)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()
        if started.master is not None:
            os.close(started.master)


def finish(results: Path, *words: str, **options: Any) -> Job:
    """Run the command to its end; return it, ended."""
    with job(results, *words, **options) as started:
        started.end()
    return started


def resume(results: Path, *words: str, run: str = "latest", **options: Any) -> Job:
    """Resume a run to its end."""
    return finish(results, f"resume={run}", *words, name=None, **options)


def journal(results: Path, event: str) -> list[dict[str, Any]]:
    """What the processes of all commands on ``results`` have noted of one kind of event."""
    path = results.parent / "journal"
    events = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [found for found in events if found["event"] == event]


def begun(results: Path) -> list[str]:
    """The Bundles whose measurement has begun, in order."""
    return [event["bundle"] for event in journal(results, "begin")]


def bundles(shards: Iterable[Path]) -> set[str]:
    """The Bundles that Shards are of."""
    return {path.name.rsplit(".", 2)[0] for path in shards}
