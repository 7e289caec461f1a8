"""Who is the best: a race in which the slower ones leave, with a bound on the chance that it ends wrong.

A Candidate is out of the top once its interval beside the leader excludes 0 and it is ``tie_pct`` or more behind:
once it no longer ties. The race is decided when the leader is known to be within ``tie_pct`` of every other that is
left: the (epsilon, delta) of the literature on best-arm identification (Even-Dar et al. 2006, «Action elimination and
stopping conditions»), epsilon being ``tie_pct`` and delta 1 - ``confidence``.

Either goes wrong only where some Candidate looks better beside the truly best one than it is, by more than its
interval. There are as many such pairs as other Candidates, one-sided; their chances add up to delta over all of them
and all looks (Bonferroni). So with probability ``confidence`` the best never leaves and the one that is named is
within ``tie_pct`` of it.

Of several that are equally good any may be the leader, and whoever leaves is in no tie with it: to be out takes an
interval that holds for all pairs of those that still race, in both directions.

In so few rounds a pair's own spread is hardly known. The Candidates of a Family are measured alike: the variance of a
pair is moderated by that of the others (``tasks.location.moderated``).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tasks.comparison import Comparison
from tasks.location import MIN_ROUNDS, Floats, Location, moderated, t_quantile, trimmed


@dataclass(frozen=True, slots=True)
class Race:
    """Where a race stands. leader: the Candidate that is best so far. out[candidates]: who is known not to tie with it.

    decided: the leader is within the tie of every other that was measured in all rounds, by its interval.
    """

    leader: int
    out: NDArray[np.bool_]
    decided: bool


def race(comparison: Comparison, least: int = MIN_ROUNDS) -> Race | None:
    """Look at a Family's Candidates, of which those that stayed compete; None before there are ``least`` rounds.

    least: 2 or more.
    """
    stayed = np.flatnonzero(comparison.stayed)
    rounds = comparison.relative[comparison.settled][:, stayed]
    if not len(stayed) or len(rounds) < least:
        return None
    first = int(np.argmin(comparison.effect[stayed]))
    leader = int(stayed[first])
    out = ~comparison.stayed
    others = np.delete(np.arange(len(stayed)), first)
    if not len(others):
        return Race(leader, out, decided=True)
    location = _located(rounds[:, others] - rounds[:, [first]], least)
    rivals, pairs = len(comparison.measured) - 1, len(stayed) * len(others)
    half = _half_widths(location, comparison.alpha / rivals)
    wider = _half_widths(location, comparison.alpha / max(rivals, pairs))
    out[stayed[others]] = (location.mean - wider > 0) & (location.mean >= comparison.tie)
    return Race(leader, out, decided=bool((half - location.mean <= comparison.tie).all()))


def _located(differences: Floats, least: int = MIN_ROUNDS) -> Location:
    """Where the differences of some pairs lie, ``[rounds, pairs]``, each error moderated by the others'."""
    location = trimmed(differences, least)
    return moderated(location, np.full(location.df.shape, len(differences)))


def _half_widths(location: Location, alpha: float) -> Floats:
    """Half-widths that one side of each pair's interval exceeds with probability ``alpha``."""
    factor = {int(each): t_quantile(2 * alpha, int(each)) for each in np.unique(location.df) if each > 0}
    return np.asarray(location.error * np.array([factor.get(int(each), np.inf) for each in location.df]))


def behind_at_least(comparison: Comparison) -> Floats:
    """Log cost by which each Candidate that stayed is known to be behind the best of them; NaN for the others."""
    stayed = np.flatnonzero(comparison.stayed)
    behind = np.full(len(comparison.effect), np.nan)
    if not len(stayed):
        return behind
    leader = int(stayed[np.argmin(comparison.effect[stayed])])
    rounds = comparison.relative[comparison.settled][:, stayed]
    others = stayed != leader
    location = _located(rounds[:, others] - rounds[:, [int(np.argmin(others))]])
    half = _half_widths(location, comparison.alpha / max(1, len(comparison.measured) - 1))
    behind[stayed[others]] = location.mean - half
    behind[leader] = 0.0
    return behind
