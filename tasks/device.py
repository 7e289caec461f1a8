"""A device that times Gemms: what all of them share, and the small interface that the rounds need."""

import gc
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from statistics import median

import torch

from tasks import bmm
from tasks.care import Care, OnTrying
from tasks.gemm import Gemm
from tasks.pool import (
    OperandPool,
    Operands,
    Ring,
    ring_elements,
)
from tasks.records import DeviceInfo, GemmFacts
from tasks.settings import Timing
from tasks.support import Architecture, unsupported
from tasks.telemetry import Window

GIB = 2**30
NO_CARE = Care()

REFUSALS = re.compile(r"NOT_SUPPORTED|not implemented|BLAS_STATUS_INVALID_VALUE")
FAULTS = re.compile(r"\b(CUDA|HIP|cuBLAS|hipBLAS\w*|cuDNN) (\w+ )?error\b|INTERNAL ASSERT")


class GemmFailure(Exception):
    """A Gemm that cannot be measured: a status of ``tasks.records.STATUSES`` and what happened."""

    def __init__(self, status: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class Pending(ABC):
    """A visit that was handed to the device and may still be running."""

    @abstractmethod
    def seconds(self) -> float:
        """Wait for the visit; return the mean seconds of its timed calls."""


class Visit(ABC):
    """A Gemm made ready: the same calls each time it is enqueued. launch: graph, stream, queued or cpu."""

    def __init__(self, gemm: Gemm, *, calls: int, lead_calls: int, launch: str) -> None:
        self.gemm = gemm
        self.calls = calls
        self.lead_calls = lead_calls
        self.launch = launch

    @abstractmethod
    def enqueue(self) -> Pending:
        """Hand the lead calls and the timed calls to the device; do not wait for them."""


class Device(ABC):
    """One physical device, with its operand pools. Not shared between threads or processes."""

    def __init__(self, torch_device: torch.device, info: DeviceInfo) -> None:
        self.torch_device = torch_device
        self.info = info
        self.cache_bytes = info.l2_bytes  # the last-level cache: what operands must outrun
        self.soaked = False
        self.settles = False  # under load, as an earlier sweep saw
        self.typical_s: float | None = None  # seconds of the typical call of those that were made ready together
        self._longest: dict[int, int] = {}  # timed calls of their sweeps, by the calls that fill a visit
        self._pools: dict[str, OperandPool] = {}

    @abstractmethod
    def free_bytes(self) -> int:
        """Bytes that a pool may take: free ones and those that the pools of this worker hold already."""

    @abstractmethod
    def session(self) -> AbstractContextManager[object]:
        """What must be in force while calls are enqueued."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the device has nothing to do."""

    @abstractmethod
    def _call_seconds(self, gemm: Gemm, operands: Operands) -> float:
        """Seconds of one warm call, roughly: it decides how many calls fill a visit."""

    @abstractmethod
    def _visits(self, seconds: dict[Gemm, float], ring: Ring, timing: Timing) -> dict[Gemm, Visit]:
        """Make the visits ready for Gemms that take so many seconds a call."""

    @abstractmethod
    def flush(self) -> None:
        """Overwrite more than the last-level cache."""

    @abstractmethod
    def flushed_calls(self, gemm: Gemm, operands: Operands, count: int) -> list[float]:
        """Seconds of each of so many calls on the same operands; before each, the cache is flushed."""

    @abstractmethod
    def window(self) -> Window:
        """Telemetry of what happens while it is open."""

    @contextmanager
    def measuring(self) -> Iterator[Window]:
        """A window in which Python's garbage collector makes no pass: the device would idle, or a launch be timed."""
        collects = gc.isenabled()
        gc.disable()
        try:
            with self.window() as window:
                yield window
        finally:
            if collects:
                gc.enable()

    @abstractmethod
    def soak(self, visit: Visit, timing: Timing, since: float) -> None:
        """Work until clocks and power settle; the load began at ``since`` by this device's clock."""

    @property
    def architecture(self) -> Architecture:
        """What is known of the device's abilities before it tries."""
        return Architecture(kind=self.info.kind, gpu=self.info.gpu)

    def unsupported(self, gemm: Gemm) -> str | None:
        """Why the device cannot multiply this Gemm, or None where only a try can tell."""
        return unsupported(gemm, self.architecture)

    def too_large(self, needed: int) -> str | None:
        """Why so many bytes do not fit, or None where they do."""
        free = self.free_bytes()
        return f"needs {needed / GIB:.2f} GiB, {free / GIB:.2f} free" if needed > free else None

    def idle_bytes(self) -> int:
        """Bytes that nothing holds, not even a pool."""
        return self.free_bytes() - self._pooled_bytes()

    def component_pool(self, dtype: str, inputs: int, outputs: int) -> OperandPool:
        """The pool of what is timed beside Gemms, of at least so many elements."""
        return self._pool("component", dtype, inputs, outputs)

    def clock(self) -> float:
        """Seconds of a monotonic clock."""
        return time.perf_counter()

    def close(self) -> None:
        """Give the memory back."""
        self._pools.clear()

    def renew(self) -> None:
        """Serve another sweep, after some time without work: clocks and power are those of an idle device."""
        self.settles |= self.soaked
        self.soaked = False

    def one_call(self, gemm: Gemm) -> Callable[[], None]:
        """A call of ``gemm`` as its visits make it, on operands of the pool; it is not timed."""
        size = ring_elements([gemm], self.cache_bytes)
        operands = Ring(self._pool("ring", gemm.dtype, *size), hot=True).take(gemm)
        return lambda: bmm.call(gemm, operands)

    def prepare(
        self,
        gemms: Sequence[Gemm],
        timing: Timing,
        tick: Callable[[int], None] = lambda done: None,
        care: Care = NO_CARE,
        trying: OnTrying = lambda gemm: None,
        *,
        further: bool = False,
    ) -> tuple[dict[Gemm, Visit], list[GemmFacts]]:
        """Run and check each Gemm once and make its visit ready; ``tick`` hears how many are done.

        further: these will be compared with the ones that were made ready last, and are timed alike.

        Returns the visits and the facts of those that failed (oom, wrong_result, unsupported, skipped).

        Raises:
            torch.OutOfMemoryError: memory does not suffice, and ``care`` says that this attempt is not the last.
        """
        if not further:
            self.typical_s, self._longest = None, {}
        failures: list[GemmFacts] = []
        fits = [gemm for gemm in gemms if not self._refused(gemm, care, failures)]
        while fits:
            bmm.set_precision(fits[0].dtype)
            for _ in range(2):
                try:
                    visits, failed = self._prepared(fits, timing, tick, care, trying)
                    return visits, failures + failed
                except torch.OutOfMemoryError as error:
                    message = str(error)
                # Here, for inside `except` the traceback still holds what was allocated. Pools of earlier Bundles may
                # have been in the way: the second try is without them.
                self.close()
            if not care.last:
                raise torch.OutOfMemoryError(message)
            largest = max(fits, key=lambda gemm: gemm.bytes)
            fits.remove(largest)
            failures.append(GemmFacts(gemm_id=largest.gemm_id, status="oom", message=message))
        return {}, failures

    def _prepared(
        self,
        gemms: Sequence[Gemm],
        timing: Timing,
        tick: Callable[[int], None],
        care: Care,
        trying: OnTrying,
    ) -> tuple[dict[Gemm, Visit], list[GemmFacts]]:
        size = ring_elements(gemms, self.cache_bytes)
        ring = Ring(self._pool("ring", gemms[0].dtype, *size), hot=timing.l2 == "hot")
        if not self.soaked and timing.power == "sustained" and timing.soak_max_s and not care.one_by_one:
            self._load(max(gemms, key=lambda gemm: gemm.flops), ring)
        trials = ((gemm, self._trial(gemm, ring)) for gemm in self._announced(gemms, care, trying))
        failures: list[GemmFacts] = []
        seconds: dict[Gemm, float] = {}
        for done, (gemm, outcome) in enumerate(trials if care.one_by_one else list(trials)):
            try:
                seconds[gemm] = outcome()
            except GemmFailure as failure:
                if failure.status == "oom" and not care.last:
                    raise torch.OutOfMemoryError(failure.message) from failure
                failures.append(GemmFacts(gemm_id=gemm.gemm_id, status=failure.status, message=failure.message))
            tick(done + 1)
        if self.typical_s is None and seconds:
            self.typical_s = median(seconds.values())
        visits = self._visits(seconds, ring, timing) if seconds else {}
        if care.one_by_one:
            for gemm in self._announced(visits, care, trying):
                visits[gemm].enqueue().seconds()
        return visits, failures

    def _load(self, gemm: Gemm, ring: Ring) -> None:  # noqa: B027
        """Let the device work on ``gemm`` while the host prepares; where it does not work behind its back, nothing."""

    def _announced(self, gemms: Iterable[Gemm], care: Care, trying: OnTrying) -> Iterator[Gemm]:
        """Pass the Gemms on; where they run one by one, name each first and wait for it before the next."""
        for gemm in gemms:
            if care.one_by_one:
                trying(gemm)
            yield gemm
            if care.one_by_one:
                self.synchronize()

    def _refused(self, gemm: Gemm, care: Care, failures: list[GemmFacts]) -> bool:
        reason = self.unsupported(gemm)
        status = "unsupported"
        if reason is None:
            inputs, outputs = ring_elements([gemm], self.cache_bytes)
            needed = inputs * gemm.element_bytes + outputs * gemm.output_element_bytes
            status, reason = "skipped", care.too_large(gemm) or self.too_large(needed)
        if reason is not None:
            failures.append(GemmFacts(gemm_id=gemm.gemm_id, status=status, message=reason))
        return reason is not None

    def _trial(self, gemm: Gemm, ring: Ring) -> Callable[[], float]:
        """Run ``gemm`` once to be checked and once more to be timed; the device may still be at it.

        The outcome, when asked for, is the seconds of a call, or a GemmFailure.
        """
        try:
            checked = self.checked_call(gemm, ring.take(gemm))
        except GemmFailure as failure:
            return _failing(failure.status, failure.message)  # the failure itself holds on to the operands
        seconds = self._timed_call(gemm, ring.take(gemm))

        def outcome() -> float:
            checked()
            return seconds()

        return outcome

    def checked_call(self, gemm: Gemm, operands: Operands) -> Callable[[], None]:
        """Call ``gemm`` once; what is returned waits for the result and raises GemmFailure where it is wrong.

        Raises GemmFailure at once where the call is refused, or has no memory.
        """
        bmm.poison(operands)
        try:
            bmm.call(gemm, operands)
        except torch.OutOfMemoryError as error:
            raise GemmFailure("oom", str(error)) from error
        except (RuntimeError, ValueError) as error:
            if not refused(error):
                raise
            self.synchronize()  # raises where the device itself is lost, by this call or by one before it
            raise GemmFailure("unsupported", str(error).partition("\n")[0]) from error
        wrong = bmm.check(gemm, operands)

        def checked() -> None:
            if (message := wrong()) is not None:
                raise GemmFailure("wrong_result", message)

        return checked

    def _timed_call(self, gemm: Gemm, operands: Operands) -> Callable[[], float]:
        """Time one call; a device that works behind Python's back answers when asked."""
        seconds = self._call_seconds(gemm, operands)
        return lambda: seconds

    def _pool(self, name: str, dtype: str, inputs: int, outputs: int) -> OperandPool:
        """The pool of this name, grown where it is too small; a pool of another dtype is given up first."""
        pool = self._pools.get(name)
        if pool is not None and pool.dtype == dtype:
            inputs, outputs = max(inputs, pool.inputs.numel()), max(outputs, pool.outputs.numel())
            if (inputs, outputs) == (pool.inputs.numel(), pool.outputs.numel()):
                return pool
        del pool
        self._pools.pop(name, None)
        self._pools[name] = OperandPool(self.torch_device, dtype, inputs=inputs, outputs=outputs, seed=len(name))
        return self._pools[name]

    def _pooled_bytes(self) -> int:
        return sum(pool.bytes for pool in self._pools.values())


def refused(error: RuntimeError | ValueError) -> bool:
    """Whether an operator or its library would not take a Gemm, before anything was launched.

    Operators say in their own words what they want. What the device or its driver says is a fault, except a library's
    «not supported» and its «invalid value», which is how cuBLAS calls shapes and layouts that it does not take.
    """
    return bool(REFUSALS.search(str(error))) or not FAULTS.search(str(error))


def _failing(status: str, message: str) -> Callable[[], float]:
    def outcome() -> float:
        raise GemmFailure(status, message)

    return outcome


def open_device(kind: str = "auto") -> Device:
    """Open the device that this process sees: kind ``cuda`` (also ROCm), ``cpu``, or ``auto`` (cuda if there is one).

    Raises RuntimeError where ``cuda`` is asked for and torch sees none, or more than one.
    """
    if kind == "cpu" or (kind == "auto" and not torch.cuda.is_available()):
        from tasks.cpu import CpuDevice

        return CpuDevice()
    from tasks.cuda import CudaDevice

    return CudaDevice()
