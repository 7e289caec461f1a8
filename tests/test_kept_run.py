"""Commands that go on with the Ray and the workers of the one before: real processes, on the CPU."""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.store import RunStore
from tests.jobs import SMALL, job, processes

pytestmark = pytest.mark.ray

FEW = (*SMALL[:-1], "space.h=32,40")
MANY = (*SMALL[:-1], "space.h={start: 32, stop: 504, step: 8}")


@pytest.fixture
def scratch() -> Iterator[Path]:
    """Where the commands of one test find each other; a short path, for there are sockets in it."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def worker(scratch: Path) -> int:
    """The process that measures; there is one."""
    (found,) = (pid for pid, name in processes(f"TMPDIR={scratch}") if name.startswith("ray::Actor"))
    return found


def window(results: Path, name: str) -> tuple[float, float]:
    """When a run began to measure, and when it ended."""
    facts = RunStore.open(results / name).reader().facts(["started_utc", "prepare_s", "measuring_s"]).table.to_pylist()
    ends = [row["started_utc"].timestamp() + row["prepare_s"] + row["measuring_s"] for row in facts]
    return min(row["started_utc"].timestamp() for row in facts), max(ends)


def test_commands_go_on_with_kept_workers_one_after_another_and_nothing_outlives_its_use(
    tmp_path: Path, scratch: Path
) -> None:
    results, env = tmp_path / "results", {"TMPDIR": str(scratch)}
    with ExitStack() as stack:  # what the first has left would be killed with it
        first = stack.enter_context(job(results, *FEW, "--keep", env=env, name="first", pace_s=0.1))
        assert first.end() == 0, first.err
        assert "kept for 300 s: Ray and workers that hold 1 x " in first.err
        kept = worker(scratch)

        both = [stack.enter_context(job(results, *FEW, "--keep", env=env, name=name)) for name in ("one", "two")]
        assert [each.end() for each in both] == [0, 0], [each.err for each in both]
        assert worker(scratch) == kept
        one, two = sorted(window(results, name) for name in ("one", "two"))
        assert one[1] <= two[0]
        assert RunStore.open(results / "two").manifest()["seconds"]["device"] < 1.0

        os.kill(kept, signal.SIGKILL)
        killed = stack.enter_context(job(results, *MANY, "--keep", env=env, name="killed"))
        killed.under_way()
        assert worker(scratch) != kept
        killed.kill(signal.SIGKILL)
        assert killed.end() == -signal.SIGKILL
        first.none_left()
