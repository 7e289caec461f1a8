"""How many calls a visit makes: pure arithmetic, the same for every device and for planning."""

from collections.abc import Mapping
from statistics import median

import numpy as np
from numpy.typing import NDArray

from tasks.gemm import Gemm
from tasks.settings import Timing

MAX_CALLS = 1024
"""Most calls of one visit, so that a graph stays small."""

SHORT_S = 2e-5
"""Calls below this fill a longer visit, in proportion: the start of a graph, 4 to 7 us on an H200, weighs on each."""

LONGER = 4.0
"""Most times as long as ``visit_us`` that a visit of short calls is."""

ALONE = 1.5
"""One call is a visit where it fills this part of one: two, and the one that leads, would take four times as long."""

ALIKE = 2.0
"""Gemms whose calls take up to this many times as long as the typical one's, or that much less, are timed alike.

Beyond, what a visit adds to its calls would weigh on a short one more than it does on several of them."""


def visit_calls(seconds: float, timing: Timing) -> int:
    """Timed calls of a visit: as many as fill ``visit_us``, one if it nearly does or the cache is flushed before each.

    Calls of less than ``SHORT_S`` fill more, up to ``LONGER`` times as much. seconds: of one call.
    """
    return int(calls_alone(np.array([seconds]), timing)[0])


def calls_alone(seconds: NDArray[np.float64], timing: Timing) -> NDArray[np.int64]:
    """``visit_calls`` of many Gemms, by the seconds of one call of each."""
    if timing.l2 == "flush":
        return np.ones(seconds.shape, dtype=np.int64)
    filled = timing.visit_us * 1e-6 * np.clip(SHORT_S / seconds, 1.0, LONGER)
    calls = np.where(seconds * ALONE >= filled, 1.0, np.ceil(filled / seconds))
    return np.clip(calls, 1, MAX_CALLS).astype(np.int64)


def calls_together(seconds: NDArray[np.float64], typical: NDArray[np.float64], timing: Timing) -> NDArray[np.int64]:
    """``shared_calls`` of many Gemms, by the seconds of one call of each and of the typical one it is compared with."""
    alike = (typical / ALIKE <= seconds) & (seconds <= typical * ALIKE)
    return np.where(alike, calls_alone(typical, timing), calls_alone(seconds, timing))


def shared_calls(seconds: Mapping[Gemm, float], timing: Timing, typical_s: float | None = None) -> dict[Gemm, int]:
    """Timed calls of the visits to Gemms that are compared: as many for all that take about the typical time.

    Calls that follow one another are a little faster than one alone, so that Candidates just below and just above a
    limit would differ by how they are timed. Those far from the typical time get what is right for them.
    typical_s: that time, where others were made ready before with which these are compared.
    """
    each = np.array(list(seconds.values()), dtype=np.float64)
    typical = np.full(each.shape, median(seconds.values()) if typical_s is None else typical_s)
    return dict(zip(seconds, calls_together(each, typical, timing).tolist(), strict=True))


def lead_calls(calls: int, timing: Timing) -> int:
    """Untimed calls before the timed ones: ``timing.lead_calls``, or 1 where a visit has several calls.

    A visit of one long call has none: on an H200 a lead call doubled the time of a round and made its figures worse.
    """
    if timing.lead_calls is not None:
        return timing.lead_calls
    return 1 if calls > 1 or timing.l2 == "hot" else 0
