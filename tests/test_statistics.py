"""Comparison of Candidates: known truths, hand-worked values, and the error rate that the docs promise."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from tasks.location import MIN_ROUNDS, t_quantile, trimmed
from tasks.statistics import compare


@pytest.mark.parametrize("alpha", [0.2, 0.05, 1e-3, 4e-5, 1e-7])
@pytest.mark.parametrize("df", [1, 2, 3, 5, 6, 17, 36, 100, 999])
def test_t_quantile_agrees_with_scipy(alpha: float, df: int) -> None:
    assert t_quantile(alpha, df) == pytest.approx(stats.t.isf(alpha / 2, df), rel=1e-5)


def test_t_quantile_goes_over_into_the_normal_one() -> None:
    assert t_quantile(0.05, 5000) == pytest.approx(1.96, abs=2e-3)


def test_trimmed_mean_by_hand() -> None:
    # ten values: two are cut at either end, six remain: (3+4+5+6+7+8)/6
    location = trimmed(np.array([[5.0, 6, 4, 8, 3, 9, 1, 7, 2, 1000]]).T)
    assert location.mean[0] == pytest.approx(5.5)
    assert location.df[0] == 5
    # winsorized: 3,3,3,4,5,6,7,8,8,8; squares about 5.5: 2*3*6.25 + 2*(2.25+0.25) = 42.5; Yuen: sqrt(42.5/(6*5));
    # neighbours in time are on different sides: no correlation to allow for
    assert location.error[0] == pytest.approx(math.sqrt(42.5 / 30))


def test_trimmed_mean_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).normal(size=(23, 7))
    assert trimmed(values).mean == pytest.approx(stats.trim_mean(values, 0.2, axis=0))


def test_yuens_interval_agrees_with_scipys_trimmed_test() -> None:
    sample = np.tile([1.0, -1.0], 13)[:25] * np.abs(np.random.default_rng(2).normal(1, 0.3, size=25))
    location = trimmed(sample[:, None])
    # scipy has Yuen's test for two independent samples: against a constant one the standard error is this one's
    cut, kept = 5, 15
    winsorized = stats.mstats.winsorize(sample, limits=(0.2, 0.2)).data
    assert location.error[0] == pytest.approx(math.sqrt(winsorized.var(ddof=1) * 24 / (kept * (kept - 1))))
    assert location.df[0] == len(sample) - 2 * cut - 1


@pytest.mark.parametrize("rounds", [2, 3])
def test_rounds_too_few_for_an_interval_tell_nobody_apart_but_figures_stand_as_they_are(rounds: int) -> None:
    log_cost = np.random.default_rng(0).normal(0.0, 0.01, (rounds, 25))
    assert set(compare(log_cost, 0.5, 0.95).groups) == {1}
    figures = replace(compare(log_cost, 0.5, 0.95), apart=True)  # by protocol seed, one of each device
    assert len(set(figures.groups)) > 1


def test_correlated_rounds_are_worth_fewer() -> None:
    random = np.random.default_rng(15)
    values = np.zeros((400, 300))
    for r in range(1, len(values)):  # a first-order autoregression: the mean's error is that of a quarter of the rounds
        values[r] = 0.6 * values[r - 1] + random.normal(size=300)
    spread = values.mean(axis=0).std()
    location = trimmed(values[20:])
    assert np.median(location.error) == pytest.approx(spread, rel=0.15)
    assert location.mean.std() == pytest.approx(spread, rel=0.1)


def test_missing_rounds_do_not_count() -> None:
    values = np.array([[1.0, 5.0], [2.0, np.nan], [3.0, 7.0], [4.0, np.nan], [5.0, 6.0]])
    location = trimmed(values)
    assert location.mean.tolist() == pytest.approx([3.0, 6.0])
    assert np.isinf(location.error[1])  # three rounds: fewer than MIN_ROUNDS
    assert math.isnan(trimmed(np.full((3, 1), np.nan)).mean[0])


def rounds(true: list[float], count: int, noise: float, seed: int, drift: float = 0.0) -> np.ndarray:
    """Log costs: the truth, a random walk that all Candidates of a round share, and noise of each visit."""
    random = np.random.default_rng(seed)
    shared = np.cumsum(random.normal(size=(count, 1)) * drift, axis=0)
    return np.asarray(np.log(true) + shared + random.normal(size=(count, len(true))) * noise)


def test_drift_that_all_share_cancels_to_the_last_digit() -> None:
    still = compare(rounds([1.0, 1.1, 1.02], 15, 0.01, 3), 0.5, 0.95)
    drifting = compare(rounds([1.0, 1.1, 1.02], 15, 0.01, 3) + np.linspace(0, 2, 15)[:, None], 0.5, 0.95)
    assert drifting.effect == pytest.approx(still.effect)
    for i, j in ((0, 1), (1, 2), (0, 2)):
        assert drifting.difference(i, j) == pytest.approx(still.difference(i, j))


def test_groups_and_order_of_a_known_truth() -> None:
    true = [2.3, 1.0, 1.001, 1.03, 1.031]
    comparison = compare(rounds(true, 30, 0.003, 4, drift=0.05), 0.5, 0.95)
    assert comparison.groups == [3, 1, 1, 2, 2]
    assert set(comparison.order[:2]) == {1, 2}
    assert comparison.order[-1] == 0
    estimate, half = comparison.difference(3, 1)
    assert abs(estimate - math.log(1.03)) <= half < 0.01
    assert comparison.tied(1, 2)
    assert not comparison.tied(1, 3)


def test_an_effect_below_the_floor_ties_even_when_its_interval_excludes_zero() -> None:
    log_cost = rounds([1.0, 1.002], 60, 1e-4, 5)
    estimate, half = compare(log_cost, 0.5, 0.95).difference(1, 0)
    assert half < estimate
    assert compare(log_cost, 0.5, 0.95).groups == [1, 1]
    assert compare(log_cost, 0.1, 0.95).groups == [1, 2]


@pytest.mark.parametrize(
    ("candidates", "count", "heavy"),
    [(2, 20, False), (25, 10, False), (25, 15, True), (50, 20, False), (25, 5, False), (25, 5, True), (12, 7, False)],
)
def test_equal_candidates_are_falsely_separated_in_at_most_one_family_of_twenty(
    candidates: int, count: int, heavy: bool
) -> None:
    random = np.random.default_rng(6)
    families, separated = 400, 0
    for _ in range(families):
        shape = (count, candidates)
        noise = random.standard_t(2, size=shape) * 0.01 if heavy else random.normal(size=shape) * 0.02
        drift = np.cumsum(random.normal(size=(count, 1)) * 0.1, axis=0)
        separated += max(group or 0 for group in compare(noise + drift, 0.5, 0.95).groups) > 1
    # 5% of 400 is 20; more than 29 would come up by chance in 2 of 100 such tests if the rate were just 5%
    assert separated <= 29


def test_unequal_candidates_of_a_noisy_family_are_told_apart_given_rounds_enough() -> None:
    true = [1.0, 1.01, 1.02, 1.03]
    assert compare(rounds(true, 10, 0.06, 7), 0.5, 0.95).groups == [1, 1, 1, 1]
    assert compare(rounds(true, 900, 0.02, 7), 0.5, 0.95).groups == [1, 2, 3, 4]


def test_a_few_hiccups_move_nothing_where_a_mean_would_be_lost() -> None:
    log_cost = rounds([1.0, 1.02, 1.04], 20, 0.002, 8)
    log_cost[3, 0] += 3.0  # twenty times as slow, twice
    log_cost[11, 0] += 3.0
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.order == [0, 1, 2]
    assert comparison.groups == [1, 2, 3]


def test_a_candidate_that_left_early_is_compared_on_the_same_footing() -> None:
    log_cost = rounds([1.0, 1.01, 1.5], 18, 0.001, 9, drift=0.2)
    log_cost[15:, 2] = np.nan  # three rounds without it: too few to be compared by
    comparison = compare(log_cost, 0.5, 0.95)
    estimate, half = comparison.difference(2, 0)
    assert estimate == pytest.approx(math.log(1.5), abs=0.005)
    assert half < 0.01
    assert comparison.groups == [1, 2, 3]


def test_one_that_left_is_set_against_what_the_others_cost_without_it() -> None:
    # beside the slow one the chip boosts: what takes 1.0 and 1.01 in a model of its own takes 0.8 and 0.808 there
    log_cost = rounds([2.4, 1.0, 1.01], 40, 0.001, 14)
    log_cost[:10, 1:] += math.log(0.8)
    log_cost[10:, 0] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    estimate, half = comparison.difference(0, 1)
    assert estimate == pytest.approx(math.log(2.4), abs=0.005)
    assert estimate + half == pytest.approx(math.log(3.0), abs=0.02)  # beside them it was three times as slow
    estimate, half = comparison.difference(2, 1)
    assert estimate == pytest.approx(math.log(1.01), abs=0.002)
    assert half < 0.004
    assert comparison.groups == [3, 1, 2]


def test_those_that_stay_are_compared_by_the_rounds_without_the_ones_that_left() -> None:
    random = np.random.default_rng(12)
    log_cost = np.log([1.0, 1.01, 2.5]) + random.normal(size=(30, 3)) * 0.001
    log_cost[:10] += random.normal(size=(10, 3)) * 0.2  # the slow one disturbs its neighbours
    log_cost[10:, 2] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    estimate, half = comparison.difference(1, 0)
    assert estimate == pytest.approx(math.log(1.01), abs=0.002)
    assert half < 0.004
    assert comparison.resolved
    few = compare(log_cost[:13], 0.5, 0.95)  # three rounds without it: too few to go by
    assert few.difference(1, 0)[1] > 0.05
    assert not few.resolved


def test_two_equal_ones_that_left_at_different_times_are_not_told_apart() -> None:
    # the level that the others set moves when the slow ones leave: only the rounds that a pair shares may compare it
    random, separated, families = np.random.default_rng(16), 0, 150
    true = np.log([1.0] * 6 + [1.14] * 6 + [2.3] * 6)
    for _ in range(families):
        log_cost = true + random.standard_t(3, size=(40, 18)) * 0.01
        log_cost[:10, :6] -= 0.10
        log_cost[:10, 6:12] -= 0.05
        log_cost[10:, 12:] = np.nan
        for i in range(6, 12):
            log_cost[10 + 4 * (i - 6) :, i] = np.nan
        groups = compare(log_cost, 0.5, 0.95)
        separated += any(not groups.tied(i, j) for i in range(6, 12) for j in range(6, i))
    assert separated <= 0.05 * families


def test_one_that_left_is_neither_ahead_of_the_best_that_stayed_nor_tied_with_it() -> None:
    # it left at 0.8% behind one that had five good rounds, whose other rounds are 1% worse
    log_cost = np.log(np.array([[1.0, 1.005, 1.008]] * 5 + [[1.01, 1.015, np.nan]] * 45))
    log_cost[:, :2] += np.random.default_rng(3).normal(size=(50, 2)) * 1e-4
    log_cost[:, 1] -= np.log(1.005) * 0.9
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.left.tolist() == [False, False, True]
    assert comparison.order[0] in (0, 1)
    assert comparison.groups == [1, 1, 2]
    assert comparison.effect[2] - comparison.effect[:2].min() >= comparison.tie
    # one that left at less than half a tie behind, as race_pct may ask for, stays in the tie
    log_cost[:5, 2] = log_cost[:5, :2].min(axis=1) + 0.002
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.groups == [1, 1, 1]
    assert comparison.order[0] in (0, 1)


def test_those_that_joined_later_are_compared_on_the_same_footing() -> None:
    random = np.random.default_rng(5)
    true = np.log([1.0, 1.3, 0.9, 2.0, 0.95, 1.4])
    log_cost = np.log(1e-3) + true + random.normal(size=(30, 6)) * 1e-4
    log_cost[:8] += np.cumsum(random.normal(size=8) * 0.1)[:, None]  # a drift above what most of them differ by
    log_cost[:8, [2, 5]] = np.nan  # two joined for the rounds from 8 on, and 5 was tried in four of them
    log_cost[4:, 3] = np.nan
    log_cost[8:, 1] = np.nan
    log_cost[12:, 5] = np.nan
    log_cost[:4, 4] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.stayed.tolist() == [True, False, True, False, True, False]
    assert comparison.left.tolist() == [False, True, False, True, False, True]
    assert comparison.settled.tolist() == [False] * 12 + [True] * 18
    assert comparison.effect - comparison.effect[2] == pytest.approx(true - true[2], abs=2e-3)
    assert comparison.order == [2, 4, 0, 1, 5, 3]
    assert comparison.groups == [3, 4, 1, 6, 2, 5]
    for i, j in ((3, 4), (5, 1)):  # which shared no round; of the second two both have left
        estimate, half = comparison.difference(i, j)
        assert estimate == pytest.approx(true[i] - true[j], abs=2e-3)
        assert half < 0.02


def test_the_error_is_shared_out_over_looks_and_comparisons() -> None:
    log_cost = rounds([1.0, 1.0, 1.0, 1.0], 25, 0.01, 17)
    once, often = compare(log_cost, 0.5, 0.95), compare(log_cost, 0.5, 0.95, looks=8)
    df = 25 - 2 * 5 - 1
    expected = stats.t.isf(0.05 / 8 / 6 / 2, df) / stats.t.isf(0.05 / 6 / 2, df)
    assert often.difference(1, 0)[1] / once.difference(1, 0)[1] == pytest.approx(expected, rel=1e-4)
    few = once.against(0, comparisons=3)[1][1] / once.against(0)[1][1]
    assert few == pytest.approx(stats.t.isf(0.05 / 3 / 2, df) / stats.t.isf(0.05 / 6 / 2, df), rel=1e-4)


def test_close_pairs_are_resolved_when_known_to_half_of_the_floor() -> None:
    log_cost = rounds([1.0, 1.0], 30, 0.01, 19)
    half = compare(log_cost, 0.5, 0.95).difference(1, 0)[1]
    for factor, resolved in ((1.95, False), (2.05, True)):
        assert compare(log_cost, 100 * math.expm1(factor * half), 0.95).resolved is resolved


@pytest.mark.parametrize(("later", "settled"), [(3, 13), (4, 4)])
def test_four_rounds_without_the_slow_one_that_left_are_enough_to_go_by(later: int, settled: int) -> None:
    log_cost = rounds([1.0, 1.01, 2.5], 10 + later, 0.001, 20)
    log_cost[10:, 2] = np.nan
    assert compare(log_cost, 0.5, 0.95).settled.sum() == settled


def test_pairs_that_left_need_not_be_resolved() -> None:
    log_cost = rounds([1.0, 1.05, 3.0, 3.01], 40, 0.002, 13)
    log_cost[:10, 2:] += np.random.default_rng(18).normal(size=(10, 2)) * 0.1
    log_cost[10:, 2:] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.resolved
    assert comparison.groups == [1, 2, 3, 3]


def test_one_round_orders_by_the_figure_and_ties_by_the_floor_alone() -> None:
    comparison = compare(np.log([[1.0, 1.002, 1.3]]), 0.5, 0.95)
    assert comparison.order == [0, 1, 2]
    assert comparison.groups == [1, 1, 2]
    assert math.isinf(comparison.difference(2, 0)[1])
    assert not comparison.resolved


def test_what_was_never_measured_has_no_group() -> None:
    log_cost = rounds([1.0, 1.2, 1.3], 12, 0.001, 10)
    log_cost[:, 1] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    assert comparison.groups == [1, None, 2]
    assert comparison.order == [0, 2]


@pytest.mark.parametrize("shape", [(0, 3), (4, 3)])
def test_a_family_without_a_sample_has_nothing_to_say(shape: tuple[int, int]) -> None:
    comparison = compare(np.full(shape, np.nan), 0.5, 0.95)
    assert comparison.order == []
    assert comparison.groups == [None, None, None]


@pytest.mark.parametrize("seed", range(40))
def test_resolved_is_what_all_pairs_say(seed: int) -> None:
    random = np.random.default_rng(seed)
    centres = np.sort(random.uniform(0, 0.02, 5))
    log_cost = centres + random.standard_normal((30, 5)) * random.choice([0.001, 0.004, 0.01], 5)
    if seed % 2:
        log_cost[12:, random.integers(5)] = np.nan
    found = compare(log_cost, 0.5, 0.95)
    stayed = [j for j in found.order if found.stayed[j]]
    pairs = [found.difference(i, j) for i in stayed for j in stayed if i != j]
    known = [half <= found.tie / 2 if abs(each) < found.tie else abs(each) > half for each, half in pairs]
    assert found.resolved is all(known)


def test_resolved_means_every_pair_is_apart_or_known_to_be_close() -> None:
    assert compare(rounds([1.0, 1.2], 20, 0.001, 11), 0.5, 0.95).resolved
    assert compare(rounds([1.0, 1.0], 40, 0.001, 11), 0.5, 0.95).resolved
    assert not compare(rounds([1.0, 1.0], 12, 0.02, 11), 0.5, 0.95).resolved  # close, but not known to be
    assert not compare(rounds([1.0, 1.01], 12, 0.02, 11), 0.5, 0.95).resolved


@given(
    arrays(np.float64, (MIN_ROUNDS + 3, 5), elements=st.floats(-20, 20, width=16)),
    arrays(np.float64, (MIN_ROUNDS + 3, 1), elements=st.floats(-20, 20, width=16)),
    st.permutations(range(5)),
)
@settings(max_examples=60, deadline=None)
def test_the_labels_and_the_drift_change_nothing(costs: np.ndarray, drift: np.ndarray, order: list[int]) -> None:
    plain = compare(costs, 0.5, 0.95)
    moved = compare((costs + drift)[:, order], 0.5, 0.95)
    assert moved.effect == pytest.approx(plain.effect[order], abs=1e-9)
    half = plain.against(order[0])[1][order]
    assert moved.against(0)[1] == pytest.approx(half, abs=1e-6, rel=1e-6)
    assert all((plain.groups[i] or 0) >= 1 for i in plain.order)
    assert plain.groups[plain.order[0]] == 1


# Several devices


def on_two_devices(
    random: np.random.Generator, *, level: float, boost: float = 0.0, failed: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Costs 0, 0, 1, 2 and 30%: the last leaves after 10 and 14 rounds, before which the others gain ``boost``.

    The second device is ``level`` slower, with twice as many rounds; the second Candidate may have ``failed`` on it.
    """
    rows, blocks = [], []
    for device, (rounds, leaves) in enumerate(((30, 10), (60, 14))):
        log = np.array(TRUTH) + device * level + 0.003 * random.standard_normal((rounds, len(TRUTH)))
        log[:leaves, :-1] -= boost
        log[leaves:, -1] = np.nan
        if failed and device == 1:
            log[:, 1] = np.nan
        rows.append(log)
        blocks += [device] * rounds
    return np.concatenate(rows), np.array(blocks)


