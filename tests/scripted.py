"""A device that times nothing: costs, memory and telemetry are made up; its clock moves by what it pretends to do."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import torch

from tasks.calls import lead_calls, visit_calls
from tasks.device import Device, Pending, Visit
from tasks.gemm import Gemm
from tasks.pool import Operands, Ring
from tasks.records import Telemetry
from tasks.settings import Timing
from tasks.support import Architecture
from tasks.telemetry import Window
from tests.fakes import device_info

GIB = 2**30
CACHE_BYTES = 2**20


class ScriptedPending(Pending):
    """A visit that ends when it is asked for."""

    def __init__(self, device: "ScriptedDevice", visit: "ScriptedVisit") -> None:
        self._device = device
        self._visit = visit

    def seconds(self) -> float:
        """Let the device's time pass."""
        each = self._device.cost(self._visit.gemm)
        self._device.now += each * (self._visit.calls + self._visit.lead_calls)
        self._device.log.append(("read", self._visit.gemm))
        return each


class ScriptedVisit(Visit):
    """Calls that take what the device's cost says."""

    def __init__(self, device: "ScriptedDevice", gemm: Gemm, *, calls: int, lead_calls: int) -> None:
        super().__init__(gemm, calls=calls, lead_calls=lead_calls, launch="stream")
        self._device = device

    def enqueue(self) -> Pending:
        """Take note."""
        self._device.log.append(("enqueue", self.gemm))
        return ScriptedPending(self._device, self)


class ScriptedDevice(Device):
    """Multiplies on the CPU while it prepares, so that results are checked; all times are ``cost(gemm)``.

    telemetry: one for each window that is opened, the last one for all that follow. log: what was enqueued and read.
    """

    def __init__(
        self,
        cost: Callable[[Gemm], float] = lambda gemm: 1e-3,
        telemetry: Sequence[Telemetry] = (Telemetry(),),
        free: int = GIB,
    ) -> None:
        super().__init__(torch.device("cpu"), replace(device_info("scripted"), l2_bytes=CACHE_BYTES))
        self.cost = cost
        self.free = free
        self.now = 0.0
        self.soaks: list[Gemm] = []
        self.log: list[tuple[str, Gemm]] = []
        self._telemetry = list(telemetry)

    @property
    def architecture(self) -> Architecture:
        """What it multiplies with, which is no GPU."""
        return Architecture(kind="cpu", gpu="CPU")

    def free_bytes(self) -> int:
        """What the test says."""
        return self.free

    def session(self) -> AbstractContextManager[object]:
        """Nothing to enter."""
        return nullcontext()

    def synchronize(self) -> None:
        """Nothing runs."""

    def clock(self) -> float:
        """The device's own time."""
        return self.now

    def window(self) -> Window:
        """The next telemetry."""
        telemetry = self._telemetry.pop(0) if len(self._telemetry) > 1 else self._telemetry[0]
        return Window(None, self.clock, telemetry)

    def soak(self, visit: Visit, timing: Timing, since: float) -> None:
        """Take note, and let the time pass."""
        self.soaks.append(visit.gemm)
        self.now = max(self.now, since + timing.soak_min_s)

    def flush(self) -> None:
        """There is no cache."""

    def flushed_calls(self, gemm: Gemm, operands: Operands, count: int) -> list[float]:
        """Let the device's time pass."""
        self.log.append(("flushed", gemm))
        self.now += count * self.cost(gemm)
        return [self.cost(gemm)] * count

    def _call_seconds(self, gemm: Gemm, operands: Operands) -> float:
        return self.cost(gemm)

    def _visits(self, seconds: dict[Gemm, float], ring: Ring, timing: Timing) -> dict[Gemm, Visit]:
        calls = {gemm: visit_calls(each, timing) for gemm, each in seconds.items()}
        return {g: ScriptedVisit(self, g, calls=n, lead_calls=lead_calls(n, timing)) for g, n in calls.items()}
