"""The expansion in columns is the one Point by Point: Families, Bundles, skips and costs, on random spaces."""

import math
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.architecture import impossible
from orchestrator.call_time import call_seconds
from orchestrator.catalogue import load
from orchestrator.errors import InvalidValueError, SpaceError
from orchestrator.plan import plan
from orchestrator.roles import ROLES
from orchestrator.schema import AROUND, Config, Space
from orchestrator.space import expand_space, reasons
from tasks.calls import lead_calls, shared_calls
from tasks.settings import Timing
from tests.plain_expansion import distinct, hosts, plain

CONDITIONS = (
    "",
    "d_ff % (8 * tp) == 0",
    "seq > 1",
    "h > 48 or tp == 1",
    "d_ff / h > 2.5 and not batch == 4",
    "a % kv == 0 and head_dim in [12, 16, 24]",
    "1 < tp < 4",
    "h ** 2 > 4000",
    "tp > 1 and d_ff % (tp - 1) == 0",  # one by one, as tp - 1 may be 0
    "h ** 9 > 10 ** 16",  # one by one, as h ** 9 may not fit
    "0.1 * h + 1.5 * d_ff > 120",
)
RATIO = {"ratio": "8/3", "distance": 8, "step": 4}
SPAN = {"ratio": "8/3", "span": 0.25, "step": 8}


def some(*values: Any) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=2, unique=True)


@st.composite
def spaces(draw: st.DrawFn) -> Config:
    """Small spaces of all roles around all dimensions; some with sizes that no int64 takes."""
    around = draw(st.sampled_from(AROUND))
    first = draw(st.sampled_from([name for name, role in ROLES.items() if around in (*role.dimensions, "batch")]))
    large = draw(st.sampled_from([(), (), (), (2**31 - 1,)]))
    near = [RATIO] if large else [RATIO, SPAN]
    widths = st.sampled_from([*near, [24, 36, 64], {"values": [48, 64, 96], "baseline": 90}])
    space = Space(
        roles=[first, *draw(st.lists(st.sampled_from(list(ROLES)), max_size=2))],
        h=draw(some(48, 64, 96, *large)),
        tp=draw(some(1, 2, 3, 4)),
        batch=draw(some(1, 2, 4, *large)),
        seq=draw(some(1, 8, 16, *large)),
        dtype=draw(some("fp16", "fp8")),
        d_ff=draw(widths),
        around=around,
        passes=draw(some("fwd", "bwd")),
        a=draw(some(4, 6, 8)),
        kv=draw(st.none() | some(2, 4, 8)) if around != "kv" else [1, 2, 4],
        head_dim=draw(st.none() | st.just(12)),
        v=draw(some(500, 512)),
        experts=draw(some(4, 8)),
        topk=draw(some(1, 2, *large)),
        ep=draw(some(1, 2)),
        expert_d_ff=draw(st.none() | widths),
        where=draw(st.sampled_from(CONDITIONS)),
    )
    return Config(space=replace(space, roles=list(dict.fromkeys(space.roles))))


@given(spaces())
@settings(max_examples=80, deadline=None)
def test_columns_come_to_what_each_point_alone_comes_to(of: Config) -> None:
    expected = plain(of)
    try:
        found = expand_space(of)
    except SpaceError:
        assert not expected.families
        return
    assert list(found.families) == expected.families
    assert list(found.skips) == expected.skips
    assert (found.points, found.gemms) == (expected.points, len(distinct(expected.families)))
    members = [[found.families.index(each) for each in bundle.families] for bundle in found.bundles]
    assert members == hosts(expected.families)


@given(spaces())
@settings(max_examples=40, deadline=None)
def test_skips_are_counted_and_found_by_kind(of: Config) -> None:
    try:
        found = expand_space(of)
    except SpaceError:
        return
    counts: dict[str, int] = {}
    for skip in found.skips:
        counts[skip.kind] = counts.get(skip.kind, 0) + skip.points
    assert list(reasons(found.skips).items()) == sorted(counts.items(), key=lambda item: -item[1])
    for kind in counts:
        assert list(found.skips.of(kind)) == [skip for skip in found.skips if skip.kind == kind]
    assert list(found.skips.of("another")) == []


