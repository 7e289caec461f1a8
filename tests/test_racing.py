"""A race for the best: who leaves, when it is decided, and how often that is wrong."""

import math
from dataclasses import replace

import numpy as np
import pytest

from orchestrator.config import compose, recompose, to_dict
from orchestrator.space import expand_space, plan_hash
from tasks.family import Bundle
from tasks.location import Floats
from tasks.racing import race
from tasks.sampling import Sampler
from tasks.settings import EARLY_ROUNDS, Timing
from tasks.statistics import compare
from tests.builders import as_bundle, up_family
from tests.test_sampling import FAMILY, TRUTH, FakeDevice, costs, measured, run

TIE = math.log1p(0.005)
TOP = Timing(goal="top", max_seconds=1e9)


def sampled(truth: Floats, rounds: int, noise: float | Floats, seed: int) -> Floats:
    """Log costs with noise of its own for each Candidate, on a level that wanders."""
    random = np.random.default_rng(seed)
    level = np.cumsum(random.normal(0, 0.02, rounds))
    return np.asarray(truth + noise * random.standard_normal((rounds, len(truth))) + level[:, None])


def test_the_one_that_no_longer_ties_is_out_and_one_in_the_tie_is_not() -> None:
    found = race(compare(sampled(np.array([0.0, 0.003, 0.006, 0.1]), 40, 0.0005, 0), 0.5, 0.95))
    assert found is not None
    assert (found.leader, found.decided) == (0, True)
    assert found.out.tolist() == [False, False, True, True]


def test_it_is_not_decided_before_the_leader_is_known_to_be_within_a_tie_of_every_other() -> None:
    for rounds, decided in ((5, False), (1000, True)):
        found = race(compare(sampled(np.array([0.0, 0.001]), rounds, 0.01, 1), 0.5, 0.95, looks=10))
        assert found is not None
        assert found.decided == decided
        assert not found.out.any()


def test_before_four_rounds_there_is_nothing_to_say_and_alone_nothing_to_decide() -> None:
    assert race(compare(sampled(np.zeros(3), 3, 0.01, 0), 0.5, 0.95)) is None
    assert race(compare(np.empty((0, 3)), 0.5, 0.95)) is None
    alone = race(compare(sampled(np.zeros(1), 4, 0.01, 0), 0.5, 0.95))
    assert alone is not None
    assert (alone.leader, alone.decided) == (0, True)


@pytest.mark.parametrize("unequal", [0.0, 0.5], ids=["equal noise", "unequal noise"])
def test_at_most_one_race_in_twenty_ends_wrong(unequal: float) -> None:
    """Four Candidates a hair outside the tie, over all the looks at which the race could have ended."""
    wrong = lost = renamed = tied = 0
    trials, looks = 150, TOP.looks
    for seed in range(trials):
        random = np.random.default_rng(seed)
        truth = np.concatenate([[0.0], np.full(4, 1.02 * TIE), random.uniform(TIE, 0.05, 7)])
        log_cost = sampled(truth, looks[-1], 0.009 * np.exp(unequal * random.standard_normal(12)), seed)
        for look in looks:
            found = race(compare(log_cost[:look], TOP.tie_pct, TOP.confidence, len(looks)))
            if look < TOP.least_rounds:  # when only those leave that are far behind
                assert found is None
                continue
            assert found is not None
            log_cost[look:, found.out] = np.nan
            if found.decided:
                wrong += truth[found.leader] > TIE
                break
        lost += bool(np.isnan(log_cost[-1, 0]))
        ranked = compare(log_cost[: look + 1], TOP.tie_pct, TOP.confidence, len(looks))  # with the one in flight
        renamed += truth[ranked.order[0]] > TIE
        tied += any(ranked.groups[i] == 1 for i in np.flatnonzero(np.isnan(log_cost[look - 1])))
    assert wrong <= 0.05 * trials
    assert lost <= 0.05 * trials
    assert renamed <= 0.05 * trials
    assert tied == 0


