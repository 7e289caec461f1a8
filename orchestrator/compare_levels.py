"""How much slower a Family became from one run to another, and each of its Candidates: with honest intervals.

Within a run the rounds are blocks. Levels move with the power state and excesses do not, so they are judged apart, each
by the rounds that are alike in both runs:

- A Family's level is what the Candidates that stayed to the end of both runs cost in the rounds before any had left:
  there the mix of work, and so the power state, is the same in both. Once the slow ones have left, a chip under a power
  cap goes on boosting (on an H200 by up to 18%), and for how long differs from run to run.
- A Candidate's excess is its log cost over the median of those that stayed, within the same rounds: those before any
  had left, or for one that stayed those by which it is ranked.

Locations and their errors are those of ``tasks.statistics``: trimmed means over the rounds, widened by the rounds'
correlation.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orchestrator.contest import Contest
from orchestrator.ranking import contests
from orchestrator.store import RunStore
from tasks.location import t_quantile, trimmed

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

    def together(self, values: Sequence[int]) -> list[Floats]:
        """Log seconds of each device, ``[rounds, values]``, in the rounds before any of these had left.

        Devices without such a round are left out.
        """
        found = self.contest.together([self.values.index(value) for value in values])
        return [np.log(rows) for rows in found if np.isfinite(rows).any()]


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
    """Log of NEW's cost over BASE's. error: standard error; infinite where it is not known. df: degrees of freedom."""

    estimate: float
    error: float
    df: int

    def half(self, alpha: float) -> float:
        """Half the two-sided interval that leaves out the truth with chance ``alpha``."""
        if self.error == 0:
            return 0.0
        known = math.isfinite(self.error) and self.df > 0
        return t_quantile(alpha, self.df) * self.error if known else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyChange:
    """A Family that both runs measured. excess: by value, over the level.

    level: None where no Candidate stayed in both runs, or no round of one of them has all Candidates of both.
    """

    axis: str
    level: Change | None
    excess: Mapping[int, Change]


def family_change(base: Rounds, new: Rounds) -> FamilyChange:
    """Compare one Family in two runs."""
    shared = sorted(base.measured & new.measured)
    reference = sorted(base.stayed & new.stayed & frozenset(shared))
    together = [rounds.together(shared) for rounds in (base, new)]
    if not reference or not all(together):
        return FamilyChange(axis=base.axis, level=None, excess={})
    columns = [shared.index(value) for value in reference]
    beside = _difference(*([logs - _median(logs[:, columns]) for logs in devices] for devices in together))
    excess = dict(zip(shared, beside, strict=True))
    # Those that stayed have more rounds, in which they alone were measured.
    settled = _difference(*([logs - _median(logs) for logs in rounds.logs(reference)] for rounds in (base, new)))
    excess.update(zip(reference, settled, strict=True))
    level = _level(*([logs[:, columns] for logs in devices] for devices in together))
    return FamilyChange(axis=base.axis, level=level, excess=excess)


def _median(logs: Floats) -> Floats:
    """The median of each round over its Candidates, ``[rounds, 1]``; NaN where one is missing."""
    return np.asarray(np.median(logs, axis=1, keepdims=True))


def _level(base: Sequence[Floats], new: Sequence[Floats]) -> Change:
    """What the columns cost in NEW over BASE, round by round the median over them, ``[rounds, columns]`` each device.

    Taken off first is what each column costs in both: of unlike ones the median would be now one's, now another's.
    """
    each = [np.mean([np.median(logs, axis=0) for logs in devices], axis=0) for devices in (base, new)]
    profile = (each[0] + each[1]) / 2
    return _difference(*([_median(logs - profile) for logs in devices] for devices in (base, new)))[0]


def _difference(base: Sequence[Floats], new: Sequence[Floats]) -> list[Change]:
    """NEW less BASE of each column of what is given for each device, ``[rounds, columns]``."""
    (old, old_error, old_df), (now, now_error, now_df) = _located(base), _located(new)
    error, df = np.hypot(old_error, now_error), np.minimum(old_df, now_df)
    return [Change(estimate=float(now[i] - old[i]), error=float(error[i]), df=int(df[i])) for i in range(len(old))]


def _located(devices: Sequence[Floats]) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Mean over the devices that measured of each one's location, its error, and the fewest degrees of freedom."""
    found = [trimmed(series) for series in devices if np.isfinite(series).any()]
    errors = np.array([each.error for each in found])
    mean = np.mean([each.mean for each in found], axis=0)
    return mean, np.sqrt((errors**2).sum(axis=0)) / len(found), np.min([each.df for each in found], axis=0)
