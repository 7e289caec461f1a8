"""What runs beside one device: opens it, measures Bundles on it, and reports in plain records."""

import pkgutil
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator import canary
from orchestrator.engine import Failure, Placed, Result, Returned, Spent
from orchestrator.queue import Assignment
from orchestrator.telling import Telling, Told
from tasks.records import DeviceInfo, Measurement, Progress
from tasks.settings import Timing

if TYPE_CHECKING:
    import pyarrow as pa

Outcome = TypeVar("Outcome", DeviceInfo, Result)

MESSAGE_LENGTH = 500
DETAIL_LENGTH = 8000


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSpec:
    """What a worker needs to know; the same for all workers of a sweep.

    open_device, measure: ``module:name`` of ``open_device(kind)`` and ``measure(device, bundle, timing, on_progress,
    stop, care)``, resolved in the worker, so that the driver need not import torch.
    """

    kind: str  # cuda (also for ROCm) or cpu
    timing: Timing
    code_version: str
    plan_hash: str
    open_device: str = "tasks.device:open_device"
    measure: str = "tasks.measure:measure_bundle"


class Worker:
    """One device for life. Every call into the device comes from one thread of its own.

    So a measurement never waits for a report to be read, and settings that belong to a thread (OpenMP's) hold.
    """

    def __init__(self, spec: WorkerSpec) -> None:
        self._spec = spec
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="device")
        self._stopping = threading.Event()
        # Opening begins before anybody asks: importing torch and making a CUDA context take seconds.
        self._device = self._thread.submit(self._open)

    def open(self) -> Iterator[Placed | DeviceInfo | Failure]:
        """Report Placed, then the device's facts once it is open."""
        yield Placed()
        yield _outcome(lambda: self._device.result().info)

    def adopt(self, spec: WorkerSpec) -> Iterator[Placed | DeviceInfo | Failure]:
        """Work for another sweep, whose device is opened in the same way; report as ``open``."""
        yield Placed()
        yield _outcome(lambda: self._thread.submit(self._renew, spec).result())

    def rest(self) -> None:
        """Give the device's memory back, and wait for another sweep."""
        self._thread.submit(lambda: self._device.result().close()).result()

    def measure(self, assignments: Sequence[Assignment]) -> Iterator[list[Told]]:
        """Measure Bundles in their order; report Progress now and then, and of each a Result, or last a Failure.

        Results of short Bundles are reported together. Where Gemms run one by one, a Gemm begins only after its name is
        on its way to the driver.
        """
        # The first sign of life: without it the driver takes this worker for one that was dead before.
        yield [Progress(bundle_id=assignments[0].bundle_id, state="prepare")]
        telling = Telling()
        work = self._thread.submit(self._work, assignments, telling)
        work.add_done_callback(lambda _: telling.end())
        # Loaded while the first Bundle is prepared, so that its Shard does not wait for it.
        pkgutil.resolve_name("orchestrator.store:shard_table")
        while reports := telling.get():
            yield reports
            telling.passed_on(reports)
        work.result()  # an exception that cannot even be described becomes Ray's

    def interrupt(self) -> None:
        """Have the measurement under way end after its next round; called beside ``measure``."""
        self._stopping.set()

    def _open(self) -> Any:
        # Both are imported now: a worker that cannot measure must fail at its start, not at every Bundle.
        open_device, _ = pkgutil.resolve_name(self._spec.open_device), pkgutil.resolve_name(self._spec.measure)
        return open_device(self._spec.kind)

    def _renew(self, spec: WorkerSpec) -> DeviceInfo:
        if (spec.kind, spec.open_device) != (self._spec.kind, self._spec.open_device):
            raise ValueError(f"this worker's device is of another kind: {self._spec.kind}")
        pkgutil.resolve_name(spec.measure)
        self._spec = spec
        self._stopping.clear()
        device = self._device.result()
        device.renew()
        info: DeviceInfo = device.info
        return info

    def _work(self, assignments: Sequence[Assignment], telling: Telling) -> None:
        for place, assignment in enumerate(assignments):
            if place and self._stopping.is_set():
                telling.put(Returned())
                return
            report = _outcome(partial(self._one, assignment, telling.progress), assignment.bundle_id)
            telling.put(report)
            if isinstance(report, Failure):
                return

    def _one(self, assignment: Assignment, on_progress: Callable[[Progress], None]) -> Result:
        return self._result(assignment, self._measure(assignment, on_progress))

    def _measure(self, assignment: Assignment, on_progress: Callable[[Progress], None]) -> Measurement:
        measure: Callable[..., Measurement] = pkgutil.resolve_name(self._spec.measure)
        timing = timing_of(self._spec, assignment)
        care, stop = assignment.care, self._stopping.is_set
        return measure(self._device.result(), assignment.bundle, timing, on_progress, stop, care)

    def _result(self, assignment: Assignment, measurement: Measurement) -> Result:
        failed = tuple(facts for facts in measurement.facts if facts.status != "ok")
        reading = canary_reading(assignment, measurement) if assignment.is_canary else None
        encode: Callable[[pa.Table], bytes] = pkgutil.resolve_name("orchestrator.store:shard_file")
        spent = Spent(prepare_s=measurement.prepare_s, soak_s=measurement.soak_s, measuring_s=measurement.measuring_s)
        content = encode(shard(self._spec, assignment, measurement))
        return Result(shard=content, failed=failed, canary_s=reading, spent=spent)


