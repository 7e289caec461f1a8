"""The CPU as a device: one worker, all threads, ``perf_counter_ns``."""

import os
import platform
import socket
import time
from contextlib import AbstractContextManager
from pathlib import Path

import torch

from tasks import bmm
from tasks.calls import lead_calls, shared_calls
from tasks.device import Device, Pending, Visit
from tasks.gemm import Gemm
from tasks.pool import Operands, Ring
from tasks.records import DeviceInfo
from tasks.settings import BURST_IDLE_S, L2_REUSE, Timing
from tasks.telemetry import Window

DEFAULT_CACHE_BYTES = 32 * 2**20
"""Last-level cache where the system does not tell."""


def cpu_name() -> str:
    """Return what the CPU calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _cache_bytes() -> int:
    for name in ("SC_LEVEL3_CACHE_SIZE", "SC_LEVEL2_CACHE_SIZE"):
        size = os.sysconf(name) if name in os.sysconf_names else 0
        if size > 0:
            return size
    return DEFAULT_CACHE_BYTES


def _memory(field: str) -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:")), None)


def _total_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class Done(Pending):
    """What was timed while it was enqueued: seconds per call."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def seconds(self) -> float:
        return self._seconds


class CpuVisit(Visit):
    """Calls one after another on the next windows of the ring; views are made before the clock starts."""

    def __init__(
        self, gemm: Gemm, ring: Ring, flush: torch.Tensor | None, *, calls: int, lead_calls: int, rest: bool = False
    ) -> None:
        super().__init__(gemm, calls=calls, lead_calls=lead_calls, launch="cpu")
        self._ring = ring
        self._flush = flush
        self._rest = rest

    def enqueue(self) -> Pending:
        windows = [self._ring.take(self.gemm) for _ in range(self.lead_calls + self.calls)]
        if self._rest:
            time.sleep(BURST_IDLE_S)
        if self._flush is not None:
            self._flush.zero_()
        for operands in windows[: self.lead_calls]:
            bmm.call(self.gemm, operands)
        timed = windows[self.lead_calls :]
        start = time.perf_counter_ns()
        for operands in timed:
            bmm.call(self.gemm, operands)
        return Done((time.perf_counter_ns() - start) * 1e-9 / self.calls)


class CpuDevice(Device):
    """All cores that this process may use, as one device."""

    def __init__(self) -> None:
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(threads)  # Ray sets OMP_NUM_THREADS=1 for its workers
        info = DeviceInfo(
            kind="cpu",
            gpu=cpu_name(),
            uuid=f"CPU-{socket.gethostname()}",
            host=socket.gethostname(),
            sm_count=threads,
            l2_bytes=_cache_bytes(),
            memory_bytes=_total_bytes(),
            torch=str(torch.__version__),  # a TorchVersion would make its reader import torch
            blas="MKL" if torch.backends.mkl.is_available() else None,
        )
        super().__init__(torch.device("cpu"), info)
        self._scratch: torch.Tensor | None = None

    def free_bytes(self) -> int:
        return (_memory("MemAvailable") or _total_bytes()) + self._pooled_bytes()

    def session(self) -> AbstractContextManager[object]:
        return torch.inference_mode()

    def synchronize(self) -> None:
        """Nothing runs behind a CPU's back."""

    def window(self) -> Window:
        return Window(None, self.clock)

    def soak(self, visit: Visit, timing: Timing, since: float) -> None:
        while self.clock() - since < timing.soak_min_s:
            visit.enqueue()

    def flush(self) -> None:
        if self._scratch is None:
            self._scratch = torch.empty(L2_REUSE * self.cache_bytes, dtype=torch.uint8)
        self._scratch.zero_()

    def close(self) -> None:
        super().close()
        self._scratch = None

    def flushed_calls(self, gemm: Gemm, operands: Operands, count: int) -> list[float]:
        found: list[float] = []
        for _ in range(count):
            self.flush()
            found.append(self._call_seconds(gemm, operands))
        return found

    def _call_seconds(self, gemm: Gemm, operands: Operands) -> float:
        start = time.perf_counter_ns()
        bmm.call(gemm, operands)
        return max(time.perf_counter_ns() - start, 1) * 1e-9

    def _visits(self, seconds: dict[Gemm, float], ring: Ring, timing: Timing) -> dict[Gemm, Visit]:
        flush = torch.empty(L2_REUSE * self.cache_bytes, dtype=torch.uint8) if timing.l2 == "flush" else None
        visits: dict[Gemm, Visit] = {}
        for gemm, calls in shared_calls(seconds, timing, self.typical_s).items():
            visits[gemm] = CpuVisit(
                gemm, ring, flush, calls=calls, lead_calls=lead_calls(calls, timing), rest=timing.power == "burst"
            )
        return visits
