"""When a device has settled, by made-up readings."""

from collections.abc import Callable

from tasks.settling import capped, settled
from tasks.telemetry import Reading


def test_power_and_clock_have_settled_when_a_second_repeats_the_one_before() -> None:
    def readings(power: Callable[[int], float], clock: Callable[[int], float]) -> list[tuple[float, Reading]]:
        return [(t / 4, Reading(clock(t), None, None, power(t), 0)) for t in range(9)]  # two seconds

    steady = readings(lambda t: 690.0, lambda t: 1500.0)
    assert not settled([])
    assert settled(steady)
    assert not settled(steady[:4])  # nothing older than a second
    rising = readings(lambda t: 400.0 + 20 * t, lambda t: 1500.0)
    assert not settled(rising)
    falling_clock = readings(lambda t: 690.0, lambda t: 1900.0 - 50 * t)
    assert not settled(falling_clock)


def test_a_device_that_its_power_cap_holds_for_half_a_second_boosts_no_more() -> None:
    def readings(*reasons: int) -> list[tuple[float, Reading]]:
        return [(t / 10, Reading(1500.0, None, None, 690.0, each)) for t, each in enumerate(reasons)]

    assert capped(readings(0, 0, 4, 4, 4, 4, 4, 4))
    assert capped(readings(0, 4, 4 | 0x20, 4, 4, 4))
    assert not capped(readings(4, 4, 4, 4, 0, 4, 4))
    assert not capped(readings(4, 4, 4))
    assert not capped([])
