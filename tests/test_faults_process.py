"""Killed, interrupted, stopped and left alone: the whole job as processes, on the CPU."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.store import RunStore
from tests import jobs, promise
from tests.jobs import FAMILIES, HOOKS, SMALL, Job, begun, bundles, job, journal, resume, until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


LONG_FAMILIES = 60
LONG = (*SMALL[:-1], f"space.h={{start: 32, stop: {24 + 8 * LONG_FAMILIES}, step: 8}}")


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A sweep of LONG whose driver was killed; Ray's agents end within a minute or so, while the tests go on."""
    with job(tmp_path_factory.mktemp("killed") / "results", *LONG, pace_s=0.3) as driver:
        driver.under_way().kill(signal.SIGKILL)
        assert driver.end() == -signal.SIGKILL
        driver.none_left()
        yield driver
        driver.none_left(90, agents=True)


@pytest.fixture(scope="module")
def going_on(killed: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of that sweep, for tests that each go on with it, whoever stopped it last, and stop it their way."""
    return copied(killed.run.parent, tmp_path_factory.mktemp("going-on"))


def copied(results: Path, folder: Path) -> Path:
    """Copy a run's results, and the journal of what was measured."""
    shutil.copytree(results.parent, folder, dirs_exist_ok=True)
    return folder / results.name


def status(run: Path) -> str:
    return str(RunStore.open(run).manifest()["status"])


def ended(run: Path) -> set[str]:
    """The Bundles that are done: those with a Shard, but for those of which an interrupt left too little."""
    facts = RunStore.open(run).reader().facts().table.to_pylist()
    short = {row["bundle_id"] for row in facts if row["stop_reason"] == "interrupted" and row["rounds"] < 2}
    return bundles(run.glob("shards/*/*/[!.]*.parquet")) - short


def lost(results: Path) -> int:
    """How many measurements have ended and are not on disk."""
    samples = RunStore.open(results / "it").reader().samples().table
    on_disk = {(row["bundle_id"], row["attempt"]) for row in samples.select(["bundle_id", "attempt"]).to_pylist()}
    return len(journal(results, "end")) - len(on_disk)


@contextmanager
def resumed(results: Path, *, may_lose: int = 0, **options: Any) -> Iterator[Job]:
    """Go on with a run that was stopped, until something stops it; fail unless it keeps the promise.

    may_lose: how many measurements that have ended need not be on disk, by this stop alone.
    """
    had, before, gone = ended(results / "it"), len(begun(results)), lost(results)
    with job(results, "resume=it", name=None, **options) as driver:
        driver.run = results / "it"
        yield driver
        driver.none_left()
    again = begun(results)[before:]
    assert len(again) == len(set(again))
    assert set(again).isdisjoint(had)
    promise.check(driver.run, ended=journal(results, "end"), lost=gone + may_lose)


def test_a_killed_driver_loses_the_families_in_flight_alone(killed: Job) -> None:
    results = killed.run.parent
    assert len(begun(results)) <= len(killed.shards()) + 2  # one worker, and what it got while a Shard was written
    assert (killed.run / ".lock").exists()  # which does not stop the next driver
    assert status(killed.run) == "running"
    promise.check(killed.run, ended=journal(results, "end"), lost=1)


def terminal(driver: Job) -> None:
    driver.press_ctrl_c()


def terminate(driver: Job) -> None:
    driver.kill(signal.SIGTERM)


def terminate_all(driver: Job) -> None:
    os.killpg(driver.process.pid, signal.SIGTERM)  # as timeout, Slurm and systemd do


def hang_up(driver: Job) -> None:
    driver.hang_up()


@pytest.mark.parametrize("stop", [terminal, terminate, terminate_all, hang_up])
def test_an_interrupt_keeps_and_ranks_what_is_measured(going_on: Path, stop: Callable[[Job], None]) -> None:
    at_terminal = stop in (terminal, hang_up)
    with resumed(going_on, may_lose=stop is terminate_all, pace_s=0.3, terminal=at_terminal) as driver:
        stop(driver.under_way(len(driver.shards()) + 2))
        assert driver.end() == 130, driver.err
        driver.none_left()
    assert "next: python -m orchestrator resume=" in driver.out
    assert "seed_bmm h=" in driver.out
    assert status(driver.run) == "interrupted"


def test_a_second_ctrl_c_stops_at_once(going_on: Path) -> None:
    ranked = len(journal(going_on, "rank"))
    with resumed(going_on, terminal=True, env={"FAULT_HOLD": "3"}) as driver:
        had = len(driver.shards())
        driver.under_way(had + 2)
        until(lambda: journal(going_on, "held"), "a measurement that heeds nobody")
        driver.press_ctrl_c()
        time.sleep(0.5)
        began = time.monotonic()
        driver.press_ctrl_c()
        until(lambda: len(journal(going_on, "rank")) > ranked, "the ranking")
        assert time.monotonic() - began < 4.5  # the first alone waits for 5 s
        assert driver.end() == 130
    assert len(driver.shards()) == had + 2
    assert status(driver.run) == "interrupted"


def test_a_third_signal_ends_the_process_as_it_is(going_on: Path) -> None:
    ranked = len(journal(going_on, "rank"))
    with resumed(going_on, env={"FAULT_RANK_S": "60"}, pace_s=0.3) as driver:
        driver.under_way(len(driver.shards()) + 2).kill(signal.SIGINT)
        until(lambda: len(journal(going_on, "rank")) > ranked, "the ranking")
        for _ in range(2):
            driver.kill(signal.SIGINT)
        assert driver.end(20) == 130


def test_a_resume_measures_all_that_is_left_and_its_ranking_may_be_stopped_and_made_by_the_next(
    going_on: Path, tmp_path: Path
) -> None:
    results = copied(going_on, tmp_path)
    had, before, ranked = ended(results / "it"), len(begun(results)), len(journal(results, "rank"))
    with resumed(results, terminal=True, env={"FAULT_RANK_S": "60"}) as driver:
        until(lambda: len(journal(results, "rank")) > ranked, "the ranking")
        driver.press_ctrl_c()
        time.sleep(0.3)
        driver.press_ctrl_c()
        assert driver.end(20) == 130
    assert len(begun(results)[before:]) == LONG_FAMILIES - len(had)
    assert status(driver.run) == "interrupted"
    gone = lost(results)
    done = resume(results)
    assert done.code == 0, done.err
    assert "nothing to do" in done.err
    done.none_left()
    assert len(begun(results)[before:]) == LONG_FAMILIES - len(had)
    promise.check(driver.run, status="finished", ended=journal(results, "end"), lost=gone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("process", ["python", "gcs_server", "raylet"])
def test_an_interrupt_while_ray_starts_leaves_nothing_behind(
    results: Path, number: signal.Signals, process: str
) -> None:
    with job(results, *SMALL, terminal=True) as driver:
        until(lambda: process in driver.processes(), process)
        if process == "python":
            time.sleep(0.4)  # while modules are imported
        driver.kill(number)
        assert driver.end(20) == 130
        driver.none_left()
    assert "interrupted" in driver.err
    assert not (results / "it").exists()


def test_an_interrupt_while_it_ranks_costs_no_ranking(results: Path) -> None:
    with job(results, *SMALL, terminal=True, env={"FAULT_RANK_S": "1"}) as driver:
        until(lambda: journal(results, "rank"), "the ranking")
        driver.press_ctrl_c()
        assert driver.end() == 130
        driver.none_left()
    assert "seed_bmm h=" in driver.out
    promise.check(driver.run, status="finished", ended=journal(results, "end"))


def test_streams_that_nobody_reads_any_more_stop_no_sweep_and_change_no_exit_code(results: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with job(results, *SMALL, pace_s=0.3, stdout=writer) as driver:
        os.close(writer)
        stderr = driver.under_way().process.stderr
        assert stderr is not None
        stderr.close()
        assert driver.process.wait(60) == 0
    promise.check(driver.run, status="finished", ended=journal(results, "end"))


def test_a_sweep_under_nohup_outlives_its_terminal(results: Path) -> None:
    # as nohup starts it, but with the progress on the terminal: that it can no longer be drawn must not matter either
    ignoring = ("-c", "import signal, runpy; signal.signal(signal.SIGHUP, signal.SIG_IGN); "
                "runpy.run_module('orchestrator', run_name='__main__', alter_sys=True)")  # fmt: skip
    with job(results, *SMALL, pace_s=0.3, terminal=True, module=ignoring) as driver:
        driver.under_way().hang_up()
        assert driver.end() == 0
    promise.check(driver.run, status="finished", ended=journal(results, "end"))


def test_a_driver_that_is_stopped_for_a_while_takes_nobody_for_hanging(results: Path) -> None:
    # 5 s, of which a Family has 3; the worker has ended its Family meanwhile and waits
    with job(results, *SMALL, "run.least_deadline_s=3", "timing.redo_throttled=0", pace_s=0.4) as driver:
        driver.under_way().kill(signal.SIGSTOP)
        time.sleep(5)
        driver.kill(signal.SIGCONT)
        assert driver.end() == 0, driver.err
    assert "not done after" not in driver.err
    promise.check(driver.run, status="finished", ended=journal(results, "end"))
    assert len(begun(results)) == FAMILIES


@pytest.fixture(scope="module")
def jumping_clock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library that goes before libc's clock."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("clock") / "clock.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(HOOKS / "clock.c")], check=True)
    return library


def test_a_wall_clock_that_jumps_by_days_forwards_and_back_costs_nothing(results: Path, jumping_clock: Path) -> None:
    offset = results.parent / "offset"
    offset.write_bytes(struct.pack("<q", 0))
    env = {"LD_PRELOAD": str(jumping_clock), "CLOCK_OFFSET": str(offset)}  # also of all that Ray starts
    with job(results, *SMALL, "run.least_deadline_s=20", pace_s=0.4, env=env) as driver:
        for shards, days in ((2, -4), (3, 4), (5, -4)):
            driver.under_way(shards)
            with offset.open("r+b") as file:
                file.write(struct.pack("<q", days * 86400))
        assert driver.end() == 0, driver.err
    promise.check(driver.run, status="finished", ended=journal(results, "end"))
    manifest = json.loads((driver.run / "manifest.json").read_text())
    assert manifest["started_utc"] > manifest["ended_utc"]  # the clock did jump
    assert "nothing to do" in jobs.resume(results).err
