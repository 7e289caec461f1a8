"""The driver's loop, against an Engine in this process."""

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from orchestrator.crew import FRESH_S
from orchestrator.dispatch import DRAIN_S, Dispatcher
from orchestrator.engine import Event, Failure, Report, Result
from orchestrator.errors import StoreError
from orchestrator.progress import Board, LogView
from orchestrator.queue import Assignment, BundleQueue
from tasks.family import Bundle
from tasks.records import DeviceInfo
from tests.fakes import FakeClock, FakeEngine, bundle, dead, device_info, good

Measures = Callable[[Assignment], Report | None]
H200 = {"n": [device_info(0), device_info(1)]}


class Ends:
    """Records ends by bundle id."""

    def __init__(self) -> None:
        self.measured_by: dict[str, str] = {}
        self.lost: dict[str, Failure] = {}
        self.count: Counter[str] = Counter()

    def measured(self, assignment: Assignment, result: Result) -> None:
        self.count[assignment.bundle_id] += 1
        self.measured_by[assignment.bundle_id] = assignment.device

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        self.count[assignment.bundle_id] += 1
        self.lost[assignment.bundle_id] = failure


class Bench:
    """A Dispatcher with a fake engine, clock and recorder."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        measures: Measures = good,
        places: dict[str, list[DeviceInfo]] = H200,
        **options: object,
    ) -> None:
        work = list(bundles)
        self.clock = FakeClock()
        self.engine = FakeEngine(places, measures, self.clock)
        self.ends = Ends()
        self.dispatcher = Dispatcher(
            engine=self.engine,
            queue=BundleQueue(work),
            recorder=self.ends,
            board=Board(work, LogView(self.clock), self.clock),
            clock=self.clock,
            **{"accepts": lambda device: device.gpu == "NVIDIA H200", **options},  # type: ignore[arg-type]
        )


def test_every_bundle_is_measured_once_and_all_workers_end() -> None:
    bench = Bench(bundle(h) for h in range(1, 21))
    assert bench.dispatcher.run() == ""
    assert bench.ends.count == {bundle(h).bundle_id: 1 for h in range(1, 21)}
    assert set(bench.ends.measured_by.values()) == {"GPU-fake-0", "GPU-fake-1"}
    assert bench.engine.workers == {}
    assert bench.clock.now < 1


def test_starts_no_more_workers_than_there_are_bundles() -> None:
    bench = Bench([bundle(1)], places={"n": [device_info(index) for index in range(8)]})
    bench.dispatcher.run()
    assert len(bench.engine.stopped) == 1


def test_max_workers_is_kept() -> None:
    bench = Bench((bundle(h) for h in range(1, 9)), max_workers=1)
    assert bench.dispatcher.run() == ""
    assert len(set(bench.ends.measured_by.values())) == 1


def test_a_death_is_tried_again_on_the_other_device() -> None:
    def measures(assignment: Assignment) -> Report:
        return dead(assignment) if assignment.device == "GPU-fake-0" and assignment.attempt == 1 else good(assignment)

    bench = Bench((bundle(h) for h in (3, 2)), measures)
    assert bench.dispatcher.run() == ""
    assert bench.ends.lost == {}
    assert bench.ends.measured_by[bundle(3).bundle_id] == "GPU-fake-1"


def test_two_deaths_are_recorded_and_the_rest_is_measured() -> None:
    bench = Bench(
        (bundle(h) for h in range(1, 9)),
        lambda item: dead(item) if item.bundle.flops == bundle(5).flops else good(item),
    )
    assert bench.dispatcher.run() == ""
    assert list(bench.ends.lost) == [bundle(5).bundle_id]
    assert len(bench.ends.measured_by) == 7
    assert [item.attempt for item in bench.engine.submitted if item.bundle == bundle(5)] == [1, 2]


def test_the_next_work_goes_out_before_a_result_is_recorded() -> None:
    bench = Bench((bundle(h) for h in (3, 2)), places={"n": [device_info(0)]})
    seen: list[int] = []
    bench.ends.measured = lambda assignment, result: seen.append(len(bench.engine.submitted))  # type: ignore[method-assign]
    bench.dispatcher.run()
    assert seen == [2, 2]


def test_devices_that_nobody_asked_for_are_let_go_and_others_found() -> None:
    mixed = {"n": [device_info(index, gpu="Tesla T4" if index < 3 else "NVIDIA H200") for index in range(4)]}
    bench = Bench([bundle(1)], places=mixed)
    assert bench.dispatcher.run() == ""
    assert bench.ends.measured_by == {bundle(1).bundle_id: "GPU-fake-3"}
    assert bench.engine.workers == {}


def test_no_device_that_was_asked_for_ends_at_once() -> None:
    bench = Bench([bundle(1), bundle(2)], places={"n": [device_info(0, "Tesla T4"), device_info(1, "Tesla T4")]})
    assert bench.dispatcher.run() == "no device is one that was asked for; found 2 x Tesla T4"
    assert bench.clock.now < 2
    assert bench.engine.workers == {}


def test_devices_busy_elsewhere_end_at_the_deadline(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench([bundle(1), bundle(2)], places={"n": []}, start_timeout_s=40.0)
    bench.engine.places = lambda: {"n": 2}  # type: ignore[method-assign]
    problem = bench.dispatcher.run()
    assert problem == "no worker was ready within cluster.start_timeout_s=40: 2 GPUs stayed busy elsewhere"
    assert 40 <= bench.clock.now <= 41
    assert [record.getMessage() for record in caplog.records] == ["waiting for 2 GPUs busy elsewhere"]


def test_one_busy_device_does_not_keep_the_others_waiting() -> None:
    bench = Bench((bundle(h) for h in (1, 2)), places={"n": [device_info(0)]}, start_timeout_s=5.0)
    bench.engine.places = lambda: {"n": 2}  # type: ignore[method-assign]
    assert bench.dispatcher.run() == ""
    assert len(bench.ends.measured_by) == 2
    assert bench.engine.workers == {}


def test_a_busy_node_does_not_hold_the_only_bundle() -> None:
    bench = Bench([bundle(1)], places={"busy": [], "free": [device_info(0)]})
    bench.engine.places = lambda: {"busy": 1, "free": 1}  # type: ignore[method-assign]
    assert bench.dispatcher.run() == ""
    assert FRESH_S <= bench.clock.now <= FRESH_S + 1


def test_devices_that_do_not_open_are_given_up_after_three_tries() -> None:
    bench = Bench([bundle(1)], places={"n": [device_info(0)]})
    start = bench.engine.start

    def failing(place: str) -> str:
        name = start(place)
        bench.engine._events.clear()
        bench.engine._events.append(_event(name, Failure(status="worker_died", message="no CUDA")))
        return name

    bench.engine.start = failing  # type: ignore[method-assign]
    assert bench.dispatcher.run() == "no device is left to measure on\n  no CUDA"
    assert len(bench.engine.stopped) == 3
    assert bench.clock.now >= 2  # a second between the tries


def test_two_workers_on_one_device_are_one_too_many() -> None:
    twice = {"n": [device_info(0), device_info(0)]}
    bench = Bench((bundle(h) for h in range(1, 5)), places=twice)
    assert bench.dispatcher.run() == ""
    assert len(bench.ends.measured_by) == 4


def test_devices_that_join_start_taking_work() -> None:
    bench = Bench((bundle(h) for h in range(1, 4)), lambda item: None if item.device == "GPU-fake-0" else good(item))
    bench.engine.places = lambda: {"n": 1 if bench.clock.now < 3 else 2}  # type: ignore[method-assign]
    bench.dispatcher.stop = lambda: bench.dispatcher.queue.waiting == 0
    assert bench.dispatcher.run() == ""
    assert set(bench.ends.measured_by.values()) == {"GPU-fake-1"}
    assert len(bench.ends.measured_by) == 2


def test_an_interrupt_stops_dispatch_and_waits_a_little_for_what_is_in_flight() -> None:
    bench = Bench((bundle(h) for h in range(1, 9)), lambda item: None)
    bench.dispatcher.stop = lambda: bench.clock.now >= 1
    assert bench.dispatcher.run() == ""
    assert len(bench.engine.submitted) == 2
    assert DRAIN_S + 1 <= bench.clock.now <= DRAIN_S + 2
    assert bench.engine.workers == {}
    assert bench.dispatcher.queue.unfinished == 8


def test_workers_end_when_a_result_cannot_be_written() -> None:
    bench = Bench([bundle(1)])

    def full(assignment: Assignment, result: Result) -> None:
        raise StoreError("disk full")

    bench.ends.measured = full  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="disk full"):
        bench.dispatcher.run()
    assert bench.engine.workers == {}


def test_a_large_fleet_with_deaths_ends_every_bundle_once_at_little_cost() -> None:
    chance = random.Random(1)
    work = [bundle(h) for h in range(1, 2001)]
    fleet = {f"n{node}": [device_info(f"{node}-{index}") for index in range(8)] for node in range(32)}
    bench = Bench(work, lambda item: dead(item) if chance.random() < 0.01 else good(item), places=fleet)
    began = time.perf_counter()
    assert bench.dispatcher.run() == ""
    assert set(bench.ends.count.values()) == {1}
    assert len(bench.ends.count) == 2000
    assert (time.perf_counter() - began) / 2000 < 0.001


def _event(name: str, report: Report) -> Event:
    return Event(worker=name, report=report)
