"""A CUDA or ROCm GPU as a device: captured graphs, events, NVML by UUID."""

import importlib.metadata
import math
import socket
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch

from tasks import bmm
from tasks.calls import lead_calls, shared_calls
from tasks.device import GIB, Device, Pending, Visit, refused
from tasks.flush import flushes
from tasks.gemm import Gemm
from tasks.pool import Operands, Ring, sweep
from tasks.records import DeviceInfo
from tasks.settings import AWAKE_S, BURST_IDLE_S, L2_REUSE, LAUNCH_S, SOAK_MIN_S, Timing
from tasks.settling import SETTLE_S, capped, settled
from tasks.support import Architecture
from tasks.sweeps import outrun_cache, sweep_elements, sweep_plans
from tasks.telemetry import Nvml, Window

SWEEP_BYTES = 4 * GIB
"""Most bytes that a visit of several calls steps through with a window of its own for each call."""

SPARE_BYTES = GIB
"""Device memory left to the library's workspaces and captured graphs."""

ONE_CALL_S = 1e-4
"""A call longer than this is estimated well enough by timing it once."""

DELAYS = (4, 16, 64, 256)
"""Flushes to queue short calls behind, the next where the last did not last; one takes some 50 us."""

MOST_FLUSHES = 128
"""Before a call: more than a device with a cache of some megabytes does in AWAKE_S."""

LOAD_S = 0.8
LOAD_AGAIN_S = 0.3
LOAD_CALLS = 800
"""Work that is queued before a Family is prepared, less for a device that settles; a stream takes a thousand calls."""

AGAIN_S = 1.0
"""A device that was seen to settle, and has idled since, boosts for less than this again (0.8 s on an H200).

It replaces the default ``SOAK_MIN_S`` alone: whoever asks for more or less load gets that."""

INFINITY_CACHE_BYTES = {"gfx942": 256 * 2**20, "gfx950": 256 * 2**20}
"""Last-level cache behind L2, of which torch does not tell: MI300X, MI325X and MI355X (AMD's data sheets)."""

BLAS_PACKAGES = ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12", "nvidia-cublas-cu11")


def _blas() -> str | None:
    for name in BLAS_PACKAGES:
        try:
            return f"cuBLAS {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _info(nvml: Nvml | None, uuid: str) -> DeviceInfo:
    facts: Any = torch.cuda.get_device_properties(0)
    hip = torch.version.hip
    return DeviceInfo(
        kind="rocm" if hip else "cuda",
        gpu=facts.name,
        uuid=uuid,
        host=socket.gethostname(),
        sm_count=facts.multi_processor_count,
        l2_bytes=facts.L2_cache_size,
        memory_bytes=facts.total_memory,
        torch=str(torch.__version__),  # a TorchVersion would make its reader import torch
        pci_id=f"{facts.pci_domain_id:04x}:{facts.pci_bus_id:02x}:{facts.pci_device_id:02x}",
        driver=nvml.driver() if nvml else None,
        runtime=f"ROCm {hip}" if hip else f"CUDA {torch.version.cuda}",
        blas=None if hip else _blas(),
        power_limit_w=nvml.power_limit_w() if nvml else None,
        sm_clock_max_mhz=nvml.sm_clock_max_mhz() if nvml else None,
        allow_fp16_reduced_precision_reduction=bool(torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction),
        allow_bf16_reduced_precision_reduction=bool(torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction),
    )


class Events(Pending):
    """Two events around the calls of a visit, whose mean time is wanted."""

    def __init__(self, start: torch.cuda.Event, end: torch.cuda.Event, calls: int) -> None:
        self._start = start
        self._end = end
        self._calls = calls

    def seconds(self) -> float:
        self._end.synchronize()
        return float(self._start.elapsed_time(self._end)) * 1e-3 / self._calls


class CudaVisit(Visit):
    """Lead calls, an event, the timed calls, an event, on the current stream.

    before: what the device does ahead of the lead calls (flush its cache, idle); lead, timed: launch the calls.
    """

    def __init__(
        self,
        gemm: Gemm,
        *,
        calls: int,
        lead_calls: int,
        launch: str,
        before: Callable[[], object] | None,
        lead: Callable[[], None],
        timed: Callable[[], None],
    ) -> None:
        super().__init__(gemm, calls=calls, lead_calls=lead_calls, launch=launch)
        self._before = before
        self._lead = lead
        self._timed = timed

    def enqueue(self) -> Pending:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        if self._before is not None:
            self._before()
        self._lead()
        start.record()
        self._timed()
        end.record()
        return Events(start, end, self.calls)


