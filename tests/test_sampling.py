"""The rounds on a fake clock: interleaving recovers the true order under drift, measuring in turn does not."""

import math
import random
from collections import Counter

import numpy as np
import pytest

from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import Sample
from tasks.sampling import Sampler
from tasks.settings import Timing
from tests.builders import as_bundle, mlp_family, up_family


class FakeDevice:
    """A device whose clock wanders: each visit takes its Gemm's true cost, times a drift that time has made.

    The drift is a random walk with steps of a heavy tail, as a chip under a power cap shows: up to some 10%.
    """

    def __init__(self, seconds: dict[str, float], *, drift: float, noise: float, seed: int) -> None:
        self.now = 0.0
        self._true = seconds
        self._drift, self._noise = drift, noise
        self._level = 0.0
        self._random = random.Random(seed)

    def visit(self, gemm_id: str) -> float:
        self._level = 0.98 * self._level + self._random.gauss(0, self._drift)
        taken: float = self._true[gemm_id] * math.exp(self._level + self._random.gauss(0, self._noise))
        self.now += taken
        return taken


def run(sampler: Sampler, bundle: Bundle, device: FakeDevice) -> str:
    """Rounds until the sampler stops, as tasks.measure does it: the next is planned before the last is read."""
    start = device.now
    reason = sampler.stop_reason(0.0, 0.0)
    in_flight = None if reason else measured(sampler, bundle, device)
    while in_flight is not None:
        following = measured(sampler, bundle, device) if reason is None and sampler.may_plan else None
        sampler.record(in_flight)
        if reason is None:
            reason = sampler.stop_reason(device.now - start, sum(sample.seconds for sample in in_flight))
        in_flight = following
    return reason or "never"


def measured(sampler: Sampler, bundle: Bundle, device: FakeDevice) -> list[Sample]:
    """The samples of the next round."""
    number, order = sampler.next_round()
    ids = [bundle.gemms[i].gemm_id for i in order]
    return [
        Sample(gemm_id=gemm_id, round=number, position=position, calls=1, lead_calls=0, seconds=device.visit(gemm_id))
        for position, gemm_id in enumerate(ids)
    ]


def costs(family: Family, per_flop: list[float]) -> dict[str, float]:
    """Seconds of each Candidate's only Gemm from a relative cost per FLOP."""
    return {c.parts[0].gemm.gemm_id: cost * 1e-9 * c.flops for c, cost in zip(family.candidates, per_flop, strict=True)}


def tau(estimate: list[float], truth: list[float]) -> float:
    """Kendall's tau of two lists without ties."""
    n = len(truth)
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return float(sum(np.sign((estimate[i] - estimate[j]) * (truth[i] - truth[j])) for i, j in pairs)) / len(pairs)


FAMILY = up_family(list(range(128, 128 + 20 * 8, 8)))
TRUTH = [1.0 + 0.006 * ((7 * i) % 20) for i in range(20)]
"""Twenty Candidates 0.6% apart, in no order of d_ff."""


def interleaved(seed: int) -> list[float]:
    bundle, timing = (
        as_bundle(FAMILY),
        Timing(goal="full", seed=seed, max_rounds=30, min_rounds=30, max_seconds=1e9, race_pct=1e6),
    )
    sampler = Sampler(bundle, timing, range(len(bundle.gemms)))
    run(sampler, bundle, FakeDevice(costs(FAMILY, TRUTH), drift=0.01, noise=0.002, seed=seed))
    return [float(value) for value in sampler.comparison(FAMILY).effect]


def test_only_those_that_raced_are_known_to_be_behind() -> None:
    bundle = as_bundle(FAMILY)
    sampler = Sampler(bundle, Timing(goal="top", max_rounds=10), ())
    device = FakeDevice(costs(FAMILY, [1.0] * 20), drift=0.01, noise=0.002, seed=1)
    sampler.join(range(20), 4, searched=True)
    assert run(sampler, bundle, device) == "level"
    sampler.join(range(5, 20), 4, searched=True)  # the first five are left by one level, the next by the other
    assert run(sampler, bundle, device) == "level"
    assert not sampler.comparison(FAMILY).aside.any()
    sampler.join(range(10, 20))
    run(sampler, bundle, device)
    assert np.flatnonzero(sampler.comparison(FAMILY).aside).tolist() == [5, 6, 7, 8, 9]


