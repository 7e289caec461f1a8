"""What polls of NVML come to, and what happens where there is no NVML."""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest

from tasks.records import Telemetry
from tasks.telemetry import Nvml, Reading, Window, summarise, together

UUID = "GPU-1234"
HANDLE = "the handle"


class NVMLError(Exception):
    """As NVML's own."""


class FakeNvml(ModuleType):
    """The few functions of pynvml that are asked, over a dictionary of answers; a missing answer is an NVMLError."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, **answers: Any) -> None:
        super().__init__("pynvml")
        self.NVMLError = NVMLError
        self.answers = answers
        self.threads: set[int] = set()
        self.polled = threading.Event()

    def answer(self, name: str) -> Any:
        if name not in self.answers:
            raise NVMLError(name)
        value = self.answers[name]
        return next(value) if isinstance(value, Iterator) else value

    def nvmlInit(self) -> None:
        self.answer("init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError("not found")
        return HANDLE

    def asked(self, name: str, handle: str) -> Any:
        assert handle == HANDLE
        return self.answer(name)

    def nvmlDeviceGetClockInfo(self, handle: str, which: int) -> Any:
        return self.asked({1: "sm", 2: "memory"}[which], handle)

    def nvmlDeviceGetTemperature(self, handle: str, which: int) -> Any:
        return self.asked("temperature", handle)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> Any:
        return self.asked("power", handle)

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: str) -> Any:
        self.threads.add(threading.get_ident())
        self.polled.set()
        return self.asked("reasons", handle)

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> Any:
        return self.asked("energy", handle)

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: str) -> Any:
        return self.asked("limit", handle)

    def nvmlDeviceGetMaxClockInfo(self, handle: str, which: int) -> Any:
        return self.asked({1: "sm_max"}[which], handle)

    def nvmlSystemGetDriverVersion(self) -> Any:
        return self.answer("driver")


Install = Callable[..., FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(**answers: Any) -> FakeNvml:
        fake = FakeNvml(init=None, **answers)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


def opened() -> Nvml:
    nvml = Nvml.open(UUID)
    assert nvml is not None
    return nvml


def reading(sm: float | None = None, reasons: int = 0, **facts: float) -> Reading:
    return Reading(sm, facts.get("memory"), facts.get("temperature"), facts.get("power"), reasons)


def test_a_window_is_summed_up() -> None:
    readings = [
        reading(1320.0, 0x4, memory=3201.0, temperature=55.0, power=690.0),
        reading(1935.0, 0x4, memory=3199.0, temperature=61.0, power=700.0),
        reading(1500.0, 0x1, memory=3200.0, temperature=60.0, power=680.0),  # 0x1: idle, of no interest
    ]
    assert summarise(readings, 1725.0) == Telemetry(
        sm_clock_mean_mhz=1585.0,
        sm_clock_min_mhz=1320.0,
        memory_clock_mean_mhz=3200.0,
        temperature_max_c=61.0,
        power_mean_w=690.0,
        energy_j=1725.0,
        power_limited=True,
        throttled=False,
        reasons=("sw_power_cap",),
    )


def test_what_a_device_does_not_tell_is_left_out_of_the_means() -> None:
    found = summarise([reading(1000.0), reading(None, power=5.0), reading(2000.0)], None)
    assert (found.sm_clock_mean_mhz, found.sm_clock_min_mhz, found.power_mean_w) == (1500.0, 1000.0, 5.0)
    assert (found.memory_clock_mean_mhz, found.temperature_max_c, found.energy_j) == (None, None, None)


def test_no_polls_tell_nothing() -> None:
    assert summarise([], None) == Telemetry()


@pytest.mark.parametrize(
    ("bits", "limited", "throttled", "names"),
    [
        (0x0, False, False, ()),
        (0x1 | 0x2 | 0x10 | 0x100, False, False, ()),  # idle, application clocks, sync boost, display clocks
        (0x4, True, False, ("sw_power_cap",)),
        (0x8, False, True, ("hw_slowdown",)),
        (0x20, False, True, ("sw_thermal_slowdown",)),
        (0x40, False, True, ("hw_thermal_slowdown",)),
        (0x80, False, True, ("hw_power_brake",)),
        (0x4 | 0x8 | 0x40, True, True, ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")),
    ],
)
def test_reasons_are_named_and_judged(bits: int, limited: bool, throttled: bool, names: tuple[str, ...]) -> None:
    found = summarise([reading(reasons=bits), reading()], None)
    assert (found.power_limited, found.throttled, found.reasons) == (limited, throttled, names)


def test_reasons_of_all_polls_count() -> None:
    assert summarise([reading(reasons=0x4), reading(reasons=0x40)], None).reasons == (
        "sw_power_cap",
        "hw_thermal_slowdown",
    )


def test_the_reasons_are_those_of_the_library() -> None:
    pynvml = pytest.importorskip("pynvml")
    assert pynvml.nvmlClocksEventReasonSwPowerCap == 0x4
    assert pynvml.nvmlClocksThrottleReasonHwSlowdown == 0x8
    assert pynvml.nvmlClocksEventReasonSwThermalSlowdown == 0x20
    assert pynvml.nvmlClocksThrottleReasonHwThermalSlowdown == 0x40
    assert pynvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown == 0x80


def test_a_poll_is_in_megahertz_degrees_and_watts(install: Install) -> None:
    install(sm=1755, memory=3201, temperature=61, power=691_234, reasons=4)
    assert opened().reading() == Reading(1755, 3201, 61, 691.234, 4)


def test_what_nvml_refuses_is_unknown(install: Install) -> None:
    install(sm=1755)
    nvml = opened()
    assert nvml.reading() == Reading(1755, None, None, None, 0)
    assert (nvml.energy_j(), nvml.power_limit_w(), nvml.sm_clock_max_mhz(), nvml.driver()) == (None,) * 4


def test_facts_are_in_joules_and_watts(install: Install) -> None:
    install(energy=1_234_567, limit=700_000, sm_max=1980, driver="580.159")
    nvml = opened()
    assert (nvml.energy_j(), nvml.power_limit_w(), nvml.sm_clock_max_mhz()) == (1234.567, 700.0, 1980)
    assert nvml.driver() == "580.159"


def test_a_gpu_that_nvml_does_not_know_has_no_telemetry(install: Install) -> None:
    install()
    assert Nvml.open("GPU-other") is None


def test_nvml_that_does_not_start_has_no_telemetry(install: Install) -> None:
    del install().answers["init"]
    assert Nvml.open(UUID) is None


def test_a_machine_without_the_library_has_no_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert Nvml.open(UUID) is None


def watched(fake: FakeNvml, seconds: float) -> Telemetry:
    """A window that is open until the first poll is done, and takes ``seconds`` by its own clock."""
    now = 100.0
    with Window(opened(), lambda: now) as window:
        assert fake.polled.wait(10)
        now += seconds
    return window.telemetry


def test_a_window_polls_in_a_thread_of_its_own(install: Install) -> None:
    fake = install(sm=1500, power=500_000, temperature=50, reasons=0x4, energy=iter([10_000, 1_210_000]))
    found = watched(fake, 2.0)
    assert (found.sm_clock_mean_mhz, found.power_mean_w, found.temperature_max_c) == (1500, 500.0, 50)
    assert (found.energy_j, found.power_limited) == (1200.0, True)
    assert fake.threads
    assert threading.get_ident() not in fake.threads
    assert "telemetry" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    ("energy", "seconds"),
    [
        ([10_000, 1_210_000], 1.99),  # too short for a counter that is updated now and then
        ([], 5.0),  # not told
    ],
)
def test_energy_is_unknown_in_a_short_window_or_without_a_counter(
    install: Install, energy: list[int], seconds: float
) -> None:
    fake = install(sm=1500, **({"energy": iter(energy)} if energy else {}))
    found = watched(fake, seconds)
    assert (found.energy_j, found.sm_clock_mean_mhz) == (None, 1500)


def test_a_window_closes_its_thread_when_the_measuring_fails(install: Install) -> None:
    fake = install(sm=1500, energy=1)
    with pytest.raises(ZeroDivisionError), Window(opened(), lambda: 0.0):  # noqa: PT012
        assert fake.polled.wait(10)
        raise ZeroDivisionError
    assert "telemetry" not in [thread.name for thread in threading.enumerate()]


def test_without_nvml_a_window_tells_nothing_and_starts_no_thread() -> None:
    before = threading.active_count()
    with Window(None, lambda: 0.0) as window:
        assert threading.active_count() == before
    assert window.telemetry == Telemetry()


def test_several_windows_tell_the_extremes_and_the_flags_of_all_and_no_energy() -> None:
    early = Telemetry(sm_clock_mean_mhz=1700.0, sm_clock_min_mhz=1300.0, temperature_max_c=70.0, throttled=True)
    late = Telemetry(sm_clock_mean_mhz=1500.0, sm_clock_min_mhz=1400.0, energy_j=900.0, reasons=("sw_power_cap",))
    assert together([late]) == late
    found = together([replace(early, reasons=("hw_slowdown",)), late])
    assert (found.sm_clock_mean_mhz, found.sm_clock_min_mhz, found.temperature_max_c) == (1500.0, 1300.0, 70.0)
    assert (found.energy_j, found.throttled, found.power_limited) == (None, True, False)
    assert found.reasons == ("hw_slowdown", "sw_power_cap")
