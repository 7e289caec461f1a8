"""How the pace of a device drifts inside a round, told from the visits that lie next to each other in time.

A chip under a power cap changes its clocks in steps, every ten to twenty milliseconds on an H200, by up to 15% in the
first rounds of a phase and by some percent later. Between rounds that cancels (``tasks.statistics``); a step amid a
round would set those before it against those after it. Each visit's neighbours in time tell how fast the device was
just then: the median of what they took beside what each of them takes. A visit is no neighbour of its own, and what it
took decides only, where the clocks have just stepped, on which side of the step it was. Only what differs within a
round is told, not between rounds.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tasks.location import Floats

HALF = 4
"""Visits before and behind one by which it is told how fast the device was."""

STEP = 5.0
"""How many times as far apart as in the median case the two sides of a visit are where the clocks have stepped."""

SWEEPS = 3
"""Of Tukey's median polish, and then of the local one: what is left to gain after them is below the noise."""

DIGITS = 5
"""Decimals that are told: 0.001% is below the noise, and few different figures take little space."""

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


def typical(gemm: Ints, round_: Ints, log_seconds: Floats) -> Floats:
    """What each Gemm takes beside the others, up to a constant: log seconds, by median polish over Gemms and rounds.

    The arguments are one item per visit, numbers from 0 on; every Gemm has a visit, and every round.
    """
    visits = _table(gemm, round_, log_seconds)
    own = _median(visits, axis=0)
    for _ in range(SWEEPS):
        own = _median(visits - _median(visits - own, axis=1)[:, None], axis=0)
    return own


def slowdown(gemm: Ints, round_: Ints, log_seconds: Floats, own: Floats, alike: Bools) -> Floats:
    """How many times as long as over its whole round a call took at the moment of each visit, from its neighbours.

    The visits are in the order of time. own: what each Gemm takes, by ``typical``. alike[gemms]: which of them respond
    to the clocks alike; the others tell nothing of the device, and of them 1 is returned, as of too few visits.
    """
    found = np.ones(len(gemm))
    told = np.flatnonzero(alike[gemm])
    if len(told) <= 2 * HALF:
        return found
    _, which = np.unique(gemm[told], return_inverse=True)
    _, turn = np.unique(round_[told], return_inverse=True)
    seconds, own = log_seconds[told], own[gemm[told]]
    for _ in range(SWEEPS):
        level = _of_neighbours(seconds - own)
        own = _median(_table(which, turn, seconds - level), axis=0)[which]
    level -= _median(_table(which, turn, level), axis=1)[turn]
    found[told] = np.exp(level).round(DIGITS)
    return found


def _of_neighbours(values: Floats) -> Floats:
    """Median over the HALF values on either side of each, without itself; near an end those inside count twice.

    Where the sides are further apart than they mostly are, a step lies there: then the median of that side counts to
    which the value itself belongs.
    """
    sides = np.delete(sliding_window_view(np.pad(values, HALF, mode="reflect"), 2 * HALF + 1), HALF, axis=1)
    before, behind = (np.median(side, axis=1) for side in np.hsplit(sides, 2))
    apart = np.abs(before - behind)
    nearer = np.where(np.abs(values - before) < np.abs(values - behind), before, behind)
    return np.asarray(np.where(apart > STEP * np.median(apart), nearer, np.median(sides, axis=1)))


def _table(gemm: Ints, round_: Ints, values: Floats) -> Floats:
    """One value per visit as ``[rounds, gemms]``, NaN where there is none."""
    table = np.full((int(round_.max()) + 1, int(gemm.max()) + 1), np.nan)
    table[round_, gemm] = values
    return table


def _median(values: Floats, axis: int) -> Floats:
    """Median along an axis of those that are not NaN, of which each line has one, in a tenth of nanmedian's time."""
    ordered = np.sort(values, axis=axis)
    count = np.isfinite(values).sum(axis=axis, keepdims=True)
    low = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0), axis=axis)
    high = np.take_along_axis(ordered, np.minimum(count // 2, values.shape[axis] - 1), axis=axis)
    return np.asarray((low + high) / 2).squeeze(axis)
