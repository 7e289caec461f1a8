"""The Candidates of one Family as they compare: who is ahead of whom, by how much, and how sure that is.

``tasks.statistics`` says by what they are compared.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tasks.location import MIN_ROUNDS, Floats, Location, moderated, t_quantile, trimmed

LEFT_ROUNDS, OWN_ROUNDS = 2, 10
"""One that left is told from others by so many shared rounds; below the second a pair's spread is moderated."""

UNKNOWN = 3.0
"""A half-width above this, a factor of twenty, is no knowledge: it counts as infinite."""


@dataclass(frozen=True)
class Comparison:
    """The Candidates of one Family against each other, in log cost (seconds per FLOP).

    relative[rounds, candidates]: log cost less the round's median over the Candidates that stayed to the end.
    effect[candidates]: the drift-free estimate; NaN for a Candidate without a sample.
    stayed[candidates]: who was measured in every round, once it had joined; they alone need to be resolved.
    left[candidates]: who was measured, and no longer since it was behind one that stayed.
    aside[candidates]: who of these may tie with the best: a search only had others that looked better.
    near[candidates]: who of these was behind by so little that it is such a kernel as they are, and runs as they do.
    settled[rounds]: rounds by which those are compared with each other. kept[rounds given]: which of the rounds that
    ``compare`` was given these are.
    steady[rounds]: log of what those that stayed cost in the settled rounds over what they cost in each.
    shift[candidates]: log cost by which one that left looks worse beside the others than against them alone.
    joined: whether some joined later.
    tie: log cost below which two Candidates tie. alpha: chance that any pair of equal Candidates is separated.
    apart: whether they were measured one after another, not in rounds: then there is no interval, and ``tie`` decides.
    """

    relative: Floats
    effect: Floats
    stayed: NDArray[np.bool_]
    left: NDArray[np.bool_]
    aside: NDArray[np.bool_]
    near: NDArray[np.bool_]
    settled: NDArray[np.bool_]
    kept: NDArray[np.bool_]
    steady: Floats
    shift: Floats
    joined: bool
    tie: float
    alpha: float
    apart: bool = False

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

        Where of a pair that left one disturbed the others, it is set against what the other would cost without it.
        """
        differences = self.relative - self.relative[:, [j]]
        if self.stayed[j]:
            differences[np.ix_(~self.settled, self.stayed)] = np.nan
        close, rounds = trimmed(differences, LEFT_ROUNDS), np.isfinite(differences).sum(axis=0)
        shift = self.shift - self.shift[j]
        location = Location(close.mean - shift, np.where(rounds < MIN_ROUNDS, np.inf, close.error), close.df)
        few = (rounds < OWN_ROUNDS) & (self.left | self.left[j] | (rounds >= MIN_ROUNDS))
        if few.any():
            close = moderated(close, rounds)
            location = Location(
                location.mean,
                np.where(few, close.error, location.error),
                np.where(few, close.df, location.df),
            )
        if self.joined:
            location = self._linked(location, j, rounds < LEFT_ROUNDS)
        half = self._half(location, comparisons)
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
        if self.apart:
            return np.full(location.error.shape, np.inf)
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
        none = self.apart or len(self.relative) == 1
        half = np.where(np.isfinite(half), half, 0.0) if none else half
        if j == self.order[0]:  # one that left was known to be behind, however few the rounds to know it by are
            half = np.where(self.left & ~self.aside, 0.0, half)
        return (np.abs(estimate) < self.tie) | (np.abs(estimate) <= half)

    def tied(self, i: int, j: int) -> bool:
        """Whether two Candidates cannot be told apart: the interval holds 0, or the effect is below ``tie``.

        In one round, and where ``apart``, there is no interval and the effect alone decides. In two or three rounds it
        is not known: who stayed ties with all others that did.
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
