"""Fake devices and a fake Engine: what a worker opens and measures with where there is no GPU."""

import os
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace

from orchestrator.engine import Engine, Event, Failure, Placed, Report, Result
from orchestrator.queue import Assignment
from tasks.care import Care
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, GemmFacts, Measurement, Progress, Sample, Telemetry
from tasks.settings import Timing

HERE = __name__


def device_info(index: int | str, gpu: str = "NVIDIA H200", kind: str = "cuda") -> DeviceInfo:
    """Describe a made-up device."""
    return DeviceInfo(
        kind=kind,
        gpu=gpu,
        uuid=f"GPU-fake-{index}",
        host="fake",
        sm_count=132,
        l2_bytes=50 << 20,
        memory_bytes=141 * 10**9,
        torch="0",
    )


def bundle(h: int, d_ffs: tuple[int, ...] = (64, 128)) -> Bundle:
    """Make a Bundle of one Family whose FLOPs grow with h."""
    candidates = tuple(
        Candidate(value=d_ff, parts=(Part(name="up", gemm=Gemm(kind="mm", b=1, m=32, n=d_ff, k=h, dtype="fp16")),))
        for d_ff in d_ffs
    )
    return Bundle(families=(Family(role="mlp_up", h=h, tp=1, batch=1, seq=32, dtype="fp16", candidates=candidates),))


def measured(device: DeviceInfo, bundle: Bundle, failed: tuple[GemmFacts, ...] = ()) -> Measurement:
    """Return a canned Measurement: two rounds, in which a call takes its FLOPs in picoseconds."""
    status = {facts.gemm_id: facts for facts in failed}
    samples = tuple(
        Sample(gemm_id=gemm.gemm_id, round=turn, position=place, calls=1, lead_calls=1, seconds=gemm.flops * 1e-12)
        for turn in range(2)
        for place, gemm in enumerate(bundle.gemms)
        if gemm.gemm_id not in status
    )
    return Measurement(
        bundle_id=bundle.bundle_id,
        samples=samples,
        facts=tuple(status.get(gemm.gemm_id, GemmFacts(gemm_id=gemm.gemm_id)) for gemm in bundle.gemms),
        device=device,
        telemetry=Telemetry(),
        started_utc="2026-01-01T00:00:00+00:00",
        prepare_s=0.0,
        measuring_s=0.01,
        rounds=2,
        resolved=True,
        stop_reason="resolved",
    )


def open_device(kind: str) -> SimpleNamespace:
    """Open a fake H200, told from others by the GPU that Ray gave to this process; or a fake CPU."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    cpu = kind == "cpu"
    return SimpleNamespace(info=device_info("cpu" if cpu else visible, kind=kind, gpu="CPU" if cpu else "NVIDIA H200"))


def open_model_per_gpu(kind: str) -> SimpleNamespace:
    """Open a fake device on a host whose odd GPUs are of another model."""
    info = open_device(kind).info
    return SimpleNamespace(info=replace(info, gpu="NVIDIA L40S") if info.uuid[-1] in "1357" else info)


def open_broken(kind: str) -> SimpleNamespace:
    """Fail to open."""
    raise RuntimeError(f"CUDA error: no {kind} device for you")


def measure(
    device: SimpleNamespace,
    bundle: Bundle,
    timing: Timing,
    on_progress: Callable[[Progress], None] | None,
    stop: Callable[[], bool],
    care: Care,
) -> Measurement:
    """Measure nothing, for 20 ms (300 from h=200 on).

    h says what goes wrong: 13 dies, 17 dies once, 19 raises, 23 hangs, 29 is too large, 31 goes on until it is stopped.
    From h=1000 on it is the Gemm with n=128 that dies (1013), spoils the device (1019), hangs (1023) or does not fit
    (1029), whenever it runs.
    """
    h = bundle.families[0].h or 0
    for gemm in care.wanted(bundle.gemms):
        if care.one_by_one and on_progress is not None:
            on_progress(Progress(bundle_id=bundle.bundle_id, state="try", trying=gemm.gemm_id))
        if gemm.n == 128 and (facts := _guilty(h, gemm.gemm_id, care)):
            return measured(device.info, bundle, (facts,))
    if on_progress is not None:
        on_progress(Progress(bundle_id=bundle.bundle_id, state="measure", rounds=1, gemms=len(bundle.gemms)))
    match h:
        case 13:
            _die()
        case 17:
            _die_once()
        case 19:
            raise ValueError("nineteen")
        case 23:
            time.sleep(600)
        case 31:
            while not stop():
                time.sleep(0.01)
            return replace(measured(device.info, bundle), stop_reason="interrupted", resolved=False)
        case 29:
            facts = GemmFacts(gemm_id=bundle.gemms[0].gemm_id, status="oom", message="too large")
            return measured(device.info, bundle, (facts,))
    if care.lost:
        return measured(device.info, bundle, care.lost)
    time.sleep(0.02 if h < 200 else 0.3)
    return measured(device.info, bundle)


def _guilty(h: int, gemm_id: str, care: Care) -> GemmFacts | None:
    match h:
        case 1013:
            _die()
        case 1019:
            raise RuntimeError("CUDA error: device-side assert triggered")
        case 1023:
            time.sleep(600)
        case 1029 if not care.last:
            raise MemoryError("too large")
        case 1029:
            return GemmFacts(gemm_id=gemm_id, status="oom", message="too large")
    return None


def _die() -> None:
    time.sleep(0.05)  # what has been reported is on its way by now
    os.kill(os.getpid(), signal.SIGKILL)


def _die_once() -> None:
    marker = Path(os.environ["FAKE_MARKER"])
    if not marker.exists():
        marker.touch()
        _die()


@dataclass
class FakeClock:
    """A clock that moves when somebody waits."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the present."""
        return self.now


