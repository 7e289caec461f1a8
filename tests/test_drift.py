"""What drifts inside a round: told by a visit's neighbours in time, and taken out of its cost."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tasks.comparison import Comparison
from tasks.drift import HALF, OTHER, slowdown, typical
from tasks.family import Bundle, Family
from tasks.location import Floats
from tasks.measure import measure_bundle
from tasks.records import Sample
from tasks.sampling import Sampler
from tasks.settings import Timing
from tasks.statistics import compare
from tests.builders import as_bundle, mlp_family, up_family
from tests.scripted import ScriptedDevice


def rounds(
    effect: Floats, count: int, level: Floats, noise: float, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    """Visits in the order of time: Gemm, round and log seconds. level[visits]: log of how slow the device is."""
    random = np.random.default_rng(seed)
    gemm = np.concatenate([random.permutation(len(effect)) for _ in range(count)])
    seconds = effect[gemm] + level + noise * random.standard_normal(len(gemm))
    return gemm, np.repeat(np.arange(count), len(effect)), seconds


def steps(visits: int, every: int, size: float, seed: int) -> Floats:
    """A level that goes up or down every so many visits, as clocks under a power cap do."""
    random = np.random.default_rng(seed)
    return np.asarray(np.repeat(size * random.standard_normal(visits // every + 1), every)[:visits])


def told(effect: Floats, count: int, level: Floats, noise: float = 0.0, seed: int = 0) -> tuple[Floats, Floats]:
    """Slowdown of each visit, and what each cost beside its Gemm's own, at its round's pace."""
    gemm, turn, seconds = rounds(effect, count, level, noise, seed)
    own = typical(gemm, turn, seconds)
    found = slowdown(gemm, turn, seconds, own, np.zeros(len(effect), dtype=np.int64))
    left = (seconds - np.log(found) - effect[gemm]).reshape(count, len(effect))
    return found, left - np.median(left, axis=1, keepdims=True)


@settings(max_examples=30, deadline=None)
@given(st.integers(9, 40), st.integers(4, 12), st.integers(0, 1000))
def test_what_a_gemm_takes_is_found_whatever_a_round_does(gemms: int, count: int, seed: int) -> None:
    effect = np.random.default_rng(seed).uniform(-1, 1, gemms)
    level = np.repeat(np.random.default_rng(seed + 1).uniform(-0.3, 0.3, count), gemms)
    gemm, turn, seconds = rounds(effect, count, level, 0.0, seed)
    own = typical(gemm, turn, seconds)
    assert own - own[0] == pytest.approx(effect - effect[0])
    found = slowdown(gemm, turn, seconds, own, np.zeros(gemms, dtype=np.int64))
    assert np.median(found) == 1.0
    # Only at the ends of a round, whose neighbours are another round's, is anything left to tell.
    middle = np.arange(gemms * count) % gemms
    assert found[(middle >= HALF) & (middle < gemms - HALF)] == pytest.approx(1.0)


def test_a_step_amid_a_round_is_told_and_taken_out() -> None:
    effect = np.linspace(0.0, 0.02, 25)
    level = np.zeros(8 * 25)
    level[25 + 10 :] = 0.08  # amid the second round everything becomes 8% slower, and stays so
    found, left = told(effect, 8, level, noise=1e-3)
    assert found[25:35] == pytest.approx(math.exp(-0.08), abs=2e-3)  # most of that round ran slower
    assert found[35:50] == pytest.approx(1.0, abs=2e-3)
    assert np.delete(found, np.arange(25, 50)) == pytest.approx(1.0, abs=2e-3)
    assert np.abs(left).max() < 6e-3


def test_steps_are_taken_out_and_where_there_are_none_little_is_put_in() -> None:
    effect = np.random.default_rng(0).uniform(0, 0.05, 25)
    _, stepping = told(effect, 40, steps(1000, 15, 0.03, seed=1), noise=1e-3)
    assert stepping.std() < 0.012  # of 0.026: what is left lies beside the steps
    assert np.median(np.abs(stepping)) < 1e-3  # of 0.015
    _, steady = told(effect, 40, np.zeros(1000), noise=1e-3)
    assert steady.std() < 1.2e-3


def test_other_kernels_tell_nothing_of_the_device_and_keep_what_they_took() -> None:
    effect = np.array([0.0] * 20 + [0.8] * 5)
    level = steps(25 * 10, 12, 0.05, seed=2)
    gemm, turn, seconds = rounds(effect, 10, level, 0.0, 3)
    seconds[gemm >= 20] = 0.8  # they draw little power: the clocks that go up and down are not theirs
    kind = np.where(np.arange(25) < 20, 0, OTHER)
    found = slowdown(gemm, turn, seconds, typical(gemm, turn, seconds), kind)
    assert (found[gemm >= 20] == 1.0).all()
    left = (seconds - np.log(found))[gemm < 20].reshape(10, 20)
    left -= np.median(left, axis=1, keepdims=True)
    assert np.median(np.abs(left)) < 1e-3
    assert (
        np.median(np.abs(left))
        < np.median(np.abs(level.reshape(10, 25) - np.median(level.reshape(10, 25), axis=1)[:, None])) / 10
    )


@pytest.mark.parametrize(("gemms", "count"), [(1, 1), (1, 30), (2, 2), (2, 4), (8, 1)])
def test_of_one_gemm_or_of_too_few_visits_nothing_is_told(gemms: int, count: int) -> None:
    found, _ = told(np.zeros(gemms), count, steps(gemms * count, 3, 0.1, seed=0))
    assert (found == 1.0).all()


def test_who_left_is_no_neighbour_any_more() -> None:
    """Ten Gemms, of which eight leave after the fourth round."""
    effect = np.arange(10) * 0.01
    random = np.random.default_rng(4)
    gemm = np.concatenate([*(random.permutation(10) for _ in range(4)), *(random.permutation(2) for _ in range(12))])
    turn = np.array([i // 10 if i < 40 else 4 + (i - 40) // 2 for i in range(len(gemm))])
    level = np.where(np.arange(len(gemm)) < 50, 0.0, 0.1)  # amid a round of two
    seconds = effect[gemm] + level
    own = typical(gemm, turn, seconds)
    assert own - own[0] == pytest.approx(effect)
    found = slowdown(gemm, turn, seconds, own, np.zeros(10, dtype=np.int64))
    assert found[:40] == pytest.approx(1.0, abs=1e-9)
    left = (seconds - np.log(found) - effect[gemm])[40:].reshape(12, 2)
    assert left[:, 0] == pytest.approx(left[:, 1], abs=1e-4)


def test_where_rounds_differ_and_nothing_drifts_inside_them_nothing_is_told() -> None:
    """The device idles between the rounds of five, and runs otherwise in each."""
    for seed in range(20):
        level: Floats = np.repeat(np.random.default_rng(seed).normal(0.0, 0.02, 10), 5)
        found, _ = told(np.linspace(0.0, 0.04, 5), 10, level, noise=1e-3, seed=seed)
        assert (found == 1.0).mean() > 0.9


def test_a_part_that_does_not_follow_the_clocks_is_no_witness_for_one_that_does() -> None:
    """25 Candidates of two parts: what one multiplies takes as long as the clocks say, the other waits for memory."""
    effect, kind = np.repeat([0.0, -0.7], 25), np.repeat([0, 1], 25)
    random = np.random.default_rng(7)
    gemm = np.concatenate([random.permutation(50) for _ in range(10)])
    turn, level = np.repeat(np.arange(10), 50), steps(500, 25, 0.03, seed=8)
    seconds = effect[gemm] + np.where(kind[gemm] == 0, level, 0.0) + 1e-3 * random.standard_normal(500)
    found = np.log(slowdown(gemm, turn, seconds, typical(gemm, turn, seconds), kind))
    assert np.abs(found[kind[gemm] == 1]).max() < 2e-3
    left = np.array([np.ptp((seconds - found)[(turn == each) & (kind[gemm] == 0)]) for each in range(10)])
    assert np.median(left) < 0.02 < np.median([np.ptp(level[turn == each]) for each in range(10)])


def test_who_joined_is_not_told_from_the_others_by_what_the_device_did_before() -> None:
    """Twenty of sixty-four go on beside others, 10% slower all; nothing drifts inside a round."""
    family = up_family([128 + 8 * i for i in range(192)])
    bundle = as_bundle(family)
    sampler = Sampler(bundle, Timing(), ())
    for live, pace in ((range(64), 0.9), ((*range(20), *range(64, 192)), 1.0)):
        sampler.join(list(live), 4, searched=True)
        for _ in range(4):
            number, order = sampler.next_round()
            visits = [(place, bundle.gemms[i]) for place, i in enumerate(order)]
            sampler.record(
                [
                    Sample(
                        gemm_id=gemm.gemm_id,
                        round=number,
                        position=place,
                        calls=1,
                        lead_calls=0,
                        seconds=gemm.flops * 1e-12 * pace,
                    )
                    for place, gemm in visits
                ]
            )
    assert {sample.slowdown for sample in sampler.samples} == {1.0}
    assert sampler.comparison(family).effect == pytest.approx(0.0, abs=1e-12)


TEN = up_family(list(range(128, 128 + 10 * 8, 8)))


def sampled(
    family: Family, cost: Floats, count: int, every: int, size: float, seed: int, tie_pct: float = 0.5
) -> Sampler:
    """Rounds of a Family on a device whose clocks go in steps. cost: per FLOP, of each Candidate."""
    bundle = as_bundle(family)
    timing = Timing(goal="full", min_rounds=count, max_rounds=count, seed=seed, race_pct=1e6, tie_pct=tie_pct)
    sampler = Sampler(bundle, timing, range(len(bundle.gemms)))
    random = np.random.default_rng(seed)
    level = steps(count * len(bundle.gemms), every, size, seed)
    each = {c.parts[0].gemm.gemm_id: cost[i] * c.flops * 1e-12 for i, c in enumerate(family.candidates)}
    at = 0
    for _ in range(count):
        number, order = sampler.next_round()
        samples = []
        for place, i in enumerate(order):
            gemm_id = bundle.gemms[i].gemm_id
            taken = each[gemm_id] * math.exp(level[at] + 1e-3 * random.standard_normal())
            samples.append(Sample(gemm_id=gemm_id, round=number, position=place, calls=1, lead_calls=0, seconds=taken))
            at += 1
        sampler.record(samples)
    return sampler


def test_equal_candidates_are_not_told_apart_by_the_steps_of_the_clocks() -> None:
    """By their intervals: there is no tie that would hide a difference."""
    cost = np.ones(10)
    runs = [sampled(TEN, cost, 16, every, 0.03, seed, tie_pct=1e-9) for every in (7, 13) for seed in range(100)]
    groups = [sampler.comparison(TEN).groups for sampler in runs]
    assert sum(set(found) != {1} for found in groups) <= 10 + 6  # 5% of 200, and two standard errors


def test_equal_candidates_are_in_one_tie_group_amid_the_steps() -> None:
    runs = [sampled(TEN, np.ones(10), 12, every, 0.03, seed) for every in (7, 13) for seed in range(100)]
    groups = [sampler.comparison(TEN).groups for sampler in runs]
    assert sum(set(found) != {1} for found in groups) <= 10


def test_what_differs_is_told_apart_in_a_few_rounds_amid_the_steps() -> None:
    cost = np.array([1.0] + [1.01] * 9)
    runs = [sampled(TEN, cost, 14, 13, 0.06, seed) for seed in range(20)]
    alone = [comparison.groups.count(1) == 1 for comparison in (sampler.comparison(TEN) for sampler in runs)]
    assert sum(alone) >= 18
    found = [compared_as_timed(sampler).groups.count(1) == 1 for sampler in runs]
    assert sum(found) <= 5


def compared_as_timed(sampler: Sampler) -> Comparison:
    """The ten compared by what their visits took, whatever the device did meanwhile."""
    flops = {c.parts[0].gemm.gemm_id: (i, c.flops) for i, c in enumerate(TEN.candidates)}
    cost = np.full((sampler.rounds, len(flops)), np.nan)
    for sample in sampler.samples:
        place, work = flops[sample.gemm_id]
        cost[sample.round, place] = math.log(sample.seconds / work)
    return compare(cost, tie_pct=0.5, confidence=0.95, looks=1)


def test_the_samples_say_how_slow_the_device_was_and_what_they_took_is_kept() -> None:
    """The device alternates between two clocks, 10% apart, every 0.05 s."""
    device = ScriptedDevice()
    family = mlp_family([128 + 16 * i for i in range(10)])
    device.cost = lambda gemm: gemm.flops * 1e-9 * (1.1 if int(device.now / 0.05) % 2 else 1.0)
    timing = Timing(goal="full", min_rounds=20, max_rounds=20, soak_min_s=0, soak_max_s=0, race_pct=1e6)
    bundle: Bundle = as_bundle(family)
    result = measure_bundle(device, bundle, timing)
    flops = {gemm.gemm_id: gemm.flops for gemm in bundle.gemms}
    per_flop = np.array([sample.seconds / flops[sample.gemm_id] for sample in result.samples]) / 1e-9
    assert sorted(set(per_flop.round(6).tolist())) == [1.0, 1.1]  # as it was timed
    slow = np.array([sample.slowdown for sample in result.samples], dtype=float)
    assert len(set(slow.round(2).tolist())) > 1
    rounds_ = [sample.round for sample in result.samples]
    paced = [per_flop[[r == number for r in rounds_]] / slow[[r == number for r in rounds_]] for number in range(20)]
    assert np.mean([np.ptp(each) < 1e-3 for each in paced]) > 0.7  # but where a step has just been