def test_equal_candidates_stay_in_one_tie_group_whoever_leads_when() -> None:
    """The leader of the moment is the luckiest of twelve, and the unluckiest is seen beside that one."""
    separated, trials, looks = 0, 100, TOP.looks
    for seed in range(trials):
        log_cost = sampled(np.zeros(12), looks[-1], 0.01, seed)
        for look in looks:
            found = race(compare(log_cost[:look], TOP.tie_pct, TOP.confidence, len(looks)))
            if found is not None:
                log_cost[look:, found.out] = np.nan
                if found.decided:
                    break
        groups = compare(log_cost[: look + 1], TOP.tie_pct, TOP.confidence, len(looks)).groups
        separated += max(group or 0 for group in groups) > 1
    assert separated <= 5  # of 100


def test_with_a_goal_the_rounds_go_to_those_that_may_be_the_best() -> None:
    bundle, best = as_bundle(FAMILY), int(np.argmin(TRUTH))
    visits = {}
    for goal in ("top", "full"):
        timing = replace(TOP, goal=goal, race_pct=1e6)
        sampler = Sampler(bundle, timing, range(20))
        device = FakeDevice(costs(FAMILY, TRUTH), drift=0.01, noise=0.004, seed=3)
        assert run(sampler, bundle, device) == {"top": "best_found", "full": "max_rounds"}[goal]
        comparison = sampler.comparison(FAMILY)
        assert (comparison.order[0], comparison.groups[best]) == (best, 1)
        visits[goal] = len(sampler.samples)
    assert visits["top"] < visits["full"] / 3


@pytest.mark.parametrize("first_round", [0, 30])  # 30: what was measured before was throttled
def test_after_one_that_is_far_behind_has_left_the_others_get_the_least_rounds_again(first_round: int) -> None:
    family = up_family([128, 136, 144])
    rounds = {}
    for slow in (1.02, 2.0):
        device = FakeDevice(costs(family, [1.0, 1.02, slow]), drift=0.0, noise=1e-5, seed=1)
        sampler = Sampler(as_bundle(family), TOP, range(3), first_round)
        assert run(sampler, as_bundle(family), device) == "best_found"
        rounds[slow] = sampler.rounds
    assert rounds[1.02] == TOP.least_rounds + 1  # one is in flight when the look decides
    assert 2 * TOP.least_rounds < rounds[2.0] < 4 * TOP.least_rounds


def test_a_race_ends_though_another_family_keeps_the_one_that_is_far_behind() -> None:
    family = up_family([128, 136, 144])
    alone = replace(family, role="mlp_gate_up", candidates=family.candidates[2:])
    bundle = Bundle(families=(family, alone))
    device = FakeDevice(costs(family, [1.0, 1.02, 2.0]), drift=0.0, noise=1e-5, seed=1)
    sampler = Sampler(bundle, TOP, range(3))
    assert run(sampler, bundle, device) == "best_found"
    assert sampler.rounds <= TOP.lone_rounds + 1
    assert sampler.comparison(family).groups == [1, 2, 3]


def test_a_family_of_one_candidate_has_nobody_to_race_against_and_gets_its_rounds() -> None:
    family = up_family([128])
    sampler = Sampler(as_bundle(family), TOP, [0])
    assert (
        run(sampler, as_bundle(family), FakeDevice(costs(family, [1.0]), drift=0.0, noise=1e-3, seed=1)) == "best_found"
    )
    assert TOP.lone_rounds == 10 <= sampler.rounds <= 11


def test_runs_from_before_there_was_a_goal_are_those_of_the_whole_order() -> None:
    hashes = {}
    for goal in ("full", "top"):
        config = compose("cpu", [f"timing.goal={goal}"])
        hashes[goal] = plan_hash(config, expand_space(config))
    earlier = to_dict(compose("cpu", ["timing.goal=full", "timing.min_rounds=10"]))
    del earlier["timing"]["goal"]
    config = recompose("cpu", earlier)
    assert plan_hash(config, expand_space(config)) == hashes["full"] != hashes["top"]