def sequential(seed: int) -> list[float]:
    device = FakeDevice(costs(FAMILY, TRUTH), drift=0.01, noise=0.002, seed=seed)
    return [
        math.log(np.median([device.visit(c.parts[0].gemm.gemm_id) for _ in range(30)]) / c.flops)
        for c in FAMILY.candidates
    ]


def test_interleaving_recovers_the_true_order_under_drift_and_measuring_in_turn_does_not() -> None:
    good = [tau(interleaved(seed), TRUTH) for seed in range(5)]
    bad = [tau(sequential(seed), TRUTH) for seed in range(5)]
    assert min(good) >= 0.95
    assert max(bad) < 0.8


def test_every_round_visits_every_live_gemm_once_in_an_order_of_its_own() -> None:
    bundle = as_bundle(FAMILY)
    sampler = Sampler(bundle, Timing(goal="full", seed=3), [0, 2, 5, 7])
    orders = [sampler.next_round()[1] for _ in range(40)]
    assert all(sorted(order) == [0, 2, 5, 7] for order in orders)
    assert len(set(orders)) > 10
    firsts = Counter(order[0] for order in orders)
    assert min(firsts.values()) >= 3  # each leads now and then


def test_the_orders_are_the_seeds() -> None:
    bundle = as_bundle(FAMILY)

    def orders(seed: int) -> list[tuple[int, ...]]:
        sampler = Sampler(bundle, Timing(goal="full", seed=seed), range(20))
        return [sampler.next_round()[1] for _ in range(3)]

    assert orders(1) == orders(1)
    assert orders(1) != orders(2)


def test_clearly_slower_candidates_leave_after_the_least_rounds_and_not_before() -> None:
    family = up_family([128, 192, 256, 320])
    bundle, timing = as_bundle(family), Timing(goal="full", min_rounds=10, max_rounds=60, max_seconds=1e9, tie_pct=0.01)
    sampler = Sampler(bundle, timing, range(4))
    device = FakeDevice(costs(family, [1.0, 2.3, 1.05, 1.0]), drift=0.02, noise=0.003, seed=1)
    assert run(sampler, bundle, device) == "max_rounds"
    counts = Counter(sample.gemm_id for sample in sampler.samples)
    by_d_ff = {c.value: counts[c.parts[0].gemm.gemm_id] for c in family.candidates}
    assert by_d_ff == {128: 60, 192: 11, 256: 60, 320: 60}  # 5% behind is not out: race_pct is 10
    assert sampler.comparison(family).groups[1] == max(g or 0 for g in sampler.comparison(family).groups)


def test_those_that_stay_get_the_least_rounds_without_the_one_that_left() -> None:
    family = up_family([128, 192, 256])
    bundle = as_bundle(family)
    sampler = Sampler(bundle, Timing(goal="full", max_seconds=1e9), range(3))
    device = FakeDevice(costs(family, [1, 1.05, 2.5]), drift=0.002, noise=1e-4, seed=3)
    assert run(sampler, bundle, device) == "resolved"
    counts = Counter(sample.gemm_id for sample in sampler.samples)
    assert [counts[c.parts[0].gemm.gemm_id] for c in family.candidates] == [29, 29, 11]


def test_the_most_rounds_may_end_before_the_least_after_one_left() -> None:
    family = up_family([128, 192, 256])
    sampler = Sampler(as_bundle(family), Timing(goal="full", max_rounds=15, max_seconds=1e9), range(3))
    device = FakeDevice(costs(family, [1, 1.05, 2.5]), drift=0.002, noise=1e-4, seed=3)
    assert run(sampler, as_bundle(family), device) == "max_rounds"
    assert sampler.rounds == 15


def test_no_more_rounds_are_planned_than_may_be_measured() -> None:
    sampler = Sampler(as_bundle(FAMILY), Timing(goal="full", min_rounds=2, max_rounds=3), range(20), first_round=5)
    numbers = []
    while sampler.may_plan:
        numbers.append(sampler.next_round()[0])
    assert numbers == [5, 6, 7]


