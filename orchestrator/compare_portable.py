"""Which values of a chosen dimension are good on every side, and how alike the sides' orders are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from orchestrator.compare_side import Side

LEAST_VALUES = 3
"""Fewer have no order to speak of."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """One value: its cost per FLOP above the best common value's on each side, and the most of these."""

    value: int
    regrets: tuple[float, ...]

    @property
    def worst(self) -> float:
        """The regret of choosing it, on the side where that is most."""
        return max(self.regrets)


@dataclass(frozen=True, kw_only=True, slots=True)
class Agreement:
    """How alike two sides order the values; None where one of them has all alike. first, second: which sides."""

    first: int
    second: int
    kendall: float | None
    spearman: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class PortableFamily:
    """A Family that all runs ranked, its common values, the most portable first."""

    family_id: str
    axis: str
    choices: tuple[Choice, ...]
    agreements: tuple[Agreement, ...]


def portable(sides: Sequence[Side]) -> tuple[PortableFamily, ...]:
    """Return the Families that every run has, with at least one common value; imports have none and are left out."""
    runs = [(i, side) for i, side in enumerate(sides) if not side.imported]
    if len(runs) < 2:
        return ()
    names = [name for name in runs[0][1].families if all(name in side.families for _, side in runs)]
    found = (_family(name, runs) for name in sorted(names))
    return tuple(family for family in found if family.choices)


def _family(name: str, runs: Sequence[tuple[int, Side]]) -> PortableFamily:
    relatives: list[Mapping[int, float]] = [side.families[name].relative for _, side in runs]
    common = sorted(set(relatives[0]).intersection(*relatives[1:]))
    best = [min((found[value] for value in common), default=1.0) for found in relatives]
    choices = [
        Choice(
            value=value, regrets=tuple(found[value] / least - 1 for found, least in zip(relatives, best, strict=True))
        )
        for value in common
    ]
    costs = [np.array([found[value] for value in common]) for found in relatives]
    return PortableFamily(
        family_id=name,
        axis=runs[0][1].families[name].axis,
        choices=tuple(sorted(choices, key=lambda each: (each.worst, each.value))),
        agreements=tuple(
            Agreement(first=runs[i][0], second=runs[j][0], kendall=kendall(x, y), spearman=spearman(x, y))
            for (i, x), (j, y) in combinations(enumerate(costs), 2)
            if len(common) >= LEAST_VALUES
        ),
    )


def kendall(x: Floats, y: Floats) -> float | None:
    """Kendall's tau-b; None where all values of one are equal.

    >>> kendall(np.array([1.0, 2.0, 3.0]), np.array([1.0, 3.0, 2.0]))
    0.3333333333333333
    """
    upper = np.triu_indices(len(x), 1)
    signs = [np.sign(values[:, None] - values[None, :])[upper] for values in (x, y)]
    counts = [np.count_nonzero(each) for each in signs]
    return float((signs[0] * signs[1]).sum() / np.sqrt(counts[0] * counts[1])) if all(counts) else None


def spearman(x: Floats, y: Floats) -> float | None:
    """Spearman's rho, equal values sharing their mean rank; None where all values of one are equal."""
    first, second = _ranks(x), _ranks(y)
    return None if np.ptp(first) == 0 or np.ptp(second) == 0 else float(np.corrcoef(first, second)[0, 1])


def _ranks(values: Floats) -> Floats:
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray((np.cumsum(count) - (count - 1) / 2)[place])