def test_the_others_are_judged_by_the_rounds_without_the_slow_ones() -> None:
    """Beside the slow ones the second looks the better by 3%; among themselves the first is."""
    family = up_family([128, 136, 256])
    fast, second, slow = (candidate.parts[0].gemm.gemm_id for candidate in family.candidates)
    beside = costs(family, [1.0, 0.97, 2.3])
    alone = costs(family, [1.15, 1.25, 2.3])

    class Boosting(FakeDevice):
        def visit(self, gemm_id: str) -> float:
            self._true = beside if slow in live else alone
            return super().visit(gemm_id)

    bundle = as_bundle(family)
    sampler = Sampler(bundle, TOP, range(3))
    device = Boosting(beside, drift=0.0, noise=1e-4, seed=1)
    live = {fast, second, slow}
    while (reason := sampler.stop_reason(0.0, 0.0)) is None:
        live = {bundle.gemms[i].gemm_id for i in sampler.live}
        sampler.record(measured(sampler, bundle, device))
    assert reason == "best_found"
    left = {gemm_id: sum(sample.gemm_id == gemm_id for sample in sampler.samples) for gemm_id in (slow, second, fast)}
    assert left[slow] == EARLY_ROUNDS < TOP.least_rounds < left[second] <= left[fast]
    comparison = sampler.comparison(family)
    assert comparison.order == [0, 1, 2]
    assert comparison.effect[1] - comparison.effect[0] == pytest.approx(math.log(1.25 / 1.15), abs=1e-3)


@pytest.mark.parametrize(("behind", "leaves"), [(1.05, False), (1.5, True)])
def test_after_two_rounds_only_those_leave_that_are_known_to_be_far_behind(behind: float, leaves: bool) -> None:
    family = up_family(list(range(128, 128 + 12 * 8, 8)))
    truth = [1.0] * 11 + [behind]
    sampler = Sampler(as_bundle(family), TOP, range(12))
    device = FakeDevice(costs(family, truth), drift=0.01, noise=0.01, seed=2)
    for _ in range(EARLY_ROUNDS):
        sampler.record(measured(sampler, as_bundle(family), device))
    assert (11 in sampler.live) is not leaves
    assert len(sampler.live) >= 11


def test_a_hiccup_in_one_of_two_rounds_is_no_reason_to_leave() -> None:
    family = up_family(list(range(128, 128 + 12 * 8, 8)))
    sampler = Sampler(as_bundle(family), TOP, range(12))
    device = FakeDevice(costs(family, [1.0] * 12), drift=0.01, noise=0.01, seed=2)
    sampler.record(measured(sampler, as_bundle(family), device))
    hiccup = as_bundle(family).gemms[5].gemm_id
    later = measured(sampler, as_bundle(family), device)
    sampler.record([replace(s, seconds=5 * s.seconds) if s.gemm_id == hiccup else s for s in later])
    assert len(sampler.live) == 12


def test_one_that_left_after_two_rounds_is_told_from_all_others() -> None:
    """Its own spread in two or three rounds says nothing; that of the others says how well all are known."""
    for seed in range(20):
        log_cost = sampled(np.log([1.0, 1.01, 1.02, 1.03, 2.3, 2.31, 2.9]), 30, 0.02, seed)
        log_cost[3:, 4:] = np.nan
        comparison = compare(log_cost, 0.5, 0.95, len(TOP.looks))
        slow = {comparison.groups[i] for i in (4, 5, 6)}
        assert not slow & {comparison.groups[i] for i in range(4)}
        _, half = comparison.against(comparison.order[0])
        assert (half[4:] < 1.0).all()
        assert comparison.groups[4] == comparison.groups[5]