def test_a_gemm_stays_while_any_family_needs_it() -> None:
    mlp = mlp_family([128, 192])
    up = Family(
        role="mlp_gate_up",
        h=mlp.h,
        tp=mlp.tp,
        batch=mlp.batch,
        seq=mlp.seq,
        dtype=mlp.dtype,
        candidates=tuple(Candidate(value=c.value, parts=c.parts[:1]) for c in mlp.candidates),
    )
    bundle = Bundle(families=(mlp, up))
    seconds = {gemm.gemm_id: 1e-9 * gemm.flops for gemm in bundle.gemms}
    slow_down = mlp.candidates[1].parts[1].gemm.gemm_id
    seconds[slow_down] *= 30  # 192 is out of the mlp Family, but its gate_up is as good as 128's
    sampler = Sampler(
        bundle, Timing(goal="full", max_rounds=40, max_seconds=1e9, tie_pct=0.001), range(len(bundle.gemms))
    )
    run(sampler, bundle, FakeDevice(seconds, drift=0.01, noise=0.003, seed=2))
    counts = Counter(sample.gemm_id for sample in sampler.samples)
    assert counts[slow_down] == 11  # one round was in flight when it left
    assert counts[mlp.candidates[1].parts[0].gemm.gemm_id] == 40


def test_it_stops_when_the_order_is_resolved() -> None:
    family = up_family([128, 192, 256])
    bundle = as_bundle(family)
    sampler = Sampler(bundle, Timing(goal="full", max_seconds=1e9), range(3))
    assert (
        run(sampler, bundle, FakeDevice(costs(family, [1, 1.05, 1.08]), drift=0.002, noise=1e-4, seed=3)) == "resolved"
    )
    assert sampler.resolved
    assert sampler.rounds == Timing(goal="full").least_rounds + 1  # and the one in flight
    assert sampler.comparison(family).groups == [1, 2, 3]


def test_it_stops_at_the_time_cap_but_never_before_the_least_rounds() -> None:
    family = up_family([128, 192])
    bundle = as_bundle(family)
    device = FakeDevice(costs(family, [1.0, 1.008]), drift=0.02, noise=0.05, seed=4)
    sampler = Sampler(bundle, Timing(goal="full", max_seconds=1e-9), range(2))
    assert run(sampler, bundle, device) == "max_seconds"
    assert sampler.rounds == Timing(goal="full").least_rounds + 1
    assert not sampler.resolved


def test_what_a_search_has_left_races_for_longer() -> None:
    sampler = Sampler(as_bundle(FAMILY), Timing(), ())
    for searched, most_s in ((False, 1.0), (True, 2.5)):
        sampler.join([0, 1], searched=searched)
        for turn in range(4):
            number, order = sampler.next_round()
            sampler.record(
                [
                    Sample(
                        gemm_id=FAMILY.gemms[i].gemm_id,
                        round=number,
                        position=place,
                        calls=1,
                        lead_calls=1,
                        seconds=(1.0, 1.4, 0.8, 1.2)[(turn + 2 * i) % 4],
                    )
                    for place, i in enumerate(order)
                ]
            )
        assert sampler.stop_reason(10.0, 0.0) is None  # the least rounds were done by now
        assert sampler.stop_reason(10.0 + most_s - 0.01, 0.0) is None
        assert sampler.stop_reason(10.0 + most_s + 0.01, 0.0) == "max_seconds"
    assert Timing(max_seconds=0.3).search_seconds == 0.3


def test_nothing_alive_is_nothing_to_do() -> None:
    sampler = Sampler(as_bundle(FAMILY), Timing(goal="full"), [])
    assert sampler.stop_reason(0.0, 0.0) == "nothing"


