"""Families that were raced, compared at once, are compared as each is alone: to the bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.raced import Raced, compare_raced
from tasks.comparison import Comparison
from tasks.location import Floats
from tasks.statistics import compare
from tests.kinds import KINDS

ROUNDS = [1, 2, 3, 4, 5, 7, 9, 10, 13, 20, 31]
LEAVES = [1, 2, 3, 4, 6, 9, 13, 20]


def raced(random: np.random.Generator, rounds: int, candidates: int, noise: float, *, coarse: bool) -> Floats:
    """Log costs of a Family of which some left, the slow ones and the others; coarse: with equal ones."""
    cost = random.choice([0.0, 0.005, 0.02, 0.1, 0.5], candidates) + random.normal(0, 0.01, candidates)
    log_cost = -25 + cost.round(2 if coarse else 9) + noise * random.standard_normal((rounds, candidates))
    log_cost += random.normal(0, 0.1, (rounds, 1))
    last = np.minimum(rounds, random.choice([*LEAVES, rounds, rounds, rounds], candidates))
    last[random.integers(candidates)] = rounds
    return np.asarray(np.where(np.arange(rounds)[:, None] < last, log_cost, np.nan))


def assert_same(found: Raced, number: int, alone: Comparison) -> None:
    rounds = len(alone.relative)
    for mine, theirs in (
        (found.relative[:rounds, number], alone.relative),
        (found.steady[:rounds, number], alone.steady),
        (np.arange(rounds) >= found.until[number], alone.settled),
        (found.effect[number], alone.effect),
        (found.stayed[number], alone.stayed),
        (found.near[number], alone.near),
        (found.shift[number], alone.shift),
        (found.order()[number], alone.order),
        (found.groups()[number], alone.groups),
        (found.resolved()[number], alone.resolved),
    ):
        np.testing.assert_array_equal(mine, np.asarray(theirs))  # NaN where the other is
    for j in range(len(alone.effect)):
        found_j = found.against(np.array([j]), np.array([number]))
        assert [each[0].tolist() for each in found_j] == [each.tolist() for each in alone.against(j)]


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.lists(st.sampled_from(ROUNDS), min_size=1, max_size=5),
    **KINDS,
)
def test_many_families_are_compared_as_each_alone(
    rounds: list[int], candidates: int, noise: float, tie_pct: float, looks: int, coarse: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    families = [raced(random, each, candidates, noise, coarse=coarse) for each in rounds]
    beside = np.full((max(rounds), len(rounds), candidates), np.nan)
    for number, family in enumerate(families):
        beside[: len(family), number] = family
    found = compare_raced(beside, tie_pct, 0.95, looks)
    for number, family in enumerate(families):
        assert_same(found, number, compare(family, tie_pct, 0.95, looks))


def test_a_race_by_hand() -> None:
    """Twice as slow, it left after two rounds, in which the others took 10% less; a second Family lost nobody."""
    random = np.random.default_rng(1)
    log_cost = np.full((12, 2, 4), np.nan)
    log_cost[:, 0] = np.log([2.0, 1.0, 1.03, 1.001]) + 1e-4 * random.standard_normal((12, 4))
    log_cost[:2, 0, 1:] += math.log(0.9)
    log_cost[2:, 0, 0] = np.nan
    log_cost[:5, 1] = np.log([1.0, 1.2, 1.1, 1.3]) + 1e-4 * random.standard_normal((5, 4))
    found = compare_raced(log_cost, 0.5, 0.95, 1)
    assert found.rounds.tolist() == [12, 5]
    assert found.until.tolist() == [2, 0]
    assert found.groups().tolist() == [[3, 1, 2, 1], [1, 3, 2, 4]]
    assert found.resolved().tolist() == [True, True]
    estimate, half = found.against(np.array([1, 0]))
    assert np.exp(estimate) == pytest.approx(np.array([[2.0, 1.0, 1.03, 1.001], [1.0, 1.2, 1.1, 1.3]]), rel=1e-3)
    assert half[0, 0] == pytest.approx(-math.log(0.9), rel=0.05)  # it reaches to what it was beside them
    seconds = np.exp(log_cost)[..., None]
    counted = found.undisturbed(seconds)[..., 0]
    assert np.isnan(counted[:2, 0, 1:]).all()
    assert np.array_equal(counted[2:, 0], seconds[2:, 0, :, 0], equal_nan=True)
    assert np.array_equal(counted[:, 1], seconds[:, 1, :, 0], equal_nan=True)
