"""Which Candidates differ: drift-free comparison of costs measured in the same rounds.

The rounds are blocks of a randomised block design: what drifts (clocks, power, temperature) moves every Candidate of a
round alike and cancels in differences within the round. Locations are 20% trimmed means, so that a hiccup in a few
rounds moves nothing; a pair's interval is Yuen's for paired trimmed means (Yuen 1974; Wilcox, «Introduction to Robust
Estimation», section 5.9), widened by the lag-1 autocorrelation of the differences as for a first-order
autoregression, since neighbouring rounds share the chip's state. Bonferroni's correction covers all pairs and all
looks at which the rounds could have stopped: at confidence 0.95, the chance that any pair of equal Candidates in the
Family is separated is at most 5%. A tie group is no such pair: of two equal Candidates one may be told from a leader,
one not.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tasks.comparison import Comparison
from tasks.location import MIN_ROUNDS, Floats, trimmed

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]

FAR = math.log1p(0.25)
"""Log cost by which a Candidate is behind that is another kind of kernel: it draws less power, and the others boost."""


def compare(
    log_cost: Floats,
    tie_pct: float,
    confidence: float,
    looks: int = 1,
    blocks: Ints | None = None,
    racing: Bools | None = None,
) -> Comparison:
    """Compare Candidates by ``log_cost[rounds, candidates]``, log of seconds per FLOP; NaN where not sampled.

    looks: at how many points the rounds may have been stopped for what had been measured. The error that ``confidence``
    allows is shared out over them, so that stopping at a lucky moment gains nothing.

    The round's reference is the median over the Candidates that stayed to the end, so one that left early is compared
    on the same footing. Those that stayed are compared with each other by the rounds since the first slow one left (one
    that is FAR behind), once there are MIN_ROUNDS of them: it disturbs its neighbours (a chip under a power cap boosts
    beside a kernel that draws little). For the same reason a slow one is set against what the others cost once it had
    left, as they would run in a model of their own, and its intervals reach to what they cost beside it.

    blocks: which device measured each round, where several did. Who left, when, and what that changed is found device
    by device: how fast one is says nothing of what the Candidates on another did. One that was not measured at all on
    a device (it did not fit) has not left there. The intervals hold for these devices in these rounds.

    racing: which rounds were a race (default: all). The others were levels of a search, whose last one it leaves also
    those that are near the best, where too many are.
    """
    finite = np.isfinite(log_cost)
    blocks = np.zeros(len(log_cost), dtype=np.int64) if blocks is None else blocks
    racing = np.ones(len(log_cost), dtype=bool) if racing is None else racing
    by_block = [finite[blocks == block] for block in np.unique(blocks)]
    stayed, agreed = _stayed(by_block, finite.sum(axis=0))
    tie, alpha = math.log1p(tie_pct / 100), (1 - confidence) / looks
    if not stayed.any():
        return _nothing(log_cost, tie, alpha)
    reference = _reference(by_block, stayed)
    kept = np.asarray(finite[:, reference].any(axis=1))  # a round that none of them finished compares nothing
    aside = _aside(by_block, [racing[blocks == block] for block in np.unique(blocks)])
    found = _Rounds(log_cost[kept], reference, stayed, aside, finite.sum(axis=0), agreed=agreed)
    for block in np.unique(blocks) if agreed else ():
        found.see(np.flatnonzero(blocks[kept] == block))
    return found.comparison(kept, tie, alpha)


def _nothing(log_cost: Floats, tie: float, alpha: float) -> Comparison:
    """Compare Candidates of which none has a sample."""
    rounds, candidates = log_cost.shape
    none = np.zeros(candidates, dtype=bool)
    every = np.ones(rounds, dtype=bool)
    return Comparison(
        relative=log_cost,
        effect=np.full(candidates, np.nan),
        stayed=none,
        left=none,
        aside=none,
        near=none,
        settled=every,
        kept=every,
        steady=np.zeros(rounds),
        shift=np.full(candidates, np.nan),
        joined=False,
        tie=tie,
        alpha=alpha,
    )


def _stayed(by_block: Sequence[Bools], counts: Ints) -> tuple[Bools, bool]:
    """Who stayed to the end, and whether the devices agree on one at all."""
    stayed = (counts > 0) & _to_the_end(by_block)
    if stayed.any():
        return stayed, True
    # Every one left on some device: those with the most rounds count as the ones that stayed.
    return (counts > 0) & (counts == counts.max(initial=0)), False


def _aside(by_block: Sequence[Bools], racing: Sequence[Bools]) -> Bools:
    """Who did not race though it was in the last level before, and was not behind on another device."""
    aside, left = np.zeros((2, by_block[0].shape[1]), dtype=bool)
    for finite, race in zip(by_block, racing, strict=True):
        here = ~finite[race].any(axis=0) & finite[np.flatnonzero(~race)[-1:]].any(axis=0)
        aside |= here
        left |= ~here & ~_to_the_end([finite])
    return aside & ~left


def _reference(by_block: Sequence[Bools], stayed: Bools) -> Bools:
    """Those that stayed; of one that was not measured on every device the level would be another on each."""
    everywhere = stayed & np.all([found.any(axis=0) for found in by_block], axis=0)
    return everywhere if everywhere.any() else stayed


class _Rounds:
    """The rounds that compare something, and what it changed in them that some joined or left.

    What it changed is found device by device. The fields are those of ``Comparison``, the level ``[rounds, 1]`` is that
    of the reference; counts: rounds of each Candidate, also of those that compare nothing.
    """

    def __init__(
        self, log_cost: Floats, reference: Bools, stayed: Bools, aside: Bools, counts: Ints, *, agreed: bool
    ) -> None:
        self._finite, self._counts, self._stayed = np.isfinite(log_cost), counts, stayed
        self._level = _levels(log_cost, reference)
        self._relative = log_cost - self._level
        self._left = agreed & ~stayed & self._finite.any(axis=0)
        self._aside = self._left & aside
        self._behind = _behind(self._relative, stayed, self._left)
        self._slow = self._behind > FAR
        self._settled = np.ones(len(log_cost), dtype=bool)
        self._steady = np.zeros(len(log_cost))
        self._shift = np.zeros(len(stayed))
        self._joined = False

    def see(self, here: Ints) -> None:
        """Look at the rounds of one device."""
        together = here[_last_joined(self._finite[here]) :]
        self._joined |= len(together) < len(here)
        self._settled[here] = np.isin(here, together)
        if not len(together):
            return
        beside_slow = self._finite[together][:, self._slow]
        later = beside_slow.sum(axis=1) < np.count_nonzero(beside_slow[0])
        if later.sum() >= MIN_ROUNDS:
            self._settled[together] = later
            self._move(here, together, later)
        self._steady[here] = np.median(self._level[here][self._settled[here]]) - self._level[here, 0]

    def _move(self, here: Ints, together: Ints, later: Bools) -> None:
        """Set the slow ones that left against what the others cost later."""
        beside, after = (float(trimmed(self._level[rows]).mean[0]) for rows in (together[~later], together[later]))
        # Of one that was measured on several devices, the rounds of each count.
        found = self._finite[here].sum(axis=0)
        gone = self._slow & self._finite[together[0]] & (self._finite[together].sum(axis=0) < len(together))
        self._shift[gone] += (after - beside) * found[gone] / np.maximum(self._counts[gone], 1)

    def comparison(self, kept: Bools, tie: float, alpha: float) -> Comparison:
        return Comparison(
            relative=self._relative,
            effect=self._effect(tie),
            stayed=self._stayed,
            left=self._left,
            aside=self._aside,
            near=self._left & ~self._slow,
            settled=self._settled,
            kept=kept,
            steady=self._steady,
            shift=self._shift,
            joined=self._joined,
            tie=tie,
            alpha=alpha,
        )

    def _effect(self, tie: float) -> Floats:
        """Log cost of each Candidate beside the level, by the rounds that count for it."""
        disturbed = self._stayed[None, :] & ~self._settled[:, None]
        effect = trimmed(np.where(disturbed, np.nan, self._relative)).mean - self._shift
        if not self._left.any():
            return np.asarray(effect)
        # Few rounds are left to know it by: where it was half a tie behind or more, it is no better than a tie behind.
        known = (self._behind >= tie / 2) & ~self._aside
        least = np.where(known, 1.001 * tie, np.maximum(0.0, self._behind))
        return np.fmax(effect, np.nanmin(effect[self._stayed]) + least)


def _last_joined(finite: Bools) -> int:
    """The round in which the last of those joined that were in the last round; the others joined before, or left."""
    return int(finite.argmax(axis=0)[finite[-1]].max(initial=0)) if len(finite) else 0


def _to_the_end(by_block: Sequence[Bools]) -> Bools:
    """Whether each Candidate was in all rounds, since the last one joined, of every device that measured it at all."""
    each = [finite[_last_joined(finite) :].all(axis=0) | ~finite.any(axis=0) for finite in by_block]
    return np.asarray(np.all(each, axis=0))


def _levels(log_cost: Floats, reference: Bools) -> Floats:
    """What the reference cost in each round, ``[rounds, 1]``: its median.

    Where some of it were not there yet, the median of those that were, each less what it costs beside all of them.
    """
    costs = log_cost[:, reference]
    level = np.nanmedian(costs, axis=1, keepdims=True)
    partly = ~np.isfinite(costs).all(axis=1)
    if partly.any() and not partly.all():
        own = trimmed(costs[~partly] - level[~partly]).mean
        level[partly] = np.nanmedian(costs[partly] - own, axis=1, keepdims=True)
    return np.asarray(level)


def _behind(relative: Floats, stayed: Bools, left: Bools) -> Floats:
    """Log cost of each Candidate that left over the best of those that stayed, by the rounds they shared; else NaN."""
    behind = np.full(len(left), np.nan)
    leavers = np.flatnonzero(left)
    there, which = np.unique(np.isfinite(relative[:, leavers]), axis=1, return_inverse=True)
    for number, rounds in enumerate(there.T):  # those that came and left together share their rounds
        own = leavers[which.reshape(-1) == number]
        shared = trimmed(relative[rounds]).mean
        behind[own] = shared[own] - np.nanmin(shared[stayed])
    return behind