TRUTH = [0.0, 0.0, 0.01, 0.02, 0.3]


@pytest.mark.parametrize("failed", [False, True])
@pytest.mark.parametrize("level", [0.0, 0.02, 0.2])
def test_intervals_hold_whatever_one_device_is_slower_by(level: float, failed: bool) -> None:
    random, misses, families = np.random.default_rng(20), 0, 300
    for _ in range(families):
        comparison = compare(*with_blocks(on_two_devices(random, level=level, failed=failed)))
        estimate, half = comparison.against(0)
        misses += any(abs(estimate[i] - TRUTH[i]) > half[i] for i in range(5))
        assert half[1:4].max() < 0.015
        assert comparison.stayed.tolist() == [True, True, True, True, False]
    assert misses / families <= 0.05


@pytest.mark.parametrize("boost", [0.0, 0.15])
@pytest.mark.parametrize("level", [0.0, 0.2, -0.2])
def test_how_fast_a_device_is_says_nothing_of_one_that_left(level: float, boost: float) -> None:
    random = np.random.default_rng(21)
    found = [compare(*with_blocks(on_two_devices(random, level=level, boost=boost))).effect for _ in range(20)]
    assert np.mean([effect[4] - effect[0] for effect in found]) == pytest.approx(0.3, abs=0.002)


