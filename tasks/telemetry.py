"""What the device does while it is timed: clocks, power, temperature, throttle reasons and energy, by NVML and UUID."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar

from tasks.records import Telemetry

PERIOD_S = 0.1
ENERGY_MIN_S = 2.0
"""Below this window the energy counter, which NVML updates every 20 to 100 ms, says too little."""

REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake",
}
"""NVML's clock event reasons (nvml.h, nvmlClocksEventReason*) that change a measurement."""

POWER_LIMITED = 0x4
THROTTLED = 0x8 | 0x20 | 0x40 | 0x80

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """One poll. None where the device does not tell."""

    sm_clock_mhz: float | None
    memory_clock_mhz: float | None
    temperature_c: float | None
    power_w: float | None
    reasons: int


class Nvml:
    """NVML's view of one GPU, opened by UUID: an index would be wrong under CUDA_VISIBLE_DEVICES."""

    def __init__(self, uuid: str) -> None:
        import pynvml

        self._nvml: ModuleType = pynvml
        pynvml.nvmlInit()
        self._handle: Any = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    @classmethod
    def open(cls, uuid: str) -> Self | None:
        """Open the GPU with this UUID, or return None where NVML is missing or does not know it."""
        try:
            import pynvml
        except ImportError:
            return None
        try:
            return cls(uuid)
        except pynvml.NVMLError:
            return None

    def _ask(self, question: Callable[..., T], *arguments: int) -> T | None:
        try:
            return question(self._handle, *arguments)
        except self._nvml.NVMLError:
            return None

    def reading(self) -> Reading:
        """Poll once; some milliseconds on some hosts."""
        nvml = self._nvml
        power = self._ask(nvml.nvmlDeviceGetPowerUsage)
        return Reading(
            self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_SM),
            self._ask(nvml.nvmlDeviceGetClockInfo, nvml.NVML_CLOCK_MEM),
            self._ask(nvml.nvmlDeviceGetTemperature, nvml.NVML_TEMPERATURE_GPU),
            None if power is None else power / 1e3,
            self._ask(nvml.nvmlDeviceGetCurrentClocksEventReasons) or 0,
        )

    def energy_j(self) -> float | None:
        """Joules since the driver was loaded."""
        millijoules = self._ask(self._nvml.nvmlDeviceGetTotalEnergyConsumption)
        return None if millijoules is None else millijoules / 1e3

    def power_limit_w(self) -> float | None:
        """The enforced power limit."""
        milliwatts = self._ask(self._nvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if milliwatts is None else milliwatts / 1e3

    def sm_clock_max_mhz(self) -> float | None:
        """The highest SM clock that the device may run."""
        return self._ask(self._nvml.nvmlDeviceGetMaxClockInfo, self._nvml.NVML_CLOCK_SM)

    def driver(self) -> str | None:
        """The driver's version."""
        try:
            return str(self._nvml.nvmlSystemGetDriverVersion())
        except self._nvml.NVMLError:
            return None


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def summarise(readings: list[Reading], energy_j: float | None) -> Telemetry:
    """Sum the polls of one window up."""
    sm = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    reasons = 0
    for reading in readings:
        reasons |= reading.reasons
    return Telemetry(
        sm_clock_mean_mhz=_mean(sm),
        sm_clock_min_mhz=min(sm, default=None),
        memory_clock_mean_mhz=_mean([r.memory_clock_mhz for r in readings if r.memory_clock_mhz is not None]),
        temperature_max_c=max((r.temperature_c for r in readings if r.temperature_c is not None), default=None),
        power_mean_w=_mean([r.power_w for r in readings if r.power_w is not None]),
        energy_j=energy_j,
        power_limited=bool(reasons & POWER_LIMITED),
        throttled=bool(reasons & THROTTLED),
        reasons=tuple(name for bit, name in REASONS.items() if reasons & bit),
    )


@dataclass
class Window:
    """Polls a GPU in a thread of its own while it is open; ``telemetry`` afterwards. Without NVML it tells nothing.

    readings: with the seconds of ``clock`` at which they were made.
    """

    nvml: Nvml | None
    clock: Callable[[], float]
    telemetry: Telemetry = field(default_factory=Telemetry)
    readings: list[tuple[float, Reading]] = field(default_factory=list)
    start: float = 0.0

    def __enter__(self) -> Self:
        self.start = self.clock()
        if self.nvml is not None:
            self._stop = threading.Event()
            self._thread = threading.Thread(target=self._poll, args=(self.nvml,), name="telemetry", daemon=True)
            self._energy = self.nvml.energy_j()
            self._thread.start()
        return self

    def _poll(self, nvml: Nvml) -> None:
        while True:
            reading = nvml.reading()
            self.readings.append((self.clock(), reading))
            if self._stop.wait(PERIOD_S):
                return

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.nvml is None:
            return
        self._stop.set()
        self._thread.join()
        energy, seconds = self.nvml.energy_j(), self.clock() - self.start
        known = energy is not None and self._energy is not None and seconds >= ENERGY_MIN_S
        self.telemetry = summarise([reading for _, reading in self.readings], energy - self._energy if known else None)  # type: ignore[operator]


def together(windows: Sequence[Telemetry]) -> Telemetry:
    """What several windows over one Bundle say of it: the last one's means, the extremes and flags of all.

    The energy of one window is not that of what all have measured.
    """
    last = windows[-1]
    if len(windows) == 1:
        return last
    return replace(
        last,
        sm_clock_min_mhz=min((w.sm_clock_min_mhz for w in windows if w.sm_clock_min_mhz is not None), default=None),
        temperature_max_c=max((w.temperature_max_c for w in windows if w.temperature_max_c is not None), default=None),
        energy_j=None,
        power_limited=any(window.power_limited for window in windows),
        throttled=any(window.throttled for window in windows),
        reasons=tuple(sorted({reason for window in windows for reason in window.reasons})),
    )
