"""Many Families of one form compared at once: what ``tasks.statistics.compare`` says of each, to the bit.

Of one form are Families with as many rounds and Candidates, all of whom were measured in all rounds by one device: then
nobody left, every round compares everybody, and the columns of many Families can stand side by side in one array.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from orchestrator.quantiles import quantiles
from tasks.comparison import UNKNOWN
from tasks.location import MIN_ROUNDS, Floats, trimmed

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Alike:
    """Log cost of Families less each round's median, ``relative[rounds, families, candidates]``, all of it finite.

    tie: log cost below which two Candidates tie. alpha: chance that any pair of equal ones in a Family is separated.
    effect[families, candidates]: the drift-free estimates.
    """

    relative: Floats
    effect: Floats
    tie: float
    alpha: float

    def order(self) -> Ints:
        """Indices of the Candidates of each Family, best first."""
        return np.argsort(self.effect, axis=1, kind="stable")

    def undisturbed(self, seconds: Floats) -> Floats:
        """What Candidates took, as far as it counts for them: all of it."""
        return seconds

    def against(self, j: Ints, families: Ints | None = None) -> tuple[Floats, Floats]:
        """Log cost of every Candidate over its Family's ``j``-th: (estimates, half-widths), ``[families, candidates]``.

        families: indices of those that are asked for (default: all); ``j`` has an entry for each of them.
        """
        relative = self.relative if families is None else self.relative[:, families]
        rounds, count, candidates = relative.shape
        differences = relative - np.take_along_axis(relative, j[None, :, None], axis=2)
        half = np.full((count, candidates), np.inf)
        if rounds == 1:
            estimate = differences[0]  # its own mean; one round has no spread
        else:
            location = trimmed(differences.reshape(rounds, count * candidates))
            estimate = location.mean.reshape(count, candidates)
            half = (location.error * self._factor(location.df)).reshape(count, candidates)
            half = np.where(half > UNKNOWN, np.inf, half)
        np.put_along_axis(half, j[:, None], 0.0, axis=1)
        return estimate, half

    def groups(self) -> Ints:
        """Tie group of every Candidate, ``[families, candidates]``, from 1."""
        rounds, count, candidates = self.relative.shape
        order = self.order()
        groups = np.zeros((count, candidates), dtype=np.int64)
        if rounds == 1:
            return self._groups_by_effect(order, groups)
        open_, number = np.arange(count), 0
        while len(open_):
            number += 1
            here = groups[open_]
            free = np.take_along_axis(here, order[open_], axis=1) == 0
            leader = np.take_along_axis(order[open_], free.argmax(axis=1)[:, None], axis=1)[:, 0]
            estimate, half = self.against(leader, open_)
            tied = (np.abs(estimate) < self.tie) | (np.abs(estimate) <= half)
            np.put_along_axis(tied, leader[:, None], True, axis=1)
            groups[open_] = np.where((here == 0) & tied, number, here)
            open_ = open_[(groups[open_] == 0).any(axis=1)]
        return groups

    def _groups_by_effect(self, order: Ints, groups: Ints) -> Ints:
        """With one round the effect alone decides, so a group is a stretch of the order."""
        ordered = np.take_along_axis(self.effect, order, axis=1).T
        leader, number = ordered[0].copy(), np.ones(len(order), dtype=np.int64)
        numbers = np.empty(ordered.shape, dtype=np.int64)
        for place, cost in enumerate(ordered):
            over = cost - leader
            new = ~((over < self.tie) | (over <= 0))
            leader = np.where(new, cost, leader)
            number = number + new
            numbers[place] = number
        np.put_along_axis(groups, order, numbers.T, axis=1)
        return groups

    def resolved(self) -> NDArray[np.bool_]:
        """Whether every pair of a Family is separated by its interval, or closer than ``tie`` and known to half."""
        rounds, count, candidates = self.relative.shape
        if rounds < MIN_ROUNDS:
            return np.zeros(count, dtype=bool)  # no interval is known
        order = self.order()
        between = np.take_along_axis(self.relative, order[None], axis=2)
        location = trimmed((between[:, :, 1:] - between[:, :, :-1]).reshape(rounds, -1))
        half = location.error * self._factor(location.df)
        near = self._open(location.mean, np.where(half > UNKNOWN, np.inf, half)).reshape(count, candidates - 1)
        left = np.flatnonzero(~near.any(axis=1))  # neighbours are those that are open, nearly always
        for place in range(candidates):
            estimate, half = self.against(order[left, place], left)
            left = left[~self._open(estimate, half).any(axis=1)]
        found = np.zeros(count, dtype=bool)
        found[left] = True
        return found

    def _open(self, estimate: Floats, half: Floats) -> NDArray[np.bool_]:
        close = np.abs(estimate) < self.tie
        return np.asarray(np.where(close, half > self.tie / 2, np.abs(estimate) <= half))

    def _factor(self, df: Ints) -> Floats:
        candidates = self.relative.shape[2]
        alpha = self.alpha / max(1, candidates * (candidates - 1) // 2)
        return quantiles(alpha, df)


def compare_alike(log_cost: Floats, tie_pct: float, confidence: float, looks: int) -> Alike:
    """Compare the Candidates of each Family by ``log_cost[rounds, families, candidates]``, as ``compare`` does.

    There are two Candidates at least, and every value is finite.
    """
    rounds, families, candidates = log_cost.shape
    ordered = np.sort(log_cost, axis=2)
    middle = (ordered[:, :, (candidates - 1) // 2] + ordered[:, :, candidates // 2]) / 2
    relative = log_cost - middle[:, :, None]
    effect = relative[0] if rounds == 1 else trimmed(relative.reshape(rounds, -1)).mean.reshape(families, candidates)
    return Alike(relative=relative, effect=effect, tie=math.log1p(tie_pct / 100), alpha=(1 - confidence) / looks)