def _outcome(report: Callable[[], Outcome], bundle_id: str = "") -> Outcome | Failure:
    """Return the report, or what kept it from being made.

    The boundary of the process: whatever went wrong goes to the driver as plain text, also what is no Exception. Ray
    takes a SystemExit for the wish to end the actor, and a KeyboardInterrupt for a cancelled call.
    """
    try:
        return report()
    except BaseException as error:
        return failure(error, bundle_id)


def canary_reading(assignment: Assignment, measurement: Measurement) -> float | None:
    """What a canary showed; None where one of its Gemms was not measured."""
    samples = ((sample.gemm_id, sample.seconds / (sample.slowdown or 1.0)) for sample in measurement.samples)
    return canary.canary_seconds(samples, [gemm.gemm_id for gemm in assignment.bundle.gemms])


def timing_of(spec: WorkerSpec, assignment: Assignment) -> Timing:
    """The settings by which an assignment is measured: a canary has its own."""
    return canary.canary_timing(spec.timing) if assignment.is_canary else spec.timing


def shard(spec: WorkerSpec, assignment: Assignment, measurement: Measurement) -> "pa.Table":
    """Build the Shard of one measurement."""
    shard_table: Callable[..., pa.Table] = pkgutil.resolve_name("orchestrator.store:shard_table")
    return shard_table(
        assignment.bundle,
        measurement,
        timing_of(spec, assignment),
        attempt=assignment.attempt,
        code_version=spec.code_version,
        plan_hash=spec.plan_hash,
        canary=assignment.canary,
    )


def failure(error: BaseException, bundle_id: str = "") -> Failure:
    """Describe an exception in plain text of bounded length, with the status that it amounts to."""
    # format_exception_only survives an exception whose own str() raises.
    text = "".join(traceback.format_exception_only(error)).strip()
    detail = "".join(traceback.format_exception(error))
    return Failure(
        status=_status(error, text), message=plain(text), detail=detail[-DETAIL_LENGTH:], bundle_id=bundle_id
    )


def plain(text: str) -> str:
    """Cut ``text``, and write what is neither printable nor a line's end as an escape: half characters among it.

    Those no file can hold.
    """
    return "".join(sign if sign.isprintable() or sign == "\n" else repr(sign)[1:-1] for sign in text[:MESSAGE_LENGTH])


def _status(error: BaseException, text: str) -> str:
    # By name, for this module must not import torch: torch.OutOfMemoryError.
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "oom"
    return "illegal_access" if "CUDA error" in text or "HIP error" in text else "worker_died"