class CudaDevice(Device):
    """The one GPU that this process sees."""

    def __init__(self) -> None:
        if not torch.cuda.is_available():
            raise RuntimeError("torch sees no CUDA or ROCm device")
        if torch.cuda.device_count() != 1:
            raise RuntimeError(f"a worker sees one GPU, this one sees {torch.cuda.device_count()}")
        uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", ""))
        uuid = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
        self._nvml = None if torch.version.hip else Nvml.open(uuid)
        super().__init__(torch.device("cuda:0"), _info(self._nvml, uuid))
        self.cache_bytes = max(self.cache_bytes, INFINITY_CACHE_BYTES.get(self.architecture.gfx or "", 0))
        self._stream = torch.cuda.Stream()
        self._scratch: torch.Tensor | None = None
        self._flush_s: float | None = None
        self._watch: Window | None = None  # what the device does under load, until it is soaked

    def free_bytes(self) -> int:
        free, _ = torch.cuda.mem_get_info()
        cached = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return max(0, free + cached + self._pooled_bytes() - SPARE_BYTES)

    def session(self) -> AbstractContextManager[object]:
        return torch.cuda.stream(self._stream)

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    @property
    def architecture(self) -> Architecture:
        kind, gpu = self.info.kind, self.info.gpu
        if kind == "rocm":
            name = str(getattr(torch.cuda.get_device_properties(0), "gcnArchName", ""))
            return Architecture(kind=kind, gpu=gpu, gfx=name.partition(":")[0] or None)
        return Architecture(kind=kind, gpu=gpu, capability=torch.cuda.get_device_capability())

    def window(self) -> Window:
        return Window(self._nvml, self.clock)

    def close(self) -> None:
        self.synchronize()
        self._unwatch()
        super().close()
        self._scratch = None
        torch.cuda.empty_cache()

    def renew(self) -> None:
        super().renew()
        self.info = _info(self._nvml, self.info.uuid)  # a limit may have been set meanwhile

    def soak(self, visit: Visit, timing: Timing, since: float) -> None:
        """Run ``visit`` until ``soak_min_s``, then until a second's mean power and clock repeat or ``soak_max_s``."""
        watch = self._watched()
        # However long preparing took, what it was a load for is seen only in the seconds that are watched.
        most = max(timing.soak_max_s, watch.start - since + min(timing.soak_max_s, 2 * SETTLE_S))
        least = AGAIN_S if self.settles and timing.soak_min_s == SOAK_MIN_S else timing.soak_min_s
        pending: list[Pending] = []
        while (now := self.clock()) - since < most:
            pending.append(visit.enqueue())
            if len(pending) > 2:
                pending.pop(0).seconds()
            known = self._nvml is None or self.settles or capped(watch.readings) or settled(watch.readings)
            if now - since >= least and known:
                break
        self.synchronize()
        self._unwatch()

    def _load(self, gemm: Gemm, ring: Ring) -> None:
        """Queue LOAD_S of calls, behind which whatever else is prepared waits for its turn."""
        operands = ring.take(gemm)
        try:
            bmm.call(gemm, operands)  # the first one loads the library
            each = self._burst(gemm, operands, calls=1, delay=1)[0].seconds()
        except (RuntimeError, ValueError) as error:
            if not isinstance(error, torch.OutOfMemoryError) and not refused(error):
                raise
            return  # it is tried once more, and reported
        self._watched()
        load_s = LOAD_AGAIN_S if self.settles else LOAD_S
        for _ in range(min(LOAD_CALLS, math.ceil(load_s / max(each, 1e-6)))):
            bmm.call(gemm, operands)

    def _watched(self) -> Window:
        if self._watch is None:
            self._watch = self.window().__enter__()
        return self._watch

    def _unwatch(self) -> None:
        if self._watch is not None:
            self._watch.__exit__(None, None, None)
        self._watch = None

    def flush(self) -> None:
        """Overwrite more than the last-level cache; also a device-side delay behind which launches queue."""
        if self._scratch is None:
            self._scratch = torch.empty(L2_REUSE * self.cache_bytes, dtype=torch.uint8, device=self.torch_device)
        self._scratch.zero_()

    def _flushes(self, seconds: float) -> int:
        """Flushes that take so long."""
        if self._flush_s is None:
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            self.flush()  # the first one allocates
            start.record()
            for _ in range(8):
                self.flush()
            end.record()
            self._flush_s = Events(start, end, calls=8).seconds()
        return min(MOST_FLUSHES, math.ceil(seconds / max(self._flush_s, 1e-6)))

    def flushed_calls(self, gemm: Gemm, operands: Operands, count: int) -> list[float]:
        return [pending.seconds() for pending in [self._flushed_call(gemm, operands) for _ in range(count)]]

    def _flushed_call(self, gemm: Gemm, operands: Operands) -> Pending:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(flushes(self.cache_bytes)):
            self.flush()
        start.record()
        bmm.call(gemm, operands)
        end.record()
        return Events(start, end, calls=1)

    def _call_seconds(self, gemm: Gemm, operands: Operands) -> float:
        return self._timed_call(gemm, operands)()

    def _timed_call(self, gemm: Gemm, operands: Operands) -> Callable[[], float]:
        first, queued = self._burst(gemm, operands, calls=1, delay=1)

        def seconds() -> float:
            each = first.seconds()
            return each if queued and each > ONE_CALL_S else self._short_call(gemm, operands)

        return seconds

    def _short_call(self, gemm: Gemm, operands: Operands) -> float:
        """Seconds of a call behind a delay that is long enough for its launch not to be timed."""
        each = 0.0
        for delay in DELAYS:
            burst, queued = self._burst(gemm, operands, calls=8, delay=delay)
            each = burst.seconds()
            if queued:
                break
        return max(each, 1e-7)

    def _burst(self, gemm: Gemm, operands: Operands, *, calls: int, delay: int) -> tuple[Pending, bool]:
        """Calls behind a delay, and whether all were launched before the device had come to the first."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(delay):
            self.flush()
        start.record()
        for _ in range(calls):
            bmm.call(gemm, operands)
        end.record()
        return Events(start, end, calls), not start.query()

    def _visits(self, seconds: dict[Gemm, float], ring: Ring, timing: Timing) -> dict[Gemm, Visit]:
        calls = shared_calls(seconds, timing, self.typical_s)
        short = {gemm: count for gemm, count in calls.items() if count > 1}
        visits = self._sweep_visits(short, timing) if short else {}
        return {gemm: visits.get(gemm) or self._stream_visit(gemm, ring, timing, seconds[gemm]) for gemm in calls}

    def _before(self, timing: Timing, flushes: int) -> Callable[[], object] | None:
        """What comes ahead of a visit: so many flushes; in a burst a rest and those in which the host awakes."""
        rest = timing.power == "burst"
        flushes = self._flushes(AWAKE_S) if rest else flushes

        def before() -> None:
            if rest:
                self.synchronize()
                time.sleep(BURST_IDLE_S)
            for _ in range(flushes):
                self.flush()

        return before if flushes else None

    def _stream_visit(self, gemm: Gemm, ring: Ring, timing: Timing, seconds: float) -> Visit:
        lead = lead_calls(1, timing)
        launched = timing.l2 != "flush" and seconds > ONE_CALL_S  # while the visit before it runs

        def run(count: int) -> None:
            for _ in range(count):
                bmm.call(gemm, ring.take(gemm))

        return CudaVisit(
            gemm,
            calls=1,
            lead_calls=lead,
            launch="stream",
            before=self._before(timing, 0 if launched else self._flushes(LAUNCH_S)),
            lead=lambda: run(lead),
            timed=lambda: run(1),
        )

    def _sweep_visits(self, calls: dict[Gemm, int], timing: Timing) -> dict[Gemm, Visit]:
        lead = lead_calls(2, timing)
        limit = min(SWEEP_BYTES, self.free_bytes() // 2)
        if timing.l2 == "hot":
            plans = {gemm: (n, 1) for gemm, n in calls.items()}
        else:
            plans = sweep_plans(calls, lead, self.cache_bytes, limit, self._longest)
        pool = self._pool("sweep", next(iter(calls)).dtype, *sweep_elements(plans, self.cache_bytes, limit))
        flush = timing.l2 != "hot" and not outrun_cache(plans, lead, self.cache_bytes)
        visits: dict[Gemm, Visit] = {}
        for gemm, (timed, windows) in plans.items():
            steps = sweep(pool, gemm, lead + timed, windows)
            visits[gemm] = self._sweep_visit(gemm, steps, lead, timing, flush=flush)
        return visits

    def _sweep_visit(self, gemm: Gemm, steps: list[Operands], lead: int, timing: Timing, *, flush: bool) -> Visit:
        def run(operands: list[Operands]) -> None:
            for each in operands:
                bmm.call(gemm, each)

        graph = capture(lambda: run(steps[lead:]))
        before = self._before(timing, int(flush))
        if graph is None:
            delays = math.ceil(len(steps) / 8)  # a flush outlasts some ten launches

            def delay() -> None:
                if before is not None:
                    before()
                for _ in range(delays):
                    self.flush()

        return CudaVisit(
            gemm,
            calls=len(steps) - lead,
            lead_calls=lead,
            launch="queued" if graph is None else "graph",
            before=delay if graph is None else before,
            lead=lambda: run(steps[:lead]),
            timed=(lambda: run(steps[lead:])) if graph is None else graph.replay,
        )


def capture(work: Callable[[], None], graph: torch.cuda.CUDAGraph | None = None) -> torch.cuda.CUDAGraph | None:
    """Capture ``work`` on the current stream, into ``graph`` if given; None where the library cannot be captured."""
    graph, pool = graph or torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
    torch.cuda.synchronize()
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        try:
            work()
        finally:
            graph.capture_end()
    except RuntimeError:
        # A broken capture never ends for the allocator, which gives no memory back while one is under way.
        with suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(torch.cuda.current_device(), pool)
        return None
    return graph
