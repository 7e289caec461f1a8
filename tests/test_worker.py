"""What a worker reports, without Ray."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import chain, count

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.engine import Failure, Placed, Result, Returned
from orchestrator.queue import Assignment
from orchestrator.telling import GATHER_S, PROGRESS_EVERY_S, Telling, rate_limited
from orchestrator.worker import DETAIL_LENGTH, MESSAGE_LENGTH, Worker, WorkerSpec, failure
from tasks.care import Care
from tasks.family import Bundle
from tasks.records import GemmFacts, Measurement, Progress
from tasks.settings import Timing
from tests.fakes import HERE as FAKES
from tests.fakes import bundle, device_info, measured


class Remembering:
    """A device that remembers its thread, and how often it was put to rest."""

    def __init__(self, kind: str) -> None:
        self.info = device_info(0, kind=kind)
        self.thread = threading.get_ident()
        self.rests = 0

    def close(self) -> None:
        """Take note of a rest."""
        self.rests += 1

    def renew(self) -> None:
        """Tell by a fact of the device how often it has rested."""
        assert self.thread == threading.get_ident()
        self.info = replace(self.info, power_limit_w=float(self.rests))


def open_here(kind: str) -> Remembering:
    """Open a device that remembers its thread."""
    return Remembering(kind)


def measure_here(
    device: Remembering,
    bundle: Bundle,
    timing: Timing,
    on_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
    care: Care,
) -> Measurement:
    """Report every state, and check that the device is used by the thread that opened it."""
    assert device.thread == threading.get_ident() != threading.main_thread().ident
    for state in ("soak", "prepare", "measure", "measure"):
        on_progress(Progress(bundle_id=bundle.bundle_id, state=state))
    failed = GemmFacts(gemm_id=bundle.gemms[0].gemm_id, status="oom", message="too large")
    return measured(device.info, bundle, (failed,))


def worker(**changes: str) -> Worker:
    references = {"open_device": f"{__name__}:open_here", "measure": f"{__name__}:measure_here", **changes}
    return Worker(WorkerSpec(kind="cuda", timing=Timing(), code_version="1", plan_hash="p", **references))


def attempt(h: int, number: int = 1, care: Care | None = None) -> Assignment:
    return Assignment(bundle=bundle(h), attempt=number, worker="w", device="d", care=care or Care())


def test_reports_its_device_then_progress_and_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.telling.PROGRESS_EVERY_S", 0.0)
    mine = worker()
    assert list(mine.open()) == [Placed(), device_info(0)]
    *states, result = chain(*mine.measure([attempt(8, 2)]))
    told = [report.state for report in states if isinstance(report, Progress)]
    assert list(dict.fromkeys(told)) == ["prepare", "soak", "measure"]
    assert isinstance(result, Result)
    assert [facts.status for facts in result.failed] == ["oom"]
    rows = pq.read_table(pa.BufferReader(result.shard)).to_pylist()
    assert {(row["bundle_id"], row["attempt"]) for row in rows} == {(bundle(8).bundle_id, 2)}
    assert [row["record"] for row in rows] == ["facts"] * 2 + ["sample"] * 2


def test_of_a_bundle_that_is_soon_done_only_its_beginning_and_its_end_are_told() -> None:
    begun, result = chain(*worker().measure([attempt(8)]))
    assert begun == Progress(bundle_id=bundle(8).bundle_id, state="prepare")
    assert isinstance(result, Result)


def told(*states: str) -> Telling:
    telling = Telling()
    for state in states:
        telling.progress(Progress(bundle_id="b", state=state))
    return telling


def result(number: int) -> Result:
    return Result(shard=b"%d" % number, failed=())


def test_the_latest_of_several_reports_is_told_in_its_turn() -> None:
    telling = told("soak", "measure")
    began = time.monotonic()
    (report,) = telling.get()
    assert isinstance(report, Progress)
    assert report.state == "measure"
    assert time.monotonic() - began > PROGRESS_EVERY_S / 2
    telling.passed_on([report])
    telling.progress(Progress(bundle_id="b", state="cool"))
    telling.end()
    assert telling.get() == []


def test_the_name_of_a_gemm_that_runs_alone_is_told_at_once() -> None:
    telling = told("soak")
    alone = Progress(bundle_id="b", state="try", trying="g")
    measuring = threading.Thread(target=telling.progress, args=(alone,))
    measuring.start()
    began = time.monotonic()
    (report,) = telling.get()
    assert report is alone
    assert time.monotonic() - began < PROGRESS_EVERY_S / 2
    assert measuring.is_alive()
    telling.passed_on([alone])
    measuring.join(5)
    assert not measuring.is_alive()


def test_results_of_short_bundles_are_told_together_and_a_later_one_at_once() -> None:
    telling = told("measure")
    telling.put(result(1))
    telling.progress(Progress(bundle_id="c", state="prepare"))
    telling.put(result(2))
    assert telling.get() == [result(1), result(2)]
    telling.passed_on([result(2)])
    time.sleep(1.5 * GATHER_S)
    telling.put(result(3))
    began = time.monotonic()
    assert telling.get() == [result(3)]
    assert time.monotonic() - began < GATHER_S / 2


def test_results_that_wait_are_told_at_the_end_and_a_progress_is_not() -> None:
    telling = told("measure")
    telling.put(result(1))
    telling.progress(Progress(bundle_id="c", state="measure"))
    telling.end()
    assert telling.get() == [result(1)]
    assert telling.get() == []


def test_a_result_does_not_wait_for_a_bundle_that_hangs() -> None:
    telling = told("measure")
    telling.put(result(1))
    began = time.monotonic()
    assert telling.get() == [result(1)]
    assert time.monotonic() - began < PROGRESS_EVERY_S / 2


def test_patience_that_ends_while_it_is_looked_at_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = count(0.0, 0.8 * GATHER_S)
    monkeypatch.setattr("orchestrator.telling.time.monotonic", lambda: next(looks))
    telling = Telling()
    telling.put(result(1))
    assert telling.get() == [result(1)]


def test_several_bundles_of_a_call_are_measured_in_their_order() -> None:
    reports = list(chain(*worker().measure([attempt(8), attempt(16), attempt(24)])))
    found = [report for report in reports if isinstance(report, Result)]
    ids = [pq.read_table(pa.BufferReader(each.shard))["bundle_id"][0].as_py() for each in found]
    assert ids == [bundle(h).bundle_id for h in (8, 16, 24)]
    assert reports[-1] is found[-1]


def test_a_call_ends_at_the_bundle_that_fails_and_says_at_which() -> None:
    _, first, failed = chain(*worker(measure=f"{FAKES}:measure").measure([attempt(8), attempt(19), attempt(24)]))
    assert isinstance(first, Result)
    assert isinstance(failed, Failure)
    assert failed.bundle_id == bundle(19).bundle_id


def test_an_interrupted_call_gives_back_what_it_has_not_begun() -> None:
    mine = worker(measure=f"{FAKES}:measure")
    reports = chain.from_iterable(mine.measure([attempt(31), attempt(8)]))
    next(reports)
    mine.interrupt()
    *_, kept, rest = reports
    assert isinstance(kept, Result)
    assert rest == Returned()


def spec(kind: str = "cuda", **changes: str) -> WorkerSpec:
    references = {"open_device": f"{__name__}:open_here", "measure": f"{__name__}:measure_here", **changes}
    return WorkerSpec(kind=kind, timing=Timing(), code_version="2", plan_hash="q", **references)


def test_a_worker_that_has_rested_works_for_another_sweep() -> None:
    mine = worker()
    list(mine.open())
    mine.interrupt()
    mine.rest()
    assert list(mine.adopt(spec())) == [Placed(), replace(device_info(0), power_limit_w=1.0)]
    assert not mine._stopping.is_set()
    *_, result = chain(*mine.measure([attempt(8)]))
    assert isinstance(result, Result)
    rows = pq.read_table(pa.BufferReader(result.shard)).to_pylist()
    assert {(row["code_version"], row["plan_hash"]) for row in rows if row["record"] == "facts"} == {("2", "q")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "cpu"}, "this worker's device is of another kind: cuda"),
        ({"open_device": f"{FAKES}:open_device"}, "this worker's device is of another kind: cuda"),
        ({"measure": "no_such_module:measure"}, "No module named 'no_such_module'"),
    ],
)
def test_a_worker_says_so_where_it_cannot_work_for_another_sweep(changes: dict[str, str], message: str) -> None:
    mine = worker()
    list(mine.open())
    placed, failed = mine.adopt(spec(**changes))
    assert placed == Placed()
    assert isinstance(failed, Failure)
    assert message in failed.message


def test_a_device_that_does_not_open_is_a_failure() -> None:
    placed, failed = worker(open_device=f"{FAKES}:open_broken").open()
    assert placed == Placed()
    assert isinstance(failed, Failure)
    assert (failed.status, failed.message) == ("illegal_access", "RuntimeError: CUDA error: no cuda device for you")


def test_an_exception_while_measuring_is_a_failure_in_plain_text() -> None:
    *_, failed = chain(*worker(measure=f"{FAKES}:measure").measure([attempt(19)]))
    assert isinstance(failed, Failure)
    assert (failed.status, failed.message) == ("worker_died", "ValueError: nineteen")
    assert "Traceback" in failed.detail


def test_a_worker_that_cannot_measure_fails_at_its_start() -> None:
    _, failed = worker(measure="no_such_module:measure").open()
    assert isinstance(failed, Failure)
    assert failed.message == "ModuleNotFoundError: No module named 'no_such_module'"


class OutOfMemoryError(RuntimeError):
    """Named as torch's own."""