def test_one_that_failed_on_a_device_has_not_left_there() -> None:
    log, blocks = on_two_devices(np.random.default_rng(22), level=0.2, failed=True)
    comparison = compare(log, 0.5, 0.95, blocks=blocks)
    assert comparison.order[:2] in ([0, 1], [1, 0])
    assert comparison.disturbed.sum() == 10 + 14
    alone = compare(log[blocks == 0], 0.5, 0.95)
    assert comparison.difference(1, 0) == pytest.approx(alone.difference(1, 0), rel=0.2)


def test_devices_on_which_different_ones_stayed_are_compared_all_the_same() -> None:
    random = np.random.default_rng(23)
    log = np.array([0.0, 0.1]) + 0.001 * random.standard_normal((60, 2))
    log[10:30, 1] = np.nan
    log[40:, 0] = np.nan
    comparison = compare(log, 0.5, 0.95, blocks=np.repeat([0, 1], 30))
    assert comparison.groups == [1, 2]
    assert np.isfinite(comparison.effect).all()


def test_a_device_on_which_only_one_that_left_was_measured_compares_nothing() -> None:
    log = np.array([0.0, 0.1, 0.2]) + 0.001 * np.random.default_rng(25).standard_normal((24, 3))
    log[8:, 2] = np.nan
    log[20:, :2] = np.nan
    comparison = compare(log, 0.5, 0.95, blocks=np.repeat([0, 1], [20, 4]))
    assert comparison.kept.tolist() == [True] * 20 + [False] * 4
    assert comparison.groups == [1, 2, 3]


