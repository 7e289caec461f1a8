"""How well the static model of tiles and waves explains what was measured, per GPU model, role and tp.

Compared is the cost per FLOP of a Family's Candidates: log(measured cost over the best's) against log(predicted cost).
What Families have in common is taken out first, so that only Candidates that compete are compared.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from orchestrator.alignment import aligned
from orchestrator.explained_run import MeasuredCandidate, MeasuredFamily
from orchestrator.tiles import cost

ALL, ALIGNED = "all", "aligned"
"""Every Candidate; those all of whose Gemms have rows of whole multiples of 16 bytes."""

LEAST_PAIRS = 8
CONFIDENCE = 0.95
EQUAL = 1e-9
"""Logarithms of costs that differ less are the same: rounding."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Correlation:
    """A correlation coefficient with its interval by Fisher's transformation."""

    value: float
    low: float
    high: float

    @property
    def related(self) -> bool:
        """Whether it can be told from 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """Predicted against measured costs of the Candidates of one role and tp on one GPU model.

    which: ALL or ALIGNED. pairs: Candidates. pearson: of the logarithms; rank: Spearman's; jumps: Pearson's, of the
    changes from one value to the next. None where there are fewer than LEAST_PAIRS, or where the model or the
    measurement is the same for all. predicted_spread, measured_spread: the largest cost over the least one, less 1, in
    the Family where that is most.
    """

    gpu: str
    role: str
    tp: int
    which: str
    families: int
    pairs: int
    pearson: Correlation | None
    rank: Correlation | None
    jumps: Correlation | None
    predicted_spread: float
    measured_spread: float

    @property
    def verdict(self) -> str:
        """What the correlation amounts to, in a few words."""
        if self.pairs < LEAST_PAIRS:
            return "too few"
        if self.predicted_spread < EQUAL:
            return "all alike"
        if self.pearson is None or not self.pearson.related:
            return "no relation"
        return "wrong way" if self.pearson.value < 0 else f"explains {self.pearson.value**2:.0%}"


Logs = Sequence[tuple[Floats, Floats]]
"""Per Family, by value: logarithms of predicted and of measured costs."""


def fits(families: Iterable[MeasuredFamily]) -> tuple[Fit, ...]:
    """Return the fits of each GPU model, role and tp, of all Candidates and of the aligned ones; none for a CPU."""

    def place(family: MeasuredFamily) -> tuple[str, str, int]:
        return family.gpu.name, family.role, family.tp

    chosen = sorted((family for family in families if family.gpu.sms is not None), key=place)
    groups = [list(group) for _, group in groupby(chosen, key=place)]
    return tuple(_fit(group, which) for group in groups for which in (ALL, ALIGNED))


def _fit(families: Sequence[MeasuredFamily], which: str) -> Fit:
    logs = [_logs(family, which) for family in families]
    logs = [(predicted, measured) for predicted, measured in logs if len(predicted)]
    first = families[0]
    return Fit(
        gpu=first.gpu.name,
        role=first.role,
        tp=first.tp,
        which=which,
        families=len(logs),
        pairs=sum(len(predicted) for predicted, _ in logs),
        pearson=correlation(_pooled(logs, lambda values: values - values.mean()), len(logs)),
        rank=correlation(_pooled(logs, _centred_ranks), len(logs)),
        jumps=correlation(_pooled(logs, _jumps), 1),
        predicted_spread=_spread(predicted for predicted, _ in logs),
        measured_spread=_spread(measured for _, measured in logs),
    )


def _logs(family: MeasuredFamily, which: str) -> tuple[Floats, Floats]:
    sms = family.gpu.sms or 1
    kept = [each for each in family.candidates if which == ALL or _aligned(each)]
    predicted = np.log([cost(each.gemms, sms) for each in kept])
    return predicted, np.log([each.relative for each in kept])


def _aligned(candidate: MeasuredCandidate) -> bool:
    return all(map(aligned, candidate.gemms))


def _pooled(logs: Logs, make: Callable[[Floats], Floats]) -> tuple[Floats, Floats]:
    none = np.empty(0)
    predicted = np.concatenate([none, *(make(each) for each, _ in logs)])
    return predicted, np.concatenate([none, *(make(each) for _, each in logs)])


def _centred_ranks(values: Floats) -> Floats:
    """Ranks from -1/2 to 1/2, those of equal values their mean."""
    _, place, count = np.unique(np.round(values / EQUAL), return_inverse=True, return_counts=True)
    ranks = np.cumsum(count) - (count - 1) / 2
    return (ranks[place] - (len(values) + 1) / 2) / len(values)


def _jumps(values: Floats) -> Floats:
    return np.diff(values)


def _spread(logs: Iterable[Floats]) -> float:
    return float(np.expm1(max((np.ptp(each) for each in logs), default=0.0)))


def correlation(pairs: tuple[Floats, Floats], groups: int) -> Correlation | None:
    """Pearson's coefficient of values whose mean was taken out in each of ``groups`` groups; None where there is none.

    Every group beyond the first costs the interval one pair.
    """
    x, y = pairs
    freedom = len(x) - max(groups, 1) - 2
    if len(x) < LEAST_PAIRS or freedom < 1 or np.ptp(x) < EQUAL or np.ptp(y) < EQUAL:
        return None
    value = float(np.clip(np.corrcoef(x, y)[0, 1], -1.0, 1.0))
    if abs(value) > 1 - EQUAL:
        return Correlation(value=value, low=value, high=value)
    half = NormalDist().inv_cdf((1 + CONFIDENCE) / 2) / math.sqrt(freedom)
    low, high = (math.tanh(math.atanh(value) + side) for side in (-half, half))
    return Correlation(value=value, low=low, high=high)
