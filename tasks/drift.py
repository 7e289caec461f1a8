"""How the pace of a device drifts inside a round, told from the visits that lie next to each other in time.

A chip under a power cap changes its clocks in steps, every ten to twenty milliseconds on an H200, by up to 15% in the
first rounds of a phase and by some percent later. Between rounds that cancels (``tasks.statistics``); a step amid a
round would set those before it against those after it. Each visit's neighbours in time tell how fast the device was
just then: the median of what they took beside what each of them takes. A visit is no neighbour of its own, and what it
took decides only, where the clocks have just stepped, on which side of the step it was. Only what differs within a
round is told, not between rounds.

What is told must bring the visits of a round closer together: where nothing drifts inside rounds, medians of neighbours
would only add their own noise. All parts of a Candidate may tell it, or the same part of others alone, for not every
kernel follows the clocks: whichever brings them closer.
"""

from collections.abc import Sequence

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from tasks.location import Floats, medians

HALF = 4
"""Visits before and behind one by which it is told how fast the device was."""

STEP = 5.0
"""How many times as far apart as in the median case the two sides of a visit are where the clocks have stepped."""

SWEEPS = 3
"""Of Tukey's median polish, and then of the local one: what is left to gain after them is below the noise."""

GAIN = 0.9
"""What is told counts where the mean deviation inside rounds is less than this part of what it is without."""

DIGITS = 5
"""Decimals that are told: 0.001% is below the noise, and few different figures take little space."""

OTHER = -1
"""Kind of a Gemm that tells nothing of the device."""

Ints = NDArray[np.int64]


def stretches(gemm: Ints, turn: Ints) -> Ints:
    """Number of the stretch that each visit is in: the rounds from when some Gemms joined until others do.

    The arguments are one item per visit, numbers from 0 on. Between stretches the device may run otherwise for all,
    which would be taken for what the Gemms of one differ by from those of the other.
    """
    first = np.full(int(gemm.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, gemm, turn)
    begins = np.unique(first[gemm])
    return np.asarray(np.searchsorted(begins, turn, side="right") - 1)


def typical(gemm: Ints, turn: Ints, log_seconds: Floats) -> Floats:
    """What each Gemm takes beside the others, up to a constant: log seconds, by median polish over Gemms and rounds.

    The arguments are one item per visit, of one stretch, numbers from 0 on; every Gemm has a visit, and every round.
    """
    visits = _table(gemm, turn, log_seconds)
    own = medians(visits, axis=0)
    for _ in range(SWEEPS):
        own = medians(visits - medians(visits - own, axis=1)[:, None], axis=0)
    return own


def slowdown(gemm: Ints, turn: Ints, log_seconds: Floats, own: Floats, kind: Ints) -> Floats:
    """How many times as long as over its whole round a call took at the moment of each visit, from its neighbours.

    The visits are those of one stretch in the order of time. own: what each Gemm takes, by ``typical``. kind[gemms]:
    those of one certainly respond to the clocks alike, those of several may; of OTHER ones 1 is returned, as where too
    few visits tell, or none better.
    """
    found = np.ones(len(gemm))
    told = np.flatnonzero(kind[gemm] != OTHER)
    if len(told) <= 2 * HALF:
        return found
    visits = _Visits(gemm[told], turn[told], log_seconds[told])
    together, kinds = _told(visits, own), kind[gemm[told]]
    for each in np.unique(kinds):
        here = kinds == each
        alone = visits.only(here)
        options = [tuple(values[here] for values in together)]
        if not here.all() and here.sum() > 2 * HALF:
            options.append(_told(alone, own))
        found[told[here]] = np.exp(_best(alone, own, options)).round(DIGITS)
    return found


class _Visits:
    """gemm, turn and log seconds of some visits in the order of time; column, row: their place in a table of these."""

    def __init__(self, gemm: Ints, turn: Ints, log_seconds: Floats) -> None:
        self.gemm, self.turn, self.log_seconds = gemm, turn, log_seconds
        self.column, self.row = (np.unique(each, return_inverse=True)[1] for each in (gemm, turn))

    def only(self, here: NDArray[np.bool_]) -> "_Visits":
        return _Visits(self.gemm[here], self.turn[here], self.log_seconds[here])

    def of_gemms(self, values: Floats) -> Floats:
        """What the values of each visit's Gemm lie at."""
        return medians(_table(self.column, self.row, values), axis=0)[self.column]

    def inside(self, values: Floats) -> Floats:
        """What is left of each visit's value beside those of its round."""
        return values - medians(_table(self.column, self.row, values), axis=1)[self.row]


def _told(visits: _Visits, own: Floats) -> tuple[Floats, Floats]:
    """How slow the device was at each visit, log, by all of them; and what its Gemm takes beside that."""
    mine = own[visits.gemm]
    for _ in range(SWEEPS):
        level = _of_neighbours(visits.log_seconds - mine)
        mine = visits.of_gemms(visits.log_seconds - level)
    return level, mine


def _best(visits: _Visits, own: Floats, options: Sequence[tuple[Floats, ...]]) -> Floats:
    """Of what was told, that which brings the visits of a round closest together; 0 where none does.

    Those that race become fewer and fewer: each number of them is judged for itself.
    """
    _, size = np.unique(np.bincount(visits.row)[visits.row], return_inverse=True)
    best = np.zeros(len(size))
    least = GAIN * np.bincount(size, np.abs(visits.inside(visits.log_seconds - own[visits.gemm])))
    for level, mine in options:
        inside = visits.inside(level)
        spread = np.bincount(size, np.abs(visits.inside(visits.log_seconds - mine) - inside))
        best = np.where((spread < least)[size], inside, best)
        least = np.minimum(least, spread)
    return best


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


def _table(gemm: Ints, turn: Ints, values: Floats) -> Floats:
    """One value per visit as ``[rounds, gemms]``, NaN where there is none."""
    table = np.full((int(turn.max()) + 1, int(gemm.max()) + 1), np.nan)
    table[turn, gemm] = values
    return table