def test_one_device_is_as_if_nothing_were_said_of_devices() -> None:
    log, _ = on_two_devices(np.random.default_rng(24), level=0.0)
    said, unsaid = compare(log, 0.5, 0.95, blocks=np.full(len(log), 7)), compare(log, 0.5, 0.95)
    assert np.array_equal(said.effect, unsaid.effect)
    assert said.groups == unsaid.groups


def test_one_that_a_search_only_did_not_let_race_may_tie_with_the_best() -> None:
    rng = np.random.default_rng(3)
    true = np.log1p([0.0, 0.001, 0.005, 0.005, 0.03, 0.005])
    log, racing = true + 0.004 * rng.standard_normal((40, 6)), np.arange(40) >= 8
    log[8:, 2] = np.nan  # in the last level, and not in the race
    log[12:, [3, 4]] = np.nan  # left the race
    log[4:, 5] = np.nan  # left after a level before
    found = compare(log, 0.5, 0.95, racing=racing)
    assert found.aside.tolist() == [False, False, True, False, False, False]
    assert found.groups[:3] == [1, 1, 1]
    assert all((found.groups[i] or 0) > 1 for i in (3, 4, 5))
    assert found.effect[2] - found.effect[0] == pytest.approx(0.005, abs=0.004)
    raced = compare(log, 0.5, 0.95)  # all rounds are a race: who left was behind
    assert not raced.aside.any()
    assert (raced.groups[2] or 0) > 1


