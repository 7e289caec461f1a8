"""Many Families that were raced, compared at once: what ``tasks.statistics.compare`` says of each, to the bit.

Raced is a Family that one device measured, each Candidate in every round up to its last one; at least one of them in
all rounds. Families of few rounds stand beside those of many: the rounds that one does not have are NaN.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from orchestrator.quantiles import quantiles
from tasks.comparison import LEFT_ROUNDS, OWN_ROUNDS, UNKNOWN
from tasks.location import FEW, MIN_ROUNDS, PRIOR_DF, PRIOR_WIDER, TRIM, Floats, medians, trimmed
from tasks.statistics import FAR

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class Raced:
    """Log cost of Families less each round's level, ``relative[rounds, families, candidates]``.

    counts[families, candidates]: rounds of each Candidate. rounds[families]: those of the Family.
    until[families]: rounds by which those that stayed are not compared. effect, stayed, near, shift:
    ``[families, candidates]``, as in ``tasks.comparison``; steady[rounds, families], too.
    """

    relative: Floats
    counts: Ints
    rounds: Ints
    until: Ints
    effect: Floats
    stayed: Bools
    near: Bools
    shift: Floats
    steady: Floats
    tie: float
    alpha: float

    def order(self) -> Ints:
        """Indices of the Candidates of each Family, best first."""
        return np.lexsort((~self.stayed, self.effect), axis=1)

    def undisturbed(self, seconds: Floats) -> Floats:
        """What Candidates took, ``[rounds, families, candidates, parts]``, as far as it counts for them."""
        disturbed = np.arange(len(seconds))[:, None, None] < np.where(self.stayed, self.until[:, None], 0)
        as_others = np.where(self.near[None], np.exp(self.steady)[:, :, None], 1.0)
        return np.where(disturbed[..., None], np.nan, seconds) * as_others[..., None]

    def against(self, j: Ints, families: Ints | None = None) -> tuple[Floats, Floats]:
        """Log cost of every Candidate over its Family's ``j``-th: (estimates, half-widths), ``[families, candidates]``.

        families: indices of those that are asked for (default: all); ``j`` has an entry for each of them.
        """
        families = np.arange(len(self.rounds)) if families is None else families
        reach = self.counts[families, j]  # no other rounds are shared with it
        estimate, half = np.empty((2, len(families), self.counts.shape[1]))
        for rounds in np.unique(reach).tolist():
            own = np.flatnonzero(reach == rounds)
            estimate[own], half[own] = self._within(rounds, families[own])._against(j[own])
        return estimate, half

    def _within(self, rounds: int, families: Ints) -> "Raced":
        """Keep some Families, and of these the first rounds."""
        by_family = {
            each.name: getattr(self, each.name)[families]
            for each in fields(self)
            if each.name not in ("relative", "steady", "tie", "alpha")
        }
        relative, steady = self.relative[:rounds, families], self.steady[:rounds, families]
        return Raced(relative=relative, steady=steady, tie=self.tie, alpha=self.alpha, **by_family)

    def _against(self, j: Ints) -> tuple[Floats, Floats]:
        at = np.arange(len(j))
        differences = self.relative - self.relative[:, at, j][:, :, None]
        stayed, others = self.stayed[at, j][:, None], self.stayed
        compared = np.arange(len(differences))[:, None] >= self.until
        differences = np.where((others & stayed)[None] & ~compared[:, :, None], np.nan, differences)
        mean, error, df, shared = _located(differences)
        far = np.where(shared < MIN_ROUNDS, np.inf, error)
        few = (shared < OWN_ROUNDS) & (~others | ~stayed | (shared >= MIN_ROUNDS))
        if few.any():
            close, wider = _moderated(error, df, shared)
            far, df = np.where(few, close, far), np.where(few, wider, df)
        half = far * quantiles(self._alpha, df)
        shift = self.shift - self.shift[at, j][:, None]
        half = np.where(half > UNKNOWN, np.inf, half + np.abs(shift))
        half[at, j] = 0.0
        known = np.isfinite(mean) & (others == stayed)
        return np.where(known, mean - shift, self.effect - self.effect[at, j][:, None]), half

    @property
    def _alpha(self) -> float:
        candidates = int(self.counts.shape[1])
        return self.alpha / (candidates * (candidates - 1) // 2)

    def groups(self) -> Ints:
        """Tie group of every Candidate, ``[families, candidates]``, from 1."""
        order = self.order()
        groups = np.zeros(self.counts.shape, dtype=np.int64)
        open_, number = np.arange(len(groups)), 0
        while len(open_):
            number += 1
            here = groups[open_]
            free = np.take_along_axis(here, order[open_], axis=1) == 0
            leader = np.take_along_axis(order[open_], free.argmax(axis=1)[:, None], axis=1)[:, 0]
            tied = self._tied(leader, open_, first=number == 1)
            groups[open_] = np.where((here == 0) & tied, number, here)
            open_ = open_[(groups[open_] == 0).any(axis=1)]
        return groups

    def _tied(self, leader: Ints, families: Ints, *, first: bool) -> Bools:
        estimate, half = self.against(leader, families)
        alone = (self.rounds[families] == 1)[:, None]
        half = np.where(alone & ~np.isfinite(half), 0.0, half)
        if first:  # one that left was known to be behind, however few the rounds to know it by are
            half = np.where(self.stayed[families], half, 0.0)
        tied = (np.abs(estimate) < self.tie) | (np.abs(estimate) <= half)
        tied[np.arange(len(leader)), leader] = True
        return np.asarray(tied)

    def resolved(self) -> Bools:
        """Whether every pair of a Family that stayed is separated by its interval, or known to tie."""
        order = np.lexsort((self.effect, ~self.stayed), axis=1)  # those that stayed first
        found = ~self._neighbours_open(order)
        for place in range(order.shape[1]):
            left = np.flatnonzero(found & self.stayed[np.arange(len(order)), order[:, place]])
            if not len(left):
                break
            estimate, half = self.against(order[left, place], left)
            found[left] = ~(self._open(estimate, half) & self.stayed[left]).any(axis=1)
        return found

    def _neighbours_open(self, order: Ints) -> Bools:
        """Whether one that stayed is not resolved from the next one in the order: nearly always where any is."""
        compared = np.arange(len(self.relative))[:, None] >= self.until
        ordered = np.take_along_axis(np.where(compared[:, :, None], self.relative, np.nan), order[None], axis=2)
        mean, error, df, shared = _located(ordered[:, :, 1:] - ordered[:, :, :-1])
        half = np.where(shared < MIN_ROUNDS, np.inf, error) * quantiles(self._alpha, df)
        both = np.take_along_axis(self.stayed, order[:, 1:], axis=1)
        return np.asarray((self._open(mean, np.where(half > UNKNOWN, np.inf, half)) & both).any(axis=1))

    def _open(self, estimate: Floats, half: Floats) -> Bools:
        close = np.abs(estimate) < self.tie
        return np.asarray(np.where(close, half > self.tie / 2, np.abs(estimate) <= half))


def compare_raced(log_cost: Floats, tie_pct: float, confidence: float, looks: int) -> Raced:
    """Compare the Candidates of each Family by ``log_cost[rounds, families, candidates]``, as ``compare`` does.

    There are two Candidates at least; each has a value in every round up to its last one, and one at least.
    """
    counts = np.isfinite(log_cost).sum(axis=0)
    rounds = counts.max(axis=1)
    stayed = counts == rounds[:, None]
    tie = math.log1p(tie_pct / 100)
    level = medians(np.where(stayed, log_cost, np.nan))
    relative = log_cost - level[:, :, None]
    behind = _behind(relative, counts, stayed)
    slow = behind > FAR
    gone = np.where(slow, counts, rounds[:, None]).min(axis=1)
    until = np.where(rounds - gone >= MIN_ROUNDS, gone, 0)
    until = np.where(slow.any(axis=1), until, 0)
    # By all of its rounds, as ``compare`` divides by them: to the last bit.
    shift = np.where(slow, _moved(level, rounds, until)[:, None] * counts / counts, 0.0)
    compared = np.arange(len(level))[:, None] >= until
    return Raced(
        relative=relative,
        counts=counts,
        rounds=rounds,
        until=until,
        effect=_effect(np.where(stayed & ~compared[:, :, None], np.nan, relative), stayed, shift, behind, tie),
        stayed=stayed,
        near=~stayed & ~slow,
        shift=shift,
        steady=medians(np.where(compared, level, np.nan).T) - level,
        tie=tie,
        alpha=(1 - confidence) / looks,
    )


def _effect(relative: Floats, stayed: Bools, shift: Floats, behind: Floats, tie: float) -> Floats:
    """The drift-free estimates; one that left is no better than it is known to be behind."""
    effect = trimmed(relative.reshape(len(relative), -1)).mean.reshape(stayed.shape) - shift
    best = np.where(stayed, effect, np.inf).min(axis=1, keepdims=True)
    least = np.where(behind >= tie / 2, 1.001 * tie, np.maximum(0.0, behind))
    return np.asarray(np.fmax(effect, best + least))


def _behind(relative: Floats, counts: Ints, stayed: Bools) -> Floats:
    """Log cost of each Candidate that left over the best of those that stayed, by the rounds they shared; else NaN."""
    behind = np.full(counts.shape, np.nan)
    for rounds in np.unique(counts[~stayed]).tolist():
        left = ~stayed & (counts == rounds)
        own = np.flatnonzero(left.any(axis=1))
        shared = trimmed(relative[:rounds, own].reshape(rounds, -1)).mean.reshape(len(own), -1)
        best = np.where(stayed[own], shared, np.inf).min(axis=1, keepdims=True)
        behind[own] = np.where(left[own], shared - best, behind[own])
    return behind


def _moved(level: Floats, rounds: Ints, until: Ints) -> Floats:
    """Log cost by which the level of each Family is higher after the first rounds."""
    moved = np.zeros(len(rounds))
    for first, last in np.unique(np.column_stack([until, rounds])[until > 0], axis=0).tolist():
        own = np.flatnonzero((until == first) & (rounds == last))
        moved[own] = _means(level[first:last, own].T) - _means(level[:first, own].T)
    return moved


def _means(values: Floats) -> Floats:
    """Trimmed mean of each row, all of it finite; added as ``trimmed`` adds a single column."""
    ordered = np.sort(values, axis=1)
    cut = int(TRIM * values.shape[1])
    ordered[:, :cut] = ordered[:, values.shape[1] - cut :] = 0.0
    return np.asarray(ordered.sum(axis=1) / (values.shape[1] - 2 * cut))


def _located(values: Floats) -> tuple[Floats, Floats, Ints, Ints]:
    """Mean, error, degrees of freedom and rounds of each pair, ``[families, pairs]``."""
    shape = values.shape[1:]
    found = trimmed(values.reshape(len(values), -1), LEFT_ROUNDS)
    shared = np.isfinite(values).sum(axis=0)
    return found.mean.reshape(shape), found.error.reshape(shape), found.df.reshape(shape), shared


def _moderated(error: Floats, df: Ints, rounds: Ints) -> tuple[Floats, Ints]:
    """``tasks.location.moderated`` of each Family's pairs: (errors, degrees of freedom)."""
    known = np.isfinite(error) & (error > 0)
    enough = known.sum(axis=1, keepdims=True) >= FEW
    finite = np.where(known, error, 0.0)
    typical = PRIOR_WIDER * medians(np.where(known, finite**2 * rounds, np.nan))[:, None]
    squares = (PRIOR_DF * typical / np.maximum(rounds, 1) + df * finite**2) / (PRIOR_DF + df)
    other = known & enough
    return np.where(other, np.sqrt(squares), error), np.where(other, df + PRIOR_DF, df)
