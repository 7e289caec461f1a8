"""Faults of Ray itself under a whole job, and of the arithmetic, with the real CPU as the device."""

import functools
import os
import re
import signal
import socket
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
from tests.jobs import job, resume

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]

FAMILIES = 16
AGENTS = ("ray::DashboardA", "ray::RuntimeEnv")
"""Without their head these servers of a node, which use no device, give up only after a minute."""
WORDS = (
    "conf=cpu",
    f"space.h={{start: 128, stop: {120 + 8 * FAMILIES}, step: 8}}",
    "space.tp=1",
    "space.roles=seed_bmm",
    "timing.max_rounds=10",
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
@pytest.mark.timeout(400)
def test_the_end_of_ray_itself_is_a_clear_end_and_the_run_goes_on_later(tmp_path: Path) -> None:
    results = tmp_path / "results"
    ends = {
        "raylet": r"Ray on this node has ended: its raylet does not answer \(killed, or out of memory\?\)",
        "gcs_server": r"the Ray cluster's head [\d.]+:\d+ has not answered for 3 s",
    }
    kept: dict[Path, int] = {}
    for server, says in ends.items():
        words, name = (("resume=it",), None) if kept else (WORDS, "it")
        with job(results, *words, name=name, module=("-c", IMPATIENT), pace_s=0.5) as driver:
            driver.run = results / "it"
            driver.under_way(len(kept) + 1)
            below = offspring(driver.process.pid)
            (victim,) = [pid for pid, name in below.items() if name == server]
            os.kill(victim, signal.SIGKILL)
            assert driver.end(60) == 1, driver.err
            rest = [pid for pid, name in below.items() if not name.startswith(AGENTS)]
            assert wait_for(functools.partial(all_ended, rest), 15), "a process is left"
        assert re.search(says, driver.out)
        assert "next: python -m orchestrator resume=" in driver.out
        assert "Traceback" not in driver.err
        store = RunStore.open(driver.run)
        shards = written(store)
        assert kept.items() <= shards.items()
        assert len(kept) < len(shards) < FAMILIES
        assert not list(driver.run.glob("shards/*/*/.*"))
        assert store.manifest()["status"] == "unfinished"
        assert {row["status"] for row in store.read_ranking().to_pylist()} == {"ok"}
        kept = shards
    done = resume(results)
    assert done.code == 0, done.err
    assert kept.items() <= written(store).items()
    assert Counter(row["h"] for row in facts(store) if row["baseline"]) == dict.fromkeys(
        range(128, 128 + 8 * FAMILIES, 8), 1
    )


def all_ended(pids: list[int]) -> bool:
    return not any(alive(pid) for pid in pids)


def written(store: RunStore) -> dict[Path, int]:
    """The Shards, and when each was written."""
    return {path: path.stat().st_mtime_ns for path in store.shard_paths()}


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
