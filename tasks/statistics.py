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
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.location import MIN_ROUNDS, Floats, Location, moderated, t_quantile, trimmed

LEFT_ROUNDS, OWN_ROUNDS = 2, 10
"""One that left is told from others by so many shared rounds; below the second a pair's spread is moderated."""

UNKNOWN = 3.0
"""A half-width above this, a factor of twenty, is no knowledge: it counts as infinite."""

FAR = math.log1p(0.25)
"""Log cost by which a Candidate is behind that is another kind of kernel: it draws less power, and the others boost."""


@dataclass(frozen=True)
class Comparison:
    """The Candidates of one Family against each other, in log cost (seconds per FLOP).

    relative[rounds, candidates]: log cost less the round's median over the Candidates that stayed to the end.
    effect[candidates]: the drift-free estimate; NaN for a Candidate without a sample.
    stayed[candidates]: who was measured in every round, once it had joined; they alone need to be resolved.
    left[candidates]: who was measured, and no longer since it was behind one that stayed.
    near[candidates]: who of these was behind by so little that it is such a kernel as they are, and runs as they do.
    settled[rounds]: rounds by which those are compared with each other. kept[rounds given]: which of the rounds that
    ``compare`` was given these are.
    steady[rounds]: log of what those that stayed cost in the settled rounds over what they cost in each.
    shift[candidates]: log cost by which one that left looks worse beside the others than against them alone.
    joined: whether some joined later.
    tie: log cost below which two Candidates tie. alpha: chance that any pair of equal Candidates is separated.
    """

    relative: Floats
    effect: Floats
    stayed: NDArray[np.bool_]
    left: NDArray[np.bool_]
    near: NDArray[np.bool_]
    settled: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    steady: Floats
    shift: Floats
    joined: bool
    tie: float
    alpha: float

    @property
    def disturbed(self) -> NDArray[np.bool_]:
        """Of the rounds given to ``compare``, those by which the Candidates that stayed are not compared."""
        found = np.zeros(len(self.kept), dtype=bool)
        found[np.flatnonzero(self.kept)[~self.settled]] = True
        return found

    @property
    def steadied(self) -> Floats:
        """``steady`` of the rounds given to ``compare``; 0 in those that compare nothing."""
        found = np.zeros(len(self.kept))
        found[self.kept] = self.steady
        return found

    @cached_property
    def measured(self) -> NDArray[np.int64]:
        """Indices of the Candidates that have samples, best first."""
        order = np.lexsort((~self.stayed, self.effect))
        return order[np.isfinite(self.effect[order])]

    @property
    def order(self) -> list[int]:
        """Indices of the measured Candidates, best first."""
        return [int(i) for i in self.measured]

    def against(self, j: int, comparisons: int | None = None) -> tuple[Floats, Floats]:
        """Log cost of every Candidate over Candidate ``j``'s: (estimates, half-widths of the simultaneous intervals).

        The estimate of a pair that stayed, or that left, is that of the rounds which it shares. A half-width is
        infinite where these are too few to know it; 0 for ``j`` itself. comparisons: how many hold together (default:
        all pairs of the Family).
        """
        differences = self.relative - self.relative[:, [j]]
        if self.stayed[j]:
            differences[np.ix_(~self.settled, self.stayed)] = np.nan
        location, rounds = trimmed(differences), np.isfinite(differences).sum(axis=0)
        few = (rounds < OWN_ROUNDS) & (self.left | self.left[j] | (rounds >= MIN_ROUNDS))
        if few.any():
            close = moderated(trimmed(differences, LEFT_ROUNDS), rounds)
            location = Location(
                location.mean,
                np.where(few, close.error, location.error),
                np.where(few, close.df, location.df),
            )
        if self.joined:
            location = self._linked(location, j, rounds < LEFT_ROUNDS)
        half = self._half(location, comparisons)
        shift = self.shift - self.shift[j]
        half = np.where(half > UNKNOWN, np.inf, half + np.abs(shift))
        half[j] = 0.0
        # A pair of one that stayed and one that left shares only the rounds before: too few to tell the former apart.
        shared = np.isfinite(location.mean) & (self.stayed == self.stayed[j])
        return np.where(shared, location.mean, self.effect - self.effect[j]), half

    @cached_property
    def _own(self) -> Location:
        return trimmed(self.relative)

    def _linked(self, location: Location, j: int, apart: NDArray[np.bool_]) -> Location:
        """Let those that share too few rounds with ``j``, since one left before the other joined, differ by the level.

        What the others cost links the rounds of both.
        """
        own = self._own
        error = np.sqrt(own.error**2 + own.error[j] ** 2)
        return Location(
            np.where(apart, self.effect - self.effect[j], location.mean),
            np.where(apart, error, location.error),
            np.where(apart, np.minimum(own.df, own.df[j]), location.df),
        )

    def _half(self, location: Location, comparisons: int | None = None) -> Floats:
        """Half-widths of intervals that hold together for so many comparisons (default: all pairs)."""
        pairs = len(self.measured) * (len(self.measured) - 1) // 2 if comparisons is None else comparisons
        alpha = self.alpha / max(1, pairs)
        factor = {int(df): t_quantile(alpha, int(df)) for df in np.unique(location.df) if df > 0}
        return np.asarray(location.error * np.array([factor.get(int(df), np.inf) for df in location.df]))

    def difference(self, i: int, j: int) -> tuple[float, float]:
        """Log cost of Candidate ``i`` over ``j``'s and the half-width of its interval."""
        estimate, half = self.against(j)
        return float(estimate[i]), float(half[i])

    def _tied_with(self, j: int) -> NDArray[np.bool_]:
        estimate, half = self.against(j)
        half = np.where(np.isfinite(half), half, 0.0) if len(self.relative) < MIN_ROUNDS else half
        if j == self.order[0]:  # one that left was known to be behind, however few the rounds to know it by are
            half = np.where(self.left, 0.0, half)
        return (np.abs(estimate) < self.tie) | (np.abs(estimate) <= half)

    def tied(self, i: int, j: int) -> bool:
        """Whether two Candidates cannot be told apart: the interval holds 0, or the effect is below ``tie``.

        With fewer than MIN_ROUNDS rounds in all (protocol ``seed``) there is no interval and the effect alone decides.
        """
        return bool(self._tied_with(j)[i])

    @cached_property
    def groups(self) -> list[int | None]:
        """Tie group per Candidate: 1 holds the best and all that cannot be told from it; the best of the rest leads 2.

        None for a Candidate without a sample.
        """
        groups: list[int | None] = [None] * len(self.effect)
        group = 0
        for leader in self.order:
            if groups[leader] is not None:
                continue
            group += 1
            tied = self._tied_with(leader)
            for i in self.order:
                if groups[i] is None and (i == leader or tied[i]):
                    groups[i] = group
        return groups

    @property
    def resolved(self) -> bool:
        """Whether every pair that stayed is separated by its interval, or closer than ``tie`` and known to half."""
        if self._neighbours_open():
            return False
        for j in self.order:
            if not self.stayed[j]:
                continue
            estimate, half = self.against(j)
            if bool(self._open(estimate, half)[self.stayed].any()):
                return False
        return True

    def _neighbours_open(self) -> bool:
        """Whether one of those that stayed is not resolved from the next one in the order: nearly always where any is.

        All pairs of thousands of Candidates take seconds, in which the device idles.
        """
        order = [j for j in self.order if self.stayed[j]]
        between = self.relative[self.settled][:, order]
        location = trimmed(between[:, 1:] - between[:, :-1])
        half = self._half(location)
        return bool(self._open(location.mean, np.where(half > UNKNOWN, np.inf, half)).any())

    def _open(self, estimate: Floats, half: Floats) -> NDArray[np.bool_]:
        """Which pairs are neither separated nor known to tie."""
        close = np.abs(estimate) < self.tie
        return np.asarray(np.where(close, half > self.tie / 2, np.abs(estimate) <= half))


