"""Faults of Ray itself under a whole job, and of the arithmetic, with the real CPU as the device."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from orchestrator.errors import EngineLostError
from orchestrator.lifeline import HEAD_GRACE_S, Lifeline
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tasks.settings import Timing
from tests import faulty
from tests.builders import as_bundle, up_family
from tests.fakes import FakeClock
from tests.fleet import alive, facts, started, wait_for

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROOT = Path(__file__).parents[1]
FAMILIES = 9
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")
"""Without their head these servers of a node, which use no device, give up only after a minute."""
WORDS = (
    "conf=cpu",
    "space.h={start: 128, stop: 192, step: 8}",
    "space.tp=1",
    "space.roles=seed_bmm",
    "timing.max_seconds=0.3",
)
IMPATIENT = """
from orchestrator import cli, lifeline
lifeline.HEAD_GRACE_S = 3.0
cli.entry()
"""
"""The program, with less patience for a silent head: Ray's own is 60 s."""


def offspring(pid: int) -> dict[int, str]:
    """All processes below ``pid``, with the names of their programs."""
    parents: dict[int, tuple[int, str]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, _, rest = path.read_text().partition("(")[2].rpartition(")")
            parents[int(path.parent.name)] = int(rest.split()[1]), name
    found: dict[int, str] = {}
    while more := {p: name for p, (parent, name) in parents.items() if parent in {pid, *found} and p not in found}:
        found.update(more)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("server", "says"),
    [
        ("raylet", r"Ray on this node has ended: its raylet does not answer \(killed, or out of memory\?\)"),
        ("gcs_server", r"the Ray cluster's head [\d.]+:\d+ has not answered for 3 s"),
    ],
)
def test_the_end_of_ray_itself_is_a_clear_end_and_the_run_goes_on_later(tmp_path: Path, server: str, says: str) -> None:
    program = [sys.executable, "-c", IMPATIENT, *WORDS, f"run.dir={tmp_path}", "run.name=it"]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert wait_for(lambda: list(tmp_path.glob("it/shards/*/*/[!.]*.parquet")), 60)
        below = offspring(process.pid)
        (victim,) = [pid for pid, name in below.items() if name == server]
        os.kill(victim, signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 1, err
    assert re.search(says, out)
    assert "next: python -m orchestrator resume=" in out
    assert "Traceback" not in err
    rest = [pid for pid, name in below.items() if not name.startswith(AGENTS)]
    assert wait_for(lambda: not any(alive(pid) for pid in rest), 15), "a process is left"
    store = RunStore.open(tmp_path / "it")
    kept = {path: path.stat().st_mtime_ns for path in store.shard_paths()}
    assert 1 <= len(kept) < FAMILIES
    assert not list(tmp_path.glob("it/shards/*/*/.*"))
    assert store.manifest()["status"] == "unfinished"
    assert {row["status"] for row in store.read_ranking().to_pylist()} == {"ok"}
    again = [sys.executable, "-m", "orchestrator", "resume=it", f"run.dir={tmp_path}"]
    done = subprocess.run(again, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert Counter(row["h"] for row in facts(store) if row["baseline"]) == dict.fromkeys(range(128, 193, 8), 1)


def test_a_head_may_be_silent_for_a_while(tmp_path: Path) -> None:
    clock = FakeClock()
    with socket.socket(socket.AF_UNIX) as raylet, socket.create_server(("127.0.0.1", 0)) as head:
        raylet.bind(str(tmp_path / "raylet"))
        raylet.listen()
        lifeline = Lifeline(str(tmp_path / "raylet"), head.getsockname(), clock)
        assert lifeline.holds()
        address = head.getsockname()
        head.close()
        clock.now = HEAD_GRACE_S
        assert not lifeline.holds()
        with socket.create_server(address):
            clock.now += 1
            assert lifeline.holds()
        clock.now += HEAD_GRACE_S + 1
        with pytest.raises(EngineLostError, match=r"head 127\.0\.0\.1:"):
            lifeline.holds()
    with pytest.raises(EngineLostError, match="its raylet does not answer"):
        lifeline.holds()


def test_a_kernel_that_returns_wrong_values_fails_alone_and_the_rest_is_ranked(tmp_path: Path) -> None:
    folder = tmp_path / "marks"
    folder.mkdir()
    work = [as_bundle(up_family([128, faulty.WRONG_N, 192], h=h)) for h in (64, 96)]
    store = RunStore.create(tmp_path, "run", {})
    timing = Timing(soak_min_s=0.0, soak_max_s=0.0, redo_throttled=0, max_seconds=0.2)
    with started(folder, gpus=0) as fleet:
        opener = f"{faulty.HERE}:open_wrong_cpu"
        result = fleet.sweep(work, store, gpu="cpu", open_device=opener, measure=None, timing=timing)
    assert (result.bundles, result.unfinished, result.exit_code) == (2, 0, 1)
    assert {item.facts.status for item in result.failures} == {"wrong_result"}
    rows = rank(store).table.to_pylist()
    assert {(row["h"], row["d_ff"]) for row in rows if row["rank"]} == {(h, d) for h in (64, 96) for d in (128, 192)}
    failed = [row for row in rows if row["rank"] is None]
    assert {(row["d_ff"], row["status"]) for row in failed} == {(faulty.WRONG_N, "wrong_result")}
    assert all("relative error 1 against float64" in row["message"] for row in failed)
