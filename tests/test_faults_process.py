"""Killed, interrupted, stopped and left alone: the whole job as processes, on the CPU."""

import json
import os
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.store import RunStore
from tests import jobs, promise
from tests.jobs import FAMILIES, HOOKS, SMALL, Job, begun, bundles, job, journal, resume, until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results"


def status(run: Path) -> str:
    return str(RunStore.open(run).manifest()["status"])


def completed(results: Path, *, lost: int = 0) -> Job:
    """Resume the run; fail unless what had no Shard is measured, and nothing else."""
    run = results / "it"
    had, before = bundles(run.glob("shards/*/*/[!.]*.parquet")), len(begun(results))
    short = {
        row["bundle_id"]
        for row in RunStore.open(run).read_facts().table.to_pylist()
        if row["stop_reason"] == "interrupted" and row["rounds"] < 2
    }
    done = resume(results)
    assert done.code == 0, done.err
    again = begun(results)[before:]
    assert len(again) == len(set(again)) == FAMILIES - len(had - short)
    assert set(again).isdisjoint(had - short)
    promise.check(run, status="finished", ended=journal(results, "end"), lost=lost)
    done.none_left()
    return done


def test_a_killed_driver_loses_the_families_in_flight_alone(results: Path) -> None:
    with job(results, *SMALL, pace_s=0.3) as driver:
        driver.under_way().kill(signal.SIGKILL)
        assert driver.end() == -signal.SIGKILL
        driver.none_left()
        driver.none_left(90, agents=True)
    assert len(begun(results)) <= len(driver.shards()) + 2  # one worker, and what it got while a Shard was written
    assert (driver.run / ".lock").exists()  # which does not stop the next driver
    assert status(driver.run) == "running"
    promise.check(driver.run, ended=journal(results, "end"), lost=1)
    completed(results, lost=1)


def terminal(driver: Job) -> None:
    driver.press_ctrl_c()


def terminate(driver: Job) -> None:
    driver.kill(signal.SIGTERM)


def terminate_all(driver: Job) -> None:
    os.killpg(driver.process.pid, signal.SIGTERM)  # as timeout, Slurm and systemd do


def hang_up(driver: Job) -> None:
    driver.hang_up()


@pytest.mark.parametrize("stop", [terminal, terminate, terminate_all, hang_up])
def test_an_interrupt_keeps_and_ranks_what_is_measured(results: Path, stop: Callable[[Job], None]) -> None:
    with job(results, *SMALL, pace_s=0.3, terminal=stop in (terminal, hang_up)) as driver:
        stop(driver.under_way())
        assert driver.end() == 130
        driver.none_left()
    assert "next: python -m orchestrator resume=" in driver.out
    assert "seed_bmm h=" in driver.out
    promise.check(driver.run, status="interrupted", ended=journal(results, "end"), lost=stop is terminate_all)
    completed(results, lost=1)


def test_a_second_ctrl_c_stops_at_once(results: Path) -> None:
    with job(results, *SMALL, terminal=True, env={"FAULT_HOLD": "3"}) as driver:
        driver.under_way()
        until(lambda: journal(results, "held"), "a measurement that heeds nobody")
        driver.press_ctrl_c()
        time.sleep(0.5)
        began = time.monotonic()
        driver.press_ctrl_c()
        until(lambda: journal(results, "rank"), "the ranking")
        assert time.monotonic() - began < 4.5  # the first alone waits for 5 s
        assert driver.end() == 130
        driver.none_left()
    assert len(driver.shards()) == 2
    promise.check(driver.run, status="interrupted", ended=journal(results, "end"))
    completed(results)


def test_a_third_signal_ends_the_process_as_it_is(results: Path) -> None:
    with job(results, *SMALL, env={"FAULT_RANK_S": "60"}, pace_s=0.3) as driver:
        driver.under_way().kill(signal.SIGINT)
        until(lambda: journal(results, "rank"), "the ranking")
        for _ in range(2):
            driver.kill(signal.SIGINT)
        assert driver.end(20) == 130
        driver.none_left()
    promise.check(driver.run, ended=journal(results, "end"))
    completed(results)


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


def test_a_ranking_that_is_stopped_is_made_by_the_next_resume(results: Path) -> None:
    with job(results, *SMALL, terminal=True, env={"FAULT_RANK_S": "60"}) as driver:
        until(lambda: journal(results, "rank"), "the ranking")
        driver.press_ctrl_c()
        time.sleep(0.3)
        driver.press_ctrl_c()
        assert driver.end(20) == 130
        driver.none_left()
    promise.check(driver.run, status="interrupted", ended=journal(results, "end"))
    assert "nothing to do" in completed(results).err


def test_a_reader_that_leaves_changes_no_exit_code(results: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with job(results, *SMALL, stdout=writer) as driver:
        os.close(writer)
        assert driver.end() == 0, driver.err
    promise.check(driver.run, status="finished", ended=journal(results, "end"))


def test_standard_error_that_nobody_reads_any_more_stops_no_sweep(results: Path) -> None:
    with job(results, *SMALL, pace_s=0.3) as driver:
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


@pytest.mark.parametrize("days", [4, -4])
def test_a_wall_clock_that_jumps_by_days_and_back_costs_nothing(results: Path, jumping_clock: Path, days: int) -> None:
    offset = results.parent / "offset"
    offset.write_bytes(struct.pack("<q", 0))
    env = {"LD_PRELOAD": str(jumping_clock), "CLOCK_OFFSET": str(offset)}  # also of all that Ray starts
    with job(results, *SMALL, "run.least_deadline_s=20", pace_s=0.4, env=env) as driver:
        for shards, seconds in ((2, days * 86400), (4, -days * 86400)):
            driver.under_way(shards)
            with offset.open("r+b") as file:
                file.write(struct.pack("<q", seconds))
        assert driver.end() == 0, driver.err
    promise.check(driver.run, status="finished", ended=journal(results, "end"))
    manifest = json.loads((driver.run / "manifest.json").read_text())
    assert (manifest["started_utc"] > manifest["ended_utc"]) == (days > 0)  # the clock did jump
    assert "nothing to do" in jobs.resume(results).err
