"""Where the values of some rounds lie, and how sure that is: trimmed means, their errors and the quantiles for them."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

TRIM = 0.2
"""Share of the rounds trimmed on either side."""

MIN_ROUNDS = 4
"""Below this a pair has no interval: too few rounds to know the spread."""

MAX_CORRELATION = 0.95
"""An estimate above is taken as this: so few rounds are independent that nothing more can be said."""

CORRELATED_ROUNDS = 20
"""Below this the correlation of rounds cannot be estimated; few rounds are long ones, far apart in time."""

PRIOR_DF = 8
PRIOR_WIDER = 1.1
"""A typical variance is the median one times this: the median of squares is below their mean."""

FEW = 3
"""Below this the other columns say nothing of the variance of one."""

Floats = NDArray[np.float64]


def _t_two_sided(t: float, df: int) -> float:
    """P(|T| > t) for Student's T with a whole number of degrees of freedom (Abramowitz & Stegun 26.7.3, 26.7.4)."""
    theta = math.atan(t / math.sqrt(df))
    cos2 = math.cos(theta) ** 2
    if df % 2:
        term, total = math.cos(theta), 0.0
        for j in range(1, (df - 1) // 2 + 1):
            total += term
            term *= cos2 * 2 * j / (2 * j + 1)
        return 1 - 2 / math.pi * (theta + math.sin(theta) * total)
    term, total = 1.0, 0.0
    for j in range(1, df // 2 + 1):
        total += term
        term *= cos2 * (2 * j - 1) / (2 * j)
    return 1 - math.sin(theta) * total


@lru_cache(maxsize=4096)
def t_quantile(alpha: float, df: int) -> float:
    """Return t with P(|T| > t) == alpha for Student's T with ``df`` >= 1 degrees of freedom.

    The relative error is below 1e-3 for alpha from 1e-10 on.

    Written here because a worker needs nothing but torch and numpy; checked against scipy in the tests.
    """
    if df > 10_000:
        return -NormalDist().inv_cdf(alpha / 2)
    low, high = 0.0, 2.0
    while _t_two_sided(high, df) > alpha:
        low, high = high, high * 2
    while high - low > 1e-7 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if _t_two_sided(middle, df) > alpha else (low, middle)
    return high


@dataclass(frozen=True, slots=True)
class Location:
    """Trimmed mean of each column over its finite rounds, with its standard error and degrees of freedom.

    error: for rounds that are correlated with the next as the column's are.
    """

    mean: Floats
    error: Floats
    df: NDArray[np.int64]


def medians(values: Floats, axis: int = -1) -> Floats:
    """Median along an axis of those that are not NaN, NaN where there is none: nanmedian's in a tenth of its time."""
    ordered = np.sort(values, axis=axis)  # NaN last
    count = (~np.isnan(values)).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum(count - 1, 0) // 2, axis=axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis=axis)
    return np.asarray(((low + high) / 2).squeeze(axis))


def trimmed(values: Floats, least: int = MIN_ROUNDS) -> Location:
    """Yuen's location of each column of ``values[rounds, columns]``, in time order; NaN marks a round without a sample.

    The error is infinite with fewer than ``least`` rounds, of which it takes two; the mean is NaN with none.
    """
    rounds, columns = values.shape
    if rounds == 0:
        return Location(np.full(columns, np.nan), np.full(columns, np.inf), np.zeros(columns, dtype=np.int64))
    ordered = np.sort(values, axis=0)  # NaN last
    count = np.isfinite(ordered).sum(axis=0)
    cut = (TRIM * count).astype(np.int64)
    kept = count - 2 * cut
    low = np.take_along_axis(ordered, np.minimum(cut, rounds - 1)[None, :], axis=0)
    high = np.take_along_axis(ordered, np.maximum(count - cut - 1, 0)[None, :], axis=0)
    index = np.arange(rounds)[:, None]
    inside = (index >= cut) & (index < count - cut)
    some = np.maximum(kept, 1)
    mean = np.where(kept > 0, np.where(inside, ordered, 0.0).sum(axis=0) / some, np.nan)
    winsorized = np.where(index < count, np.clip(ordered, low, high), 0.0)
    centre = winsorized.sum(axis=0) / np.maximum(count, 1)
    squares = np.where(index < count, (winsorized - centre) ** 2, 0.0).sum(axis=0)
    if (count >= CORRELATED_ROUNDS).any():
        in_time = np.nan_to_num(np.clip(values, low, high) - centre)  # NaN, no sample, becomes 0: no part in a product
        correlation = _correlation(in_time, squares, count)
        squares = squares * (1 + correlation) / (1 - correlation)
    error = np.where(count >= least, np.sqrt(squares / (some * np.maximum(some - 1, 1))), np.inf)
    return Location(mean, error, np.maximum(kept - 1, 0))


def _correlation(in_time: Floats, squares: Floats, count: NDArray[np.int64]) -> Floats:
    """Of each round of a column with the next, as far as so many rounds tell."""
    lagged = (in_time[1:] * in_time[:-1]).sum(axis=0)
    correlation = lagged / np.where(squares > 0, squares, 1.0)
    correlation += (1 + 3 * correlation) / np.maximum(count, 1)  # less its bias (Marriott and Pope 1954)
    return np.where(count >= CORRELATED_ROUNDS, np.clip(correlation, 0.0, MAX_CORRELATION), 0.0)


def moderated(location: Location, rounds: NDArray[np.int64]) -> Location:
    """Of columns that are measured alike: the variance of each moderated by that of the others.

    In few rounds the spread of one is hardly known, and the quantiles for so few degrees of freedom would ask for three
    times the rounds. So each variance counts as if PRIOR_DF of its degrees of freedom had been seen on a typical column
    (Smyth 2004, «Linear models and empirical Bayes methods»). rounds: of each column, by which its error was found.
    """
    known = np.isfinite(location.error) & (location.error > 0)
    if np.count_nonzero(known) < FEW:
        return location
    typical = PRIOR_WIDER * float(np.median(location.error[known] ** 2 * rounds[known]))
    error, df = np.where(known, location.error, 0.0), location.df
    squares = (PRIOR_DF * typical / np.maximum(rounds, 1) + df * error**2) / (PRIOR_DF + df)
    error = np.where(known, np.sqrt(squares), location.error)
    return Location(location.mean, error, np.where(known, df + PRIOR_DF, df))
