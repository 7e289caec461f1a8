"""How much slower a Family became from one run to another, and each of its Candidates: with honest intervals.

Within a run the rounds are blocks: a Family's level is, in each round, the median log cost of the Candidates that
stayed to the end of both runs; a Candidate's excess is its log cost over that median. Levels move with the power state
and excesses do not, so they are judged apart. Locations and their errors are those of ``tasks.statistics``: trimmed
means over the rounds, widened by the rounds' correlation.

A level is that of the later half of the rounds that count: for about a second after the slow Candidates have left, a
chip under a power cap goes on boosting (on an H200 by up to 18%), and how many rounds that is differs from run to run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.contest import Contest
from orchestrator.ranking import contests
from orchestrator.store import RunStore
from tasks.statistics import t_quantile, trimmed

Row = dict[str, Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rounds:
    """One Family in one run: its values, in the Contest's order, and what the Contest says of each."""

    axis: str
    values: tuple[int, ...]
    contest: Contest
    results: tuple[Row, ...]

    @property
    def measured(self) -> frozenset[int]:
        """The values that have samples."""
        return frozenset(v for v, result in zip(self.values, self.results, strict=True) if result["rank"] is not None)

    @property
    def stayed(self) -> frozenset[int]:
        """The values that were in every round."""
        return frozenset(v for v, stayed in zip(self.values, self.contest.stayed, strict=True) if stayed)

    def logs(self, values: Sequence[int]) -> list[Floats]:
        """Log seconds of each device, ``[rounds, values]``."""
        return [np.log(found) for found in self.contest.totals([self.values.index(value) for value in values])]

    def result(self, value: int) -> Row:
        """What the Contest says of a value."""
        return self.results[self.values.index(value)]


FamilyKey = tuple[str, str]
"""GPU model and Family id."""


def rounds_of(store: RunStore) -> dict[FamilyKey, Rounds]:
    """Return every Family of a run."""
    found: dict[FamilyKey, Rounds] = {}
    for candidates, contest in contests(store):
        first = candidates[0][0]
        found[first["gpu"], first["family_id"]] = Rounds(
            axis=first["axis"],
            values=tuple(rows[0]["value"] for rows in candidates),
            contest=contest,
            results=tuple(contest.result(i) for i in range(len(candidates))),
        )
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """Log of NEW's cost over BASE's. error: standard error; infinite where it is not known. df: degrees of freedom.

    reach: what the interval has beside its error, where one was given instead.
    """

    estimate: float
    error: float
    df: int
    reach: float = 0.0

    def half(self, alpha: float) -> float:
        """Half the two-sided interval that leaves out the truth with chance ``alpha``."""
        if self.error == 0:
            return self.reach
        known = math.isfinite(self.error) and self.df > 0
        return t_quantile(alpha, self.df) * self.error + self.reach if known else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyChange:
    """A Family that both runs measured. level: None where no Candidate stayed in both. excess: by value, over it."""

    axis: str
    level: Change | None
    excess: Mapping[int, Change]


def family_change(base: Rounds, new: Rounds) -> FamilyChange:
    """Compare one Family in two runs."""
    shared = sorted(base.measured & new.measured)
    reference = sorted(base.stayed & new.stayed & frozenset(shared))
    if not reference:
        return FamilyChange(axis=base.axis, level=None, excess={})
    level = _difference(base, new, lambda rounds: [_settled(logs) for logs in rounds.logs(reference)])[0]
    stayed = _difference(base, new, lambda rounds: [logs - _median(logs) for logs in rounds.logs(reference)])
    excess = dict(zip(reference, stayed, strict=True))
    for value in shared:
        if value not in excess:
            excess[value] = _left(base, new, value, reference)
    return FamilyChange(axis=base.axis, level=level, excess=excess)


def _median(logs: Floats) -> Floats:
    """The median of each round over its Candidates, ``[rounds, 1]``; NaN where one is missing."""
    return np.asarray(np.median(logs, axis=1, keepdims=True))


def _settled(logs: Floats) -> Floats:
    """The level in the later half of the rounds that have one."""
    level = _median(logs)
    level = level[np.isfinite(level[:, 0])]
    return level[len(level) // 2 :]


def _difference(base: Rounds, new: Rounds, series: Callable[[Rounds], list[Floats]]) -> list[Change]:
    """NEW less BASE of each column of what ``series`` makes of a run's rounds, a matrix for each device."""
    (old, old_error, old_df), (now, now_error, now_df) = (_located(series(rounds)) for rounds in (base, new))
    error, df = np.hypot(old_error, now_error), np.minimum(old_df, now_df)
    return [Change(estimate=float(now[i] - old[i]), error=float(error[i]), df=int(df[i])) for i in range(len(old))]


def _located(devices: Sequence[Floats]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Mean over the devices that measured of each one's location, its error, and the fewest degrees of freedom."""
    found = [trimmed(series) for series in devices if np.isfinite(series).any()]
    errors = np.array([each.error for each in found])
    mean = np.mean([each.mean for each in found], axis=0)
    return mean, np.sqrt((errors**2).sum(axis=0)) / len(found), np.min([each.df for each in found], axis=0)


def _left(base: Rounds, new: Rounds, value: int, reference: Sequence[int]) -> Change:
    """The excess of one that left the rounds in either run, by what the ranking says of it against the others.

    Beside slow Candidates a chip under a power cap boosts: its seconds do not compare with those of one that stayed.
    """
    now, old = (_relative(rounds, value, reference) for rounds in (new, base))
    reach = now[1] + old[1]
    return Change(
        estimate=now[0] - old[0],
        error=0.0 if math.isfinite(reach) else math.inf,
        df=0,
        reach=reach if math.isfinite(reach) else 0.0,
    )


def _relative(rounds: Rounds, value: int, reference: Sequence[int]) -> tuple[float, float]:
    """Log cost over the median of the reference's, and the half-width of its interval over the best's."""
    own = rounds.result(value)
    middle = float(np.median([math.log(rounds.result(each)["relative"]) for each in reference]))
    bounds = own["relative_low"], own["relative_high"]
    half = math.inf if None in bounds else math.log(bounds[1] / bounds[0]) / 2
    return math.log(own["relative"]) - middle, half
