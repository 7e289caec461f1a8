"""When a device under load boosts no more: its power cap holds it, or its power and clock repeat."""

from collections.abc import Callable, Sequence
from statistics import fmean

from tasks.telemetry import POWER_LIMITED, Reading

CAPPED_S, CAPPED_READINGS = 0.5, 4

SETTLE_S = 1.0
SETTLE_POWER = 0.02
SETTLE_CLOCK = 0.03
"""Settled: the means of the last second and of the second before it differ by less than this share."""


def capped(readings: Sequence[tuple[float, Reading]]) -> bool:
    """Whether the power cap has held the clocks for the last CAPPED_S: no boost is left."""
    last = [reading for at, reading in readings if at > readings[-1][0] - CAPPED_S]
    return len(last) >= CAPPED_READINGS and all(reading.reasons & POWER_LIMITED for reading in last)


def settled(readings: Sequence[tuple[float, Reading]]) -> bool:
    """Whether mean power and clock of the last second repeat those of the one before, by readings and their seconds."""
    if not readings:
        return False
    now = readings[-1][0]
    last = [reading for at, reading in readings if at > now - SETTLE_S]
    before = [reading for at, reading in readings if now - 2 * SETTLE_S < at <= now - SETTLE_S]
    if not before:
        return False

    def change(of: Callable[[Reading], float | None]) -> float:
        old = fmean(of(reading) or 0.0 for reading in before)
        new = fmean(of(reading) or 0.0 for reading in last)
        return abs(new - old) / old if old else 0.0

    return change(lambda r: r.power_w) < SETTLE_POWER and change(lambda r: r.sm_clock_mhz) < SETTLE_CLOCK
