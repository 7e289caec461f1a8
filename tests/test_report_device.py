"""Devices in a report: what each did, and its course."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from orchestrator.canary import Reading
from orchestrator.fleet import DeviceSummary, Fleet
from orchestrator.ranking import Ranking
from orchestrator.report.device import courses, devices, round_levels
from orchestrator.report.source import open_runs
from orchestrator.visits import Visits, shard_key
from tests.reports import EXAMPLES, made_run

BEGIN = datetime(2026, 11, 29, 10, tzinfo=UTC)


def test_a_device_is_summed_up_over_its_shards() -> None:
    run = made_run([], shards=[{}, {"sm_clock_mean_mhz": 1750.0, "temperature_max_c": 65.0, "throttled": True}])
    (found,) = devices(run)
    assert (found.clock_mean, found.clock_min, found.temperature, found.power) == (1700.0, 1320.0, 65.0, 690.0)
    assert (found.energy, found.shards, found.families) == (3450.0, 2, 1)
    assert found.state == "throttled in 1 of 2 Shards"
    assert not found.well


def test_what_is_not_known_of_a_device_stays_unknown() -> None:
    unknown = dict.fromkeys(("sm_clock_mean_mhz", "sm_clock_min_mhz", "temperature_max_c", "power_mean_w"))
    (found,) = devices(made_run([], shards=[{**unknown, "window_energy_j": None, "power_limited": None}]))
    assert (found.clock_mean, found.clock_min, found.temperature, found.power, found.energy) == (None,) * 5
    assert found.state == "ok"


def test_suspect_devices_come_first_then_the_slow_ones() -> None:
    run = made_run([], shards=[{"uuid": f"GPU-{i}"} for i in range(3)])
    fleet = Fleet(
        gpu="NVIDIA H200",
        devices=(
            DeviceSummary(uuid="GPU-0", host="", families=1, time=0.01),
            DeviceSummary(uuid="GPU-1", host="", families=1, time=0.03),
            DeviceSummary(uuid="GPU-2", host="", families=1, time=0.02, reason="took 5% longer"),
        ),
    )
    run = made_run([], shards=run.shards, ranking=Ranking(table=run.ranking.table, fleets=(fleet,)))
    assert [device.uuid for device in devices(run)] == ["GPU-2", "GPU-1", "GPU-0"]
    assert devices(run)[0].state == "suspect: took 5% longer"


def test_a_round_is_compared_with_what_each_gemm_takes_in_the_middle() -> None:
    # Both Gemms take 10% longer in the last round; the third left the rounds, so it tells nothing.
    seconds = np.array([[1.0, 2.0, 9.0], [1.0, 2.0, 1.0], [1.1, 2.2, np.nan]])
    shares, levels = zip(*round_levels(seconds, 3), strict=True)
    assert shares == pytest.approx((1 / 6, 3 / 6, 5 / 6))
    assert levels == pytest.approx((0.0, 0.0, 10.0))
    assert round_levels(seconds, 1) == [(0.5, 0.0)]


def test_a_course_runs_in_minutes_from_the_runs_first_shard() -> None:
    later = BEGIN + timedelta(minutes=5)
    shards = [
        {"started_utc": BEGIN, "uuid": "GPU-1", "measuring_s": 60.0},
        {"started_utc": later, "prepare_s": 30.0, "soak_s": 30.0, "measuring_s": 60.0, "power_mean_w": None},
    ]
    (found,) = courses(made_run([], shards=shards), ["GPU-0"])
    assert found.minutes == [6.5]  # five, one of waiting, and the middle of the one of measuring
    assert (found.clock_mean, found.power, found.temperature) == ([1650.0], [None], [61.0])


@pytest.mark.parametrize(("protocol", "points"), [("interleaved", 3), ("sequential", 0), ("seed", 0)])
def test_calls_of_shapes_one_after_another_are_no_course(protocol: str, points: int) -> None:
    shard = {"started_utc": BEGIN, "protocol": protocol}
    run = made_run([], shards=[shard])
    seconds = np.array([[1.0, 2.0], [1.0, 2.0], [1.1, 2.2]])
    visits = {shard_key(run.shards[0]): Visits(columns={"a": 0, "b": 1}, seconds=seconds, rounds=np.arange(3))}
    (found,) = courses(made_run([], shards=[shard], ranking=replace(run.ranking, visits=visits)), ["GPU-0"])
    assert (len(found.level), len(found.minutes)) == (points, 1)


def test_canaries_are_compared_with_their_median() -> None:
    canary = {"bundle_id": "canary-x", "family_id": "canary-x", "started_utc": BEGIN, "measuring_s": 0.0}
    shards = [{**canary, "attempt": number} for number in (1, 2, 3)]
    readings = tuple(
        Reading(model="NVIDIA H200", uuid="GPU-0", number=number, seconds=seconds)
        for number, seconds in ((1, 1.0), (2, 1.0), (3, 1.05))
    )
    table = made_run([]).ranking.table
    run = made_run([], shards=shards, ranking=Ranking(table=table, readings=readings))
    (found,) = courses(run, ["GPU-0"])
    assert found.canary_level == pytest.approx([0.0, 0.0, 5.0])
    assert found.minutes == []


def test_the_committed_run_has_rounds_clocks_and_power() -> None:
    (run,) = open_runs(["examples/h200-fp8"], str(EXAMPLES.parent))
    (device,) = devices(run)
    (course,) = courses(run, [device.uuid])
    assert (device.families, device.shards, len(course.minutes)) == (12, 12, 12)
    assert len(course.level) == 12 * 8
    assert course.minutes == sorted(course.minutes)
    assert all(clock is not None and 1200 < clock <= 1980 for clock in course.clock_mean)
