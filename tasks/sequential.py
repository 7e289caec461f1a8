"""The public way to time shapes, as the MAMF finder had it: one after another, each by 100 calls with a cold cache.

Once, load for ``timing.warmup_s``. Then, shape by shape: operands of its own, 50 warm-up and 100 timed calls, each
between two events and after a flush of the cache. The figure is the mean. It is there to compare with.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from torch import OutOfMemoryError

from tasks import bmm
from tasks.care import Care
from tasks.device import Device, GemmFailure
from tasks.family import Bundle
from tasks.gemm import Gemm, kind_of
from tasks.pool import OperandPool, Operands, input_elements, output_elements
from tasks.records import GemmFacts, Measurement, Progress, Sample
from tasks.settings import Timing

WARMUP_CALLS = 50
TIMED_CALLS = 100

LOAD = {"cpu": 256}
LOAD_GPU = 8192
"""m, n and k of the product that warms a device up: on a GPU, milliseconds of work."""

Report = Callable[[Progress], None]
Stop = Callable[[], bool]


@dataclass(slots=True)
class _Found:
    """What there is so far. prepare_s: drawing operands and checking results."""

    samples: list[Sample] = field(default_factory=list)
    facts: list[GemmFacts] = field(default_factory=list)
    prepare_s: float = 0.0


def measure(device: Device, bundle: Bundle, timing: Timing, report: Report, stop: Stop, care: Care) -> Measurement:
    """Measure the Gemms of ``bundle`` in their order until ``stop``: 100 Samples each, whose ``round`` is the call."""
    started, begin = datetime.now(UTC).isoformat(), device.clock()
    device.close()  # no shape has a part in a pool
    found, stopped = _Found(facts=list(care.lost)), False
    if not device.soaked and timing.warmup_s > 0:
        report(Progress(bundle_id=bundle.bundle_id, state="soak"))
        device.soaked = _warm_up(device, bundle.gemms[0].dtype, timing.warmup_s, stop)
    warmed = device.clock()
    with device.measuring() as window:
        for position, gemm in enumerate(care.wanted(bundle.gemms)):
            stopped = stopped or stop()
            if refused := _refused(device, gemm, care, stopped=stopped):
                found.facts.append(refused)
                continue
            if care.one_by_one:
                report(Progress(bundle_id=bundle.bundle_id, state="try", trying=gemm.gemm_id))
            _measure(device, gemm, position, care, found)
            report(Progress(bundle_id=bundle.bundle_id, state="measure", rounds=1, gemms=position + 1))
    return Measurement(
        bundle_id=bundle.bundle_id,
        samples=tuple(found.samples),
        facts=tuple(found.facts),
        device=device.info,
        telemetry=window.telemetry,
        started_utc=started,
        prepare_s=found.prepare_s,
        soak_s=warmed - begin,
        measuring_s=device.clock() - warmed - found.prepare_s,
        rounds=1 if found.samples else 0,
        resolved=False,
        stop_reason="interrupted" if stopped else "fixed" if found.samples else "nothing",
    )


def load(kind: str, dtype: str) -> Gemm:
    """The large product that warms up a device of ``kind`` (cuda, rocm or cpu)."""
    side = LOAD.get(kind, LOAD_GPU)
    return Gemm(kind=kind_of(dtype), b=1, m=side, n=side, k=side, dtype=dtype, layout="nt")


def _warm_up(device: Device, dtype: str, seconds: float, stop: Stop) -> bool:
    """Load the device for so long; False where it cannot: the shapes themselves will say why."""
    gemm = load(device.info.kind, dtype)
    if _refused(device, gemm, Care()):
        return False
    try:
        operands = _ready(device, gemm)
    except (GemmFailure, OutOfMemoryError):
        return False
    end = device.clock() + seconds
    while device.clock() < end and not stop():
        device.flushed_calls(gemm, operands, 1)
    return device.clock() >= end


def _refused(device: Device, gemm: Gemm, care: Care, *, stopped: bool = False) -> GemmFacts | None:
    """Why ``gemm`` is not tried, or None."""
    if stopped:
        return GemmFacts(gemm_id=gemm.gemm_id, status="skipped", message="interrupted")
    if reason := device.unsupported(gemm):
        return GemmFacts(gemm_id=gemm.gemm_id, status="unsupported", message=reason)
    if reason := care.too_large(gemm) or device.too_large(gemm.bytes):
        return GemmFacts(gemm_id=gemm.gemm_id, status="skipped", message=reason)
    return None


def _measure(device: Device, gemm: Gemm, position: int, care: Care, found: _Found) -> None:
    """Time one shape, or note why it cannot be."""
    begin = device.clock()
    try:
        operands = _ready(device, gemm)
        found.prepare_s += device.clock() - begin
        seconds = device.flushed_calls(gemm, operands, WARMUP_CALLS + TIMED_CALLS)[WARMUP_CALLS:]
    except OutOfMemoryError as error:
        if not care.last:
            raise
        found.facts.append(GemmFacts(gemm_id=gemm.gemm_id, status="oom", message=str(error)))
    except GemmFailure as failure:
        if failure.status == "oom" and not care.last:
            raise OutOfMemoryError(failure.message) from failure
        found.facts.append(GemmFacts(gemm_id=gemm.gemm_id, status=failure.status, message=failure.message))
    else:
        found.samples.extend(_samples(gemm, position, seconds))
        found.facts.append(GemmFacts(gemm_id=gemm.gemm_id, launch="cpu" if device.info.kind == "cpu" else "stream"))


def _samples(gemm: Gemm, position: int, seconds: list[float]) -> list[Sample]:
    """One for each timed call, the first of which has the warm-up calls before it."""
    return [
        Sample(
            gemm_id=gemm.gemm_id,
            round=call,
            position=position,
            calls=1,
            lead_calls=0 if call else WARMUP_CALLS,
            seconds=each,
        )
        for call, each in enumerate(seconds)
    ]


def _ready(device: Device, gemm: Gemm) -> Operands:
    """Operands of its own, with which ``gemm`` has given a right result.

    Raises:
        GemmFailure: it has not.
        OutOfMemoryError: there is no memory for them.
    """
    bmm.set_precision(gemm.dtype)
    inputs, outputs = input_elements(gemm), output_elements(gemm)
    pool = OperandPool(device.torch_device, gemm.dtype, inputs=inputs, outputs=outputs, seed=0)
    operands = pool.operands(gemm, 0, 0)
    device.checked_call(gemm, operands)()
    return operands