class FakeEngine(Engine):
    """An Engine in this process: each place has devices, and ``measures`` says what comes of an assignment."""

    def __init__(
        self,
        places: dict[str, list[DeviceInfo]],
        measures: Callable[[Assignment], Report | list[Report] | None],
        clock: FakeClock,
    ) -> None:
        self.free = {place: deque(devices) for place, devices in places.items()}
        self.workers: dict[str, tuple[str, DeviceInfo | None]] = {}
        self.submitted: list[Assignment] = []
        self.calls: list[int] = []  # how many assignments each had
        self.stopped: list[str] = []
        self.interrupted: list[str] = []
        self._measures = measures
        self._clock = clock
        self._events: deque[Event] = deque()
        self._sizes = {place: len(devices) for place, devices in places.items()}
        self._started = 0

    def places(self) -> dict[str, int]:
        """Return how many devices each place has."""
        return self._sizes

    def start(self, place: str) -> str:
        """Open the next free device, or wait for ever where there is none."""
        name = f"w{self._started}"
        self._started += 1
        device = self.free[place].popleft() if self.free[place] else None
        self.workers[name] = (place, device)
        if device is not None:
            self._events += [Event(worker=name, report=Placed()), Event(worker=name, report=device)]
        return name

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Ask ``measures`` at once; None means that nothing will ever come."""
        worker = assignments[0].worker
        assert worker in self.workers
        assert {assignment.worker for assignment in assignments} == {worker}
        self.calls.append(len(assignments))
        reports: list[Report] = [Progress(bundle_id=assignments[0].bundle_id, state="prepare")]
        for assignment in assignments:
            self.submitted.append(assignment)
            answer = self._measures(assignment)
            reports += answer if isinstance(answer, list) else [] if answer is None else [answer]
            if answer is None or isinstance(reports[-1], Failure):
                break
        self._events += [Event(worker=worker, report=report) for report in reports]

    def interrupt(self, worker: str) -> None:
        """Take note; what was submitted has been answered already."""
        self.interrupted.append(worker)

    def stop(self, worker: str) -> None:
        """Free the worker's device."""
        place, device = self.workers.pop(worker, ("", None))
        self.stopped.append(worker)
        if device is not None:
            self.free[place].appendleft(device)

    def wait(self, timeout: float) -> list[Event]:
        """Return all events; where there are none, let the time pass."""
        if not self._events:
            self._clock.now += timeout
        events = list(self._events)
        self._events.clear()
        return [event for event in events if event.worker in self.workers]


def good(assignment: Assignment) -> Result:
    """Report a result without a Shard."""
    return Result(shard=b"", failed=())


def dead(assignment: Assignment) -> Failure:
    """Report a death."""
    return Failure(status="worker_died", message="died")
