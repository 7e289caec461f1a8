"""Families of one form, compared at once, are compared as each is alone: to the bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.alike import compare_alike
from tasks.statistics import compare
from tests.kinds import KINDS


@settings(max_examples=60, deadline=None)
@given(
    rounds=st.sampled_from([1, 2, 3, 10, 11, 20, 31]),  # with four to nine, none is compared so
    families=st.integers(1, 6),
    **KINDS,
)
def test_many_families_are_compared_as_each_alone(
    rounds: int, families: int, candidates: int, noise: float, tie_pct: float, looks: int, coarse: bool, seed: int
) -> None:
    random = np.random.default_rng(seed)
    cost = random.normal(0, 0.02, (1, families, candidates)).round(2 if coarse else 9)  # coarse: with equal ones
    log_cost = -25 + cost + noise * random.standard_normal((rounds, families, candidates))
    log_cost += random.normal(0, 0.1, (rounds, families, 1))
    found = compare_alike(log_cost, tie_pct, 0.95, looks)
    groups, resolved, best = found.groups(), found.resolved(), np.argsort(found.effect, axis=1, kind="stable")[:, 0]
    over_best = found.against(best)
    for i in range(families):
        alone = compare(log_cost[:, i], tie_pct, 0.95, looks)
        assert (alone.effect == found.effect[i]).all()
        assert alone.groups == groups[i].tolist()
        assert alone.resolved == resolved[i]
        assert alone.order[0] == best[i]
        for mine, theirs in zip(over_best, alone.against(alone.order[0]), strict=True):
            assert mine[i].tolist() == theirs.tolist()
        last = candidates - 1
        over_last = found.against(np.array([last]), np.array([i]))
        assert [each[0].tolist() for each in over_last] == [each.tolist() for each in alone.against(last)]


def test_groups_and_estimates_by_hand() -> None:
    cost = np.log([[[1.0, 1.004, 1.008, 2.0]], [[3.0, 3.012, 3.024, 6.0]]])  # 0.4%: a tie with the one before
    assert compare_alike(cost[:1], 0.5, 0.95, 1).groups().tolist() == [[1, 1, 2, 3]]  # one figure each
    found = compare_alike(cost, 0.5, 0.95, 1)
    assert found.groups().tolist() == [[1, 1, 1, 1]]  # two rounds tell nobody apart
    assert np.exp(found.against(np.array([0]))[0]).tolist() == [pytest.approx([1.0, 1.004, 1.008, 2.0])]
    assert found.resolved().tolist() == [False]
