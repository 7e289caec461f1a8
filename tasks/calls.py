"""How many calls a visit makes: pure arithmetic, the same for every device and for planning."""

import math
from collections.abc import Mapping
from statistics import median

from tasks.gemm import Gemm
from tasks.settings import Timing

MAX_CALLS = 1024
"""Most calls of one visit, so that a graph stays small."""

ALIKE = 4.0
"""Gemms whose calls take up to this many times as long as the typical one's, or that much less, are timed alike."""


def visit_calls(seconds: float, timing: Timing) -> int:
    """Timed calls of a visit: one if it fills ``visit_us`` or the cache is flushed before each, else as many as do.

    seconds: of one call.
    """
    if timing.l2 == "flush":
        return 1
    return min(MAX_CALLS, max(1, math.ceil(timing.visit_us * 1e-6 / seconds)))


def shared_calls(seconds: Mapping[Gemm, float], timing: Timing) -> dict[Gemm, int]:
    """Timed calls of the visits to Gemms that are compared: as many for all that take about the typical time.

    Calls that follow one another are a little faster than one alone, so that Candidates just below and just above a
    limit would differ by how they are timed. Those far from the typical time get what is right for them.
    """
    typical = median(seconds.values())
    common = visit_calls(typical, timing)
    return {
        gemm: common if typical / ALIKE <= each <= typical * ALIKE else visit_calls(each, timing)
        for gemm, each in seconds.items()
    }


def lead_calls(calls: int, timing: Timing) -> int:
    """Untimed calls before the timed ones: ``timing.lead_calls``, or 1 where a visit has several calls.

    A visit of one long call has none: on an H200 a lead call doubled the time of a round and made its figures worse.
    """
    if timing.lead_calls is not None:
        return timing.lead_calls
    return 1 if calls > 1 or timing.l2 == "hot" else 0