class OddError(Exception):
    """Cannot even be printed."""

    def __str__(self) -> str:
        raise ValueError("no text")


@pytest.mark.parametrize(
    ("error", "status", "message"),
    [
        (MemoryError(), "oom", "MemoryError"),
        (OutOfMemoryError("tried 5 GiB"), "oom", "tests.test_worker.OutOfMemoryError: tried 5 GiB"),
        (
            RuntimeError("CUDA error: an illegal access"),
            "illegal_access",
            "RuntimeError: CUDA error: an illegal access",
        ),
        (RuntimeError("HIP error: fault"), "illegal_access", "RuntimeError: HIP error: fault"),
        (OddError(), "worker_died", "tests.test_worker.OddError: <exception str() failed>"),
    ],
)
def test_failures_by_kind(error: Exception, status: str, message: str) -> None:
    found = failure(error)
    assert (found.status, found.message) == (status, message)


def test_failures_are_of_bounded_length() -> None:
    found = failure(ValueError("x" * 100_000))
    assert (len(found.message), len(found.detail)) == (MESSAGE_LENGTH, DETAIL_LENGTH)


def test_progress_is_passed_on_at_changes_and_now_and_then() -> None:
    sent: list[int] = []
    times = iter([0.0, 0.1, 0.2, 0.9, 1.0])
    send = rate_limited(lambda progress: sent.append(progress.rounds), 0.5, lambda: next(times))
    for rounds, state in enumerate(["soak", "soak", "measure", "measure", "measure"]):
        send(Progress(bundle_id="b", state=state, rounds=rounds))
    assert sent == [0, 2, 3]