@given(spaces(), st.sampled_from([{}, {"l2": "flush"}, {"power": "burst"}, {"lead_calls": 3}, {"max_seconds": 0.01}]))
@settings(max_examples=60, deadline=None)
def test_a_plan_is_the_sum_over_bundles_and_their_gemms(of: Config, changes: dict[str, Any]) -> None:
    timing = Timing(**changes)
    of = replace(of, timing=timing, cluster=replace(of.cluster, gpu="h200"))
    try:
        found = expand_space(of)
    except SpaceError:
        return
    spec, shown = load()["h200"], plan(of, found)
    gemms = [gemm for bundle in found.bundles for gemm in bundle.gemms]
    assert shown.flops == sum(gemm.flops for gemm in gemms)
    assert shown.largest_gemm == max(gemms, key=lambda gemm: gemm.bytes)
    known = {gemm for gemm in gemms if impossible(gemm, spec) is None}
    assert shown.unsupported == sum(gemm not in known for gemm in gemms)
    assert shown.too_large == sum(gemm in known and gemm.bytes > spec.memory_gb * 1e9 for gemm in gemms)
    least = most = samples = 0.0
    for bundle in found.bundles:
        # a run leaves the others out
        fitting = [gemm for gemm in bundle.gemms if gemm in known and gemm.bytes <= spec.memory_gb * 1e9]
        if not fitting:
            continue
        seconds = {gemm: call_seconds(gemm, spec) for gemm in fitting}
        calls = shared_calls(seconds, timing)
        round_s = sum((calls[gemm] + lead_calls(calls[gemm], timing)) * each for gemm, each in seconds.items())
        ahead = 0.022 if timing.power == "burst" else 0.0005 if timing.l2 == "flush" else 0.0
        round_s += ahead * len(seconds)
        race = any(len(family.candidates) > 1 for family in bundle.families)
        fewest = 4 if race else 10
        rounds = fewest + int(timing.most_seconds / round_s) + (5 if race else 0)
        rounds = min(timing.max_rounds, rounds)
        prepare = 0.006 * len(seconds) + 3 * sum(seconds.values())
        least += prepare + fewest * round_s
        most += prepare + rounds * round_s
        samples += rounds * len(seconds)
    assert shown.estimate is not None
    assert shown.estimate.least_s == pytest.approx(least, rel=1e-9)
    assert shown.estimate.most_s == pytest.approx(most, rel=1e-9)
    assert shown.estimate.samples == samples


@given(st.lists(st.floats(1e-6, 1e-2), min_size=1, max_size=9, unique=True))
def test_calls_of_a_visit_by_hand(seconds: list[float]) -> None:
    timing, typical = Timing(), median(seconds)
    filled = {each: 500e-6 * min(4.0, max(1.0, 20e-6 / each)) for each in (*seconds, typical)}
    alone = {each: 1 if each * 1.5 >= filled[each] else min(1024, math.ceil(filled[each] / each)) for each in filled}
    expected = [alone[typical if typical / 2 <= each <= typical * 2 else each] for each in seconds]
    names: Any = dict.fromkeys(range(len(seconds)))
    assert list(shared_calls(dict(zip(names, seconds, strict=True)), timing).values()) == expected


def test_a_condition_that_one_point_cannot_meet_names_it() -> None:
    of = Config(
        space=Space(
            roles=["mlp_up"], h=[48, 64], tp=[1, 2], batch=1, seq=8, dtype=["fp16"], d_ff=[64], where="1 / (tp - 2) < 0"
        )
    )
    with pytest.raises(
        SpaceError, match=r"'1 / \(tp - 2\)' at column 1 divides by zero for h=48, tp=2, batch=1, seq=8"
    ):
        expand_space(of)


def test_a_refused_point_is_not_asked_whether_the_condition_holds() -> None:
    # tp=3 does not divide 64, and tp - 3 is 0 there alone
    of = Config(
        space=Space(
            roles=["mlp_up"], h=48, tp=[2, 3], batch=1, seq=8, dtype=["fp16"], d_ff=[64], where="1 / (tp - 3) < 0"
        )
    )
    assert [family.tp for family in expand_space(of).families] == [2]


def test_a_ratio_that_leaves_nothing_of_h_is_named() -> None:
    space = Space(roles=["mlp"], h=[48, 2], tp=1, batch=1, seq=8, dtype=["fp16"], d_ff={**RATIO, "ratio": "1/4"})
    with pytest.raises(InvalidValueError, match="ratio 1/4 of h=2 is less than 1"):
        expand_space(Config(space=space))
