"""The median of some repetitions and an interval for it that assumes no distribution."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A median, and the bounds that hold it with the asked confidence."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return the median with its interval between order statistics; the whole range where the values are too few.

    >>> median_interval([5.0, 1.0, 2.0, 3.0, 4.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    Interval(median=5.5, low=2.0, high=9.0)
    """
    ordered, n = sorted(values), len(values)
    cut = 0
    # Each tail holds the median with the chance that at most `cut` of n fair coins show heads (David, Nagaraja 2003).
    while cut < (n - 1) // 2 and 2 * sum(comb(n, i) for i in range(cut + 2)) / 2**n <= 1 - confidence:
        cut += 1
    return Interval(median=median(ordered), low=ordered[cut], high=ordered[n - 1 - cut])