def test_a_failed_part_takes_its_candidate_out_of_the_comparison_and_no_other() -> None:
    family = mlp_family([128, 192, 256])
    bundle = as_bundle(family)
    broken = family.candidates[1].parts[0].gemm
    sampler = Sampler(bundle, Timing(goal="full"), [i for i, gemm in enumerate(bundle.gemms) if gemm != broken])
    seconds = {gemm.gemm_id: 1e-9 * gemm.flops * (1.2 if gemm.n == 512 else 1) for gemm in bundle.gemms}
    run(sampler, bundle, FakeDevice(seconds, drift=0.02, noise=1e-3, seed=5))
    groups = sampler.comparison(family).groups
    assert groups[1] is None
    assert {groups[0], groups[2]} == {1, 2}


def test_the_cost_of_a_candidate_is_the_sum_of_its_parts_per_flop() -> None:
    def part(name: str, n: int, k: int) -> Part:
        return Part(name=name, gemm=Gemm(kind="mm", b=1, m=1, n=n, k=k, dtype="fp32"))

    candidates = (
        Candidate(value=1, parts=(part("x", 10, 10), part("y", 20, 10))),  # 200 + 400 FLOP
        Candidate(value=2, parts=(part("x", 30, 10),)),  # 600 FLOP
    )
    family = Family(role="mlp", h=1, tp=1, batch=1, seq=1, dtype="fp32", candidates=candidates)
    bundle = as_bundle(family)
    sampler = Sampler(bundle, Timing(goal="full"), range(3))
    for number in range(4):
        seconds = (1.0, 2.0, 4.0)  # 3 s for 600 FLOP against 4 s for 600 FLOP
        sampler.record(
            [
                Sample(gemm_id=g.gemm_id, round=number, position=i, calls=1, lead_calls=0, seconds=seconds[i])
                for i, g in enumerate(bundle.gemms)
            ]
        )
    assert sampler.comparison(family).difference(1, 0)[0] == pytest.approx(math.log(4 / 3))


def test_equal_candidates_end_in_one_group_for_all_the_looks() -> None:
    family = up_family(list(range(128, 128 + 12 * 64, 64)))
    bundle, separated, runs = as_bundle(family), 0, 120
    for seed in range(runs):
        sampler = Sampler(bundle, Timing(goal="full", seed=seed, max_rounds=60, max_seconds=1e9), range(12))
        run(sampler, bundle, FakeDevice(costs(family, [1.0] * 12), drift=0.02, noise=0.01, seed=seed))
        separated += max(g or 0 for g in sampler.comparison(family).groups) > 1
    assert separated <= 0.05 * runs


def sharing_family(count: int) -> Family:
    """Candidates of two parts, of which the second is the same Gemm for all."""

    def part(name: str, n: int) -> Part:
        return Part(name=name, gemm=Gemm(kind="mm", b=1, m=8, n=n, k=64, dtype="fp16", layout="nt"))

    candidates = tuple(Candidate(value=i, parts=(part("own", 128 + 8 * i), part("shared", 256))) for i in range(count))
    return Family(role="mlp", h=64, tp=1, batch=1, seq=8, dtype="fp16", candidates=candidates)


@pytest.mark.parametrize(("count", "goal"), [(2, "full"), (3, "top")])
def test_two_or_three_candidates_that_share_a_gemm_are_told_apart_where_they_differ_alone(
    count: int, goal: str
) -> None:
    family, runs, separated, wrong = sharing_family(count), 20, 0, 0
    bundle = as_bundle(family)
    shared = family.candidates[0].parts[1].gemm.gemm_id
    for slower in (1.0, 1.03):
        for seed in range(runs):
            seconds = {shared: 3e-4}
            for i, candidate in enumerate(family.candidates):
                whole = 3e-9 * candidate.flops * (slower if i == 0 else 1.0)
                seconds[candidate.parts[0].gemm.gemm_id] = whole - seconds[shared]
            timing = Timing(goal=goal, seed=seed, max_rounds=30, max_seconds=1e9, tie_pct=1e-6)
            sampler = Sampler(bundle, timing, range(len(bundle.gemms)))
            run(sampler, bundle, FakeDevice(seconds, drift=0.01, noise=0.003, seed=seed))
            comparison = sampler.comparison(family)
            separated += slower == 1.0 and max(group or 0 for group in comparison.groups) > 1
            wrong += slower > 1.0 and comparison.order[0] == 0
    assert separated <= 0.05 * runs
    assert wrong == 0