@pytest.mark.parametrize(("until", "aside"), [(8, True), (12, False), (30, True)])
def test_one_that_left_the_race_on_one_device_was_behind_whatever_a_search_did_on_the_other(
    until: int, aside: bool
) -> None:
    log = np.log1p([0.0, 0.001, 0.004]) + 0.002 * np.random.default_rng(4).standard_normal((60, 3))
    log[8:30, 2] = np.nan  # the first device, of 30 rounds: in the last level, and not in the race
    log[30 + until :, 2] = np.nan  # the second: not in the race either, left it, or stayed
    racing = np.tile(np.arange(30) >= 8, 2)
    found = compare(log, 0.5, 0.95, blocks=np.repeat([0, 1], 30), racing=racing)
    assert (found.aside.tolist(), found.stayed.tolist()) == ([False, False, aside], [True, True, False])


def with_blocks(devices: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, float, float, int, np.ndarray]:
    log, blocks = devices
    return log, 0.5, 0.95, 1, blocks


def test_one_that_left_little_behind_is_not_set_against_what_the_slow_ones_changed() -> None:
    # all boost beside the slow one, also the one that is 2% behind and leaves soon after it
    log_cost = rounds([2.4, 1.0, 1.004, 1.02], 30, 0.0005, 21)
    log_cost[:5, 1:] += math.log(0.85)
    log_cost[5:, 0] = np.nan
    log_cost[8:, 3] = np.nan
    comparison = compare(log_cost, 0.5, 0.95)
    assert (comparison.near.tolist(), comparison.order) == ([False, False, False, True], [1, 2, 3, 0])
    assert comparison.settled.tolist() == [False] * 5 + [True] * 25
    estimate, half = comparison.difference(3, 1)
    assert estimate == pytest.approx(math.log(1.02), abs=0.002)
    assert half < 0.01
    # what it would take: its own in the rounds without the slow one, and as the others slowed down in those before
    assert np.exp(comparison.steady[:5]) == pytest.approx(1 / 0.85, abs=0.005)
    assert np.exp(comparison.steady[5:]) == pytest.approx(1.0, abs=0.005)
    # both have left: the slow one is set against what this one would take too
    estimate, half = comparison.difference(0, 3)
    assert estimate == pytest.approx(math.log(2.4 / 1.02), abs=0.005)
    assert estimate + half == pytest.approx(math.log(2.4 / 1.02 / 0.85), abs=0.03)