def compare(
    log_cost: Floats, tie_pct: float, confidence: float, looks: int = 1, blocks: NDArray[np.int64] | None = None
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
    """
    finite = np.isfinite(log_cost)
    blocks = np.zeros(len(log_cost), dtype=np.int64) if blocks is None else blocks
    by_block = {int(block): finite[blocks == block] for block in np.unique(blocks)}
    counts = np.sum([finite.sum(axis=0), np.zeros(finite.shape[1], dtype=np.int64)], axis=0)
    stayed = (counts > 0) & _to_the_end(by_block.values())
    agreed = bool(stayed.any())
    if not agreed:  # every one left on some device: those with the most rounds count as the ones that stayed
        stayed = (counts > 0) & (counts == counts.max(initial=0))
    tie, alpha = math.log1p(tie_pct / 100), (1 - confidence) / looks
    if not stayed.any():
        nothing = np.full(len(counts), np.nan)
        every = np.ones(len(log_cost), dtype=bool)
        level = np.zeros(len(log_cost))
        return Comparison(log_cost, nothing, stayed, stayed, stayed, every, every, level, nothing, False, tie, alpha)
    # One that was not measured on every device would be another reference on each.
    everywhere = stayed & np.all([found.any(axis=0) for found in by_block.values()], axis=0)
    reference = everywhere if everywhere.any() else stayed
    kept: NDArray[np.bool_] = np.asarray(
        finite[:, reference].any(axis=1)
    )  # a round that none of them finished compares nothing
    log_cost, finite, blocks = log_cost[kept], finite[kept], blocks[kept]
    level = _levels(log_cost, reference)
    relative = log_cost - level
    settled = np.ones(len(relative), dtype=bool)
    left = agreed & ~stayed & finite.any(axis=0)
    behind = _behind(relative, stayed, left)
    slow = behind > FAR
    shift, steady = np.zeros(len(counts)), np.zeros(len(relative))
    joined = False
    for block in by_block if agreed else ():
        here = np.flatnonzero(blocks == block)
        together = here[_last_joined(finite[here]) :]
        joined |= len(together) < len(here)
        settled[here] = np.isin(here, together)
        if not len(together):
            continue
        beside_slow = finite[together][:, slow]
        later = beside_slow.sum(axis=1) < np.count_nonzero(beside_slow[0])
        if later.sum() >= MIN_ROUNDS:
            settled[together] = later
            beside, after = (float(trimmed(level[rows]).mean[0]) for rows in (together[~later], together[later]))
            # Of one that was measured on several devices, the rounds of each count.
            found = finite[here].sum(axis=0)
            gone = slow & finite[together[0]] & (finite[together].sum(axis=0) < len(together))
            shift[gone] += (after - beside) * found[gone] / np.maximum(counts[gone], 1)
        steady[here] = np.median(level[here][settled[here]]) - level[here, 0]
    compared = np.where(stayed[None, :] & ~settled[:, None], np.nan, relative)
    effect = trimmed(compared).mean - shift
    if left.any():
        # Few rounds are left to know it by: where it was half a tie behind or more, it is no better than a tie behind.
        least = np.where(behind >= tie / 2, 1.001 * tie, np.maximum(0.0, behind))
        effect = np.fmax(effect, np.nanmin(effect[stayed]) + least)
    return Comparison(relative, effect, stayed, left, left & ~slow, settled, kept, steady, shift, joined, tie, alpha)


def _last_joined(finite: NDArray[np.bool_]) -> int:
    """The round in which the last of those joined that were in the last round; the others joined before, or left."""
    last = finite[-1] if len(finite) else np.zeros(finite.shape[1], dtype=bool)
    return int(finite.argmax(axis=0)[last].max(initial=0))


def _to_the_end(by_block: Iterable[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Whether each Candidate was in all rounds, since the last one joined, of every device that measured it at all."""
    each = [finite[_last_joined(finite) :].all(axis=0) | ~finite.any(axis=0) for finite in by_block]
    return np.asarray(np.all(each, axis=0))


def _levels(log_cost: Floats, reference: NDArray[np.bool_]) -> Floats:
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


def _behind(relative: Floats, stayed: NDArray[np.bool_], left: NDArray[np.bool_]) -> Floats:
    """Log cost of each Candidate that left over the best of those that stayed, by the rounds they shared; else NaN."""
    behind = np.full(len(left), np.nan)
    leavers = np.flatnonzero(left)
    there, which = np.unique(np.isfinite(relative[:, leavers]), axis=1, return_inverse=True)
    for number, rounds in enumerate(there.T):  # those that came and left together share their rounds
        own = leavers[which.reshape(-1) == number]
        shared = trimmed(relative[rounds]).mean
        behind[own] = shared[own] - np.nanmin(shared[stayed])
    return behind
