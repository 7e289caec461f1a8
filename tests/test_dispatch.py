"""The driver's loop, against an Engine in this process."""

import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest

from orchestrator.canaries import Canaries
from orchestrator.canary import canary_bundle
from orchestrator.crew import FRESH_S
from orchestrator.dispatch import DRAIN_S, Dispatcher
from orchestrator.engine import Event, Failure, Report, Result
from orchestrator.errors import StoreError
from orchestrator.lanes import Earlier, Lanes
from orchestrator.progress import Board, LogView
from orchestrator.queue import Assignment
from orchestrator.watch import Watch
from tasks.family import Bundle
from tasks.records import DeviceInfo, GemmFacts, Progress
from tests.fakes import FakeClock, FakeEngine, bundle, dead, device_info, good

Measures = Callable[[Assignment], Report | list[Report] | None]
H200 = {"n": [device_info(0), device_info(1)]}


class Ends:
    """Records ends by bundle id."""

    def __init__(self) -> None:
        self.measured_by: dict[str, str] = {}
        self.lost: dict[str, Failure] = {}
        self.count: Counter[str] = Counter()

    def measured(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        self.count[assignment.bundle_id] += 1
        self.measured_by[assignment.bundle_id] = assignment.device

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        self.count[assignment.bundle_id] += 1
        self.lost[assignment.bundle_id] = failure

    def storm(self) -> str:
        return ""


class Bench:
    """A Dispatcher with a fake engine, clock and recorder."""

    def __init__(
        self,
        bundles: Iterable[Bundle],
        measures: Measures = good,
        places: dict[str, list[DeviceInfo]] = H200,
        every: int = 0,
        **options: object,
    ) -> None:
        work = list(bundles)
        self.clock = FakeClock()
        self.engine = FakeEngine(places, measures, self.clock)
        self.ends = Ends()
        board = Board(work, LogView(self.clock), self.clock)
        self.dispatcher = Dispatcher(
            engine=self.engine,
            recorder=self.ends,
            board=board,
            canaries=Canaries(lambda: canary_bundle("fp16"), every),
            clock=self.clock,
            **{  # type: ignore[arg-type]
                "lanes": Lanes(work, on_open=board.expect),
                "accepts": lambda device: device.gpu == "NVIDIA H200",
                **options,
            },
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


def test_a_device_gets_its_next_work_when_its_result_is_in_the_recorders_hands() -> None:
    # A recorder that is behind holds its device back: so much, and no more, is lost if the driver is killed.
    bench = Bench((bundle(h) for h in (3, 2)), places={"n": [device_info(0)]})
    seen: list[int] = []

    def note(assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        seen.append(len(bench.engine.submitted))

    bench.ends.measured = note  # type: ignore[method-assign]
    bench.dispatcher.run()
    assert seen == [1, 2]


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
    bench.dispatcher.stop = lambda: bench.dispatcher.lanes.waiting == 0
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
    assert bench.dispatcher.lanes.unfinished == 8


def leaving(bench: Bench, *unable: str) -> list[str]:
    """Have the workers of ``bench`` live on, but for those that are unable; return who was asked."""
    asked: list[str] = []

    def leave(worker: str) -> bool:
        asked.append(worker)
        return worker not in unable

    bench.dispatcher.leave = leave
    return asked


def test_after_a_sweep_its_workers_live_on_where_they_may_and_can() -> None:
    bench = Bench(bundle(h) for h in range(1, 9))
    asked = leaving(bench, "w1")
    assert bench.dispatcher.run() == ""
    assert asked == ["w0", "w1"]
    assert [device.uuid for device in bench.dispatcher.left] == ["GPU-fake-0"]
    assert bench.engine.stopped == ["w1"]


def test_after_an_interrupt_or_without_hope_no_worker_lives_on() -> None:
    interrupted = Bench((bundle(h) for h in range(1, 9)), lambda item: None)
    interrupted.dispatcher.stop = lambda: interrupted.clock.now >= 1
    hopeless = Bench([bundle(1)], places={"n": [device_info(0, gpu="NVIDIA A100")]})
    for bench in (interrupted, hopeless):
        asked = leaving(bench)
        bench.dispatcher.run()
        assert (asked, bench.dispatcher.left, bench.engine.workers) == ([], [], {})


def test_workers_end_when_a_result_cannot_be_written() -> None:
    bench = Bench([bundle(1)])

    def full(assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        raise StoreError("disk full")

    bench.ends.measured = full  # type: ignore[method-assign]
    with pytest.raises(StoreError, match="disk full"):
        bench.dispatcher.run()
    assert bench.engine.workers == {}


def test_a_large_fleet_with_deaths_ends_every_bundle_once() -> None:
    chance = random.Random(1)
    work = [bundle(h) for h in range(1, 2001)]
    fleet = {f"n{node}": [device_info(f"{node}-{index}") for index in range(8)] for node in range(32)}
    bench = Bench(work, lambda item: dead(item) if chance.random() < 0.01 else good(item), places=fleet)
    assert bench.dispatcher.run() == ""
    assert set(bench.ends.count.values()) == {1}
    assert len(bench.ends.count) == 2000


def _event(name: str, report: Report) -> Event:
    return Event(worker=name, report=report)


def tries(bench: Bench, h: int) -> list[tuple[bool, bool, list[str]]]:
    """(one by one, last, Gemms given up) of every attempt at a Bundle."""
    items = [item for item in bench.engine.submitted if item.bundle == bundle(h)]
    return [(item.care.one_by_one, item.care.last, [facts.gemm_id for facts in item.care.lost]) for item in items]


def test_the_gemm_that_ran_alone_when_its_worker_died_is_given_up_and_the_bundle_goes_on() -> None:
    first, second = bundle(5).gemms

    def measures(item: Assignment) -> list[Report]:
        if item.bundle != bundle(5) or second in item.care.wanted(item.bundle.gemms):
            trying = [Progress(bundle_id=item.bundle_id, state="try", trying=gemm.gemm_id) for gemm in (first, second)]
            return (
                [*trying, dead(item)]
                if item.care.one_by_one
                else [dead(item)]
                if item.bundle == bundle(5)
                else [good(item)]
            )
        return [good(item)]

    bench = Bench((bundle(h) for h in (5, 4)), measures)
    assert bench.dispatcher.run() == ""
    assert tries(bench, 5) == [(False, False, []), (True, True, []), (True, True, [second.gemm_id])]
    assert bench.ends.count == {bundle(5).bundle_id: 1, bundle(4).bundle_id: 1}
    assert bench.ends.lost == {}


def test_a_bundle_whose_gemms_all_take_their_workers_down_ends() -> None:
    def measures(item: Assignment) -> list[Report]:
        left = item.care.wanted(item.bundle.gemms)
        return [Progress(bundle_id=item.bundle_id, state="try", trying=left[0].gemm_id), dead(item)]

    bench = Bench([bundle(5)], measures)
    assert bench.dispatcher.run() == ""
    assert [len(lost) for _, _, lost in tries(bench, 5)] == [0, 1]
    assert list(bench.ends.lost) == [bundle(5).bundle_id]


def test_memory_that_does_not_suffice_is_tried_once_more_but_not_one_by_one() -> None:
    def measures(item: Assignment) -> Report:
        return Failure(status="oom", message="5 GiB") if not item.care.last else good(item)

    bench = Bench([bundle(5)], measures)
    assert bench.dispatcher.run() == ""
    assert tries(bench, 5) == [(False, False, []), (False, True, [])]


def test_what_ran_out_of_memory_is_the_limit_for_what_comes_later() -> None:
    _, larger = bundle(5).gemms

    def measures(item: Assignment) -> Report:
        gone = (GemmFacts(gemm_id=larger.gemm_id, status="oom", message="5 GiB"),) if item.bundle == bundle(5) else ()
        return Result(shard=b"", failed=gone)

    bench = Bench((bundle(h) for h in (5, 4)), measures, places={"n": [device_info(0)]})
    assert bench.dispatcher.run() == ""
    assert [item.care.limit for item in bench.engine.submitted] == [None, larger]


def test_a_worker_that_hangs_is_ended_at_its_deadline() -> None:
    def measures(item: Assignment) -> Report | None:
        return None if item.bundle == bundle(5) else good(item)

    bench = Bench((bundle(h) for h in (5, 4, 3)), measures, deadline_s=lambda bundle, device: 60.0)
    assert bench.dispatcher.run() == ""
    assert bench.ends.lost == {bundle(5).bundle_id: Failure(status="timeout", message="not done after 60 s")}
    assert bench.ends.count == {bundle(h).bundle_id: 1 for h in (5, 4, 3)}
    assert 120 <= bench.clock.now <= 125
    assert bench.engine.workers == {}


def test_where_gemms_run_one_by_one_each_has_the_whole_time() -> None:
    watch = Watch()
    watch.begin("w", lambda: 60.0, 0.0)
    watch.heard("w", Progress(bundle_id="b", state="try", trying="g"), 59.0)
    assert list(watch.expired(118.0)) == []
    assert list(watch.expired(120.0)) == [("w", 60.0)]
    assert watch.end("w") == "g"
    assert watch.end("w") is None


def failing(assignment: Assignment) -> Result:
    facts = GemmFacts(gemm_id=assignment.bundle.gemms[0].gemm_id, status="wrong_result", message="bad")
    return Result(shard=b"", failed=(facts,))


def test_a_storm_of_failures_ends_the_sweep() -> None:
    bench = Bench((bundle(h) for h in range(1, 99)), failing)
    bench.ends.storm = lambda: "too much" if len(bench.ends.count) >= 3 else ""  # type: ignore[method-assign]
    assert bench.dispatcher.run() == "too much"
    assert 3 <= len(bench.ends.count) <= 10
    assert bench.engine.workers == {}


MIXED = {"n": [device_info(0), device_info(1)], "m": [device_info(2, "NVIDIA L40S"), device_info(3, "NVIDIA L40S")]}


def test_every_model_of_a_fleet_measures_everything_once() -> None:
    work = [bundle(h) for h in range(1, 9)]
    bench = Bench(work, places=MIXED, every_device=True, accepts=lambda device: True)
    assert bench.dispatcher.run() == ""
    assert bench.ends.count == {item.bundle_id: 2 for item in work}
    by_model = Counter((item.bundle_id, item.device in ("GPU-fake-0", "GPU-fake-1")) for item in bench.engine.submitted)
    assert set(by_model.values()) == {1}
    assert len(by_model) == 16


def test_replicated_work_is_measured_by_every_device() -> None:
    work = [bundle(h) for h in range(1, 5)]
    bench = Bench(work, every_device=True, lanes=Lanes(work, "replicate"))
    assert bench.dispatcher.run() == ""
    done = Counter((item.bundle_id, item.device) for item in bench.engine.submitted)
    assert done == {(item.bundle_id, f"GPU-fake-{index}"): 1 for item in work for index in range(2)}


def test_what_earlier_drivers_have_ended_is_not_handed_out_and_attempts_go_on() -> None:
    work = [bundle(h) for h in range(1, 5)]
    earlier = Earlier(
        ended={"NVIDIA H200": frozenset({bundle(4).bundle_id})},
        attempts={bundle(3).bundle_id: 2, bundle(4).bundle_id: 1},
    )
    bench = Bench(work, lanes=Lanes(work, earlier=earlier))
    assert bench.dispatcher.run() == ""
    assert {item.bundle_id: item.attempt for item in bench.engine.submitted} == {
        bundle(3).bundle_id: 3,
        bundle(2).bundle_id: 1,
        bundle(1).bundle_id: 1,
    }


class Slowing:
    """Measures; canaries take 1 s, on ``slow`` from the ``since``-th on a fifth more."""

    def __init__(self, slow: str, since: int) -> None:
        self.slow = slow
        self.since = since

    def __call__(self, item: Assignment) -> Report:
        if not item.is_canary:
            return good(item)
        bad = item.device == self.slow and item.attempt >= self.since
        return Result(shard=b"", failed=(), canary_s=1.2 if bad else 1.0 + 0.001 * (item.attempt % 2))


def fleet(size: int) -> dict[str, list[DeviceInfo]]:
    return {"n": [device_info(index) for index in range(size)]}


def test_each_device_begins_and_ends_with_a_canary_and_has_one_now_and_then() -> None:
    bench = Bench((bundle(h) for h in range(1, 41)), Slowing("none", 0), places=fleet(4), every=4)
    assert bench.dispatcher.run() == ""
    for index in range(4):
        mine = [item.is_canary for item in bench.engine.submitted if item.device == f"GPU-fake-{index}"]
        assert (mine[0], mine[-1]) == (True, True)
        runs = "".join("c" if canary else "b" for canary in mine).split("c")
        assert max(map(len, runs)) <= 4
    assert len(bench.ends.measured_by) == 40 + 1  # the canaries' Shards are kept too


def test_one_device_alone_has_no_canaries() -> None:
    bench = Bench((bundle(h) for h in range(1, 5)), Slowing("none", 0), places=fleet(1), every=1)
    assert bench.dispatcher.run() == ""
    assert not any(item.is_canary for item in bench.engine.submitted)


@pytest.mark.parametrize("size", [2, 4])
def test_a_device_that_becomes_slow_is_named_and_its_bundles_are_measured_again(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    work = [bundle(h) for h in range(1, 61)]
    bench = Bench(work, Slowing("GPU-fake-1", 3), places=fleet(size), every=4)
    assert bench.dispatcher.run() == ""
    slow = [item for item in bench.engine.submitted if item.device == "GPU-fake-1" and not item.is_canary]
    suspect = {item.bundle_id for item in slow if item.canary == 2}
    again = [item for item in bench.engine.submitted if item.bundle_id in suspect and item.device != "GPU-fake-1"]
    assert len(suspect) == 4
    assert {item.bundle_id for item in again} == suspect
    # The readings 3 and 4 are bad: after the second nothing more goes to it.
    assert max(item.canary or 0 for item in slow) == 2
    counts = Counter(item.bundle_id for item in bench.engine.submitted if not item.is_canary)
    assert {bundle_id for bundle_id, count in counts.items() if count > 1} == suspect
    notes = [record.getMessage() for record in caplog.records if record.getMessage().startswith("suspect: ")]
    assert "GPU-fake-1" in notes[0]
    assert "4 bundles are measured again" in notes[0]


def test_where_no_other_device_is_left_suspect_bundles_end(caplog: pytest.LogCaptureFixture) -> None:
    places = fleet(2)

    def measures(item: Assignment) -> Report | None:
        if item.device == "GPU-fake-0" and len(bench.engine.submitted) > 30:
            return dead(item)  # from here on the only good device dies of everything
        return Slowing("GPU-fake-1", 3)(item)

    bench = Bench((bundle(h) for h in range(1, 31)), measures, places=places, every=4)
    problem = bench.dispatcher.run()
    assert problem == "" or "no device" in problem
    assert bench.engine.workers == {}
