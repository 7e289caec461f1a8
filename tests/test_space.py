"""Expansion: counts by hand, baselines, skips with reasons, and Families that share their Gemms."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.bundles import bundle
from orchestrator.errors import SpaceError
from orchestrator.schema import Cluster, Config, Rank, Run, Space
from orchestrator.space import Expansion, Skip, expand_space, plan_hash, reasons
from tasks.family import Family
from tasks.settings import Timing

SEED: dict[str, Any] = {"ratio": "8/3", "distance": 100, "step": 4}
"""The seed's search: int(8/3 · h) and its neighbours from -100 to +100 in steps of 4."""


def config(timing: Timing | None = None, **space: Any) -> Config:
    small = {"roles": ["seed_bmm"], "h": 4096, "tp": 1, "batch": 4, "seq": 2048, "dtype": ["fp16"], "d_ff": SEED}
    return Config(space=Space(**{**small, **space}), timing=timing or Timing(), conf_name="mine")


def only(expansion: Expansion) -> Family:
    (family,) = expansion.families
    return family


def d_ffs(family: Family) -> list[int]:
    return [candidate.value for candidate in family.candidates]


def baselines(family: Family) -> list[int]:
    return [candidate.value for candidate in family.candidates if candidate.baseline]


def ids(expansion: Expansion) -> list[list[str]]:
    return [[family.family_id for family in each.families] for each in expansion.bundles]


def test_the_seeds_space_with_its_upper_end_included() -> None:
    # int(8/3·4096) = 10922; 10922 ± 100 rounded down to multiples of 4: 10820, 10824 … 11020; and 10922 itself
    expansion = expand_space(config())
    assert d_ffs(only(expansion)) == sorted([*range(10820, 11021, 4), 10922])
    assert baselines(only(expansion)) == [10922]
    assert (expansion.points, expansion.gemms, len(expansion.bundles), len(expansion.skips)) == (52, 52, 1, 0)


def test_the_seeds_protocol_leaves_its_upper_end_out() -> None:
    expansion = expand_space(config(Timing(protocol="seed")))
    assert d_ffs(only(expansion)) == sorted([*range(10820, 11017, 4), 10922])
    assert (expansion.points, expansion.gemms) == (51, 51)


def test_the_protocol_interleaved_rounds_down_to_the_step_and_the_seeds_to_four() -> None:
    # 10922 - 16, -8, 0, +8, +16 = 10906 … 10938
    near = {"ratio": "8/3", "distance": 16, "step": 8}
    assert d_ffs(only(expand_space(config(d_ff=near)))) == [10904, 10912, 10920, 10922, 10928, 10936]
    seeds = expand_space(config(Timing(protocol="seed"), d_ff=near))
    assert d_ffs(only(seeds)) == [10904, 10912, 10920, 10922, 10928]


@pytest.mark.parametrize(
    ("tp", "count", "baseline"),
    [
        (1, 52, 10922),
        (2, 52, 10922),  # all are even
        (4, 51, 10920),  # 10922 is no multiple of 4; 10920 is the next below
        (8, 25, 10920),  # 10824 … 11016 in steps of 8
        (16, 12, 10912),  # 10832 … 11008 in steps of 16
        (3, 17, 10920),  # multiples of 12 from 10824 to 11016
    ],
)
def test_what_tp_does_not_divide_is_skipped_and_the_baseline_moves_down(tp: int, count: int, baseline: int) -> None:
    expansion = expand_space(config(tp=tp))
    family = only(expansion)
    assert (len(family.candidates), baselines(family)) == (count, [baseline])
    assert (expansion.points, len(expansion.skips)) == (52, 52 - count)
    assert all(d_ff % tp == 0 for d_ff in d_ffs(family))


def test_a_skip_says_why() -> None:
    (skip,) = expand_space(config(tp=4)).skips
    assert skip == Skip(
        role="seed_bmm",
        h=4096,
        tp=4,
        batch=4,
        seq=None,
        dtype="fp16",
        value=10922,
        points=1,
        kind="tp does not divide d_ff",
        reason="tp=4 does not divide d_ff=10922",
    )


def test_the_default_space_by_hand() -> None:
    # h=4096: 52 + 52 + 51 + 25; h=8192 (21845 is odd; 21744 … 21944, 51 of them, 26 multiples of 8): 52 + 51 + 51 + 26
    expansion = expand_space(config(roles=["seed_bmm", "mlp"], h=[4096, 8192], tp=[1, 2, 4, 8]))
    sizes = [len(family.candidates) for family in expansion.families]
    assert sizes == [52, 52, 51, 25, 52, 51, 51, 26] * 2
    assert expansion.points == 2 * 2 * 4 * 52
    assert reasons(expansion.skips) == {"tp does not divide d_ff": 832 - sum(sizes)}
    # seed_bmm: one Gemm a Candidate. mlp: two. At another tp or h none is the same, so all are distinct.
    assert expansion.gemms == sum(sizes[:8]) + 2 * sum(sizes[8:])


def test_a_role_without_a_sequence_is_not_multiplied_by_it() -> None:
    expansion = expand_space(config(roles=["seed_bmm", "mlp_up"], d_ff=[64], seq=[16, 32, 48]))
    assert [(family.role, family.seq) for family in expansion.families] == [
        ("seed_bmm", None),
        ("mlp_up", 16),
        ("mlp_up", 32),
        ("mlp_up", 48),
    ]
    assert expansion.points == 4


def test_axes_and_dtypes_multiply() -> None:
    expansion = expand_space(
        config(
            roles=["mlp_down"],
            h={"start": 64, "stop": 192, "step": 64},
            tp=[1, 2],
            batch=[1, 3],
            seq=[8, 24],
            dtype=["fp16", "bf16"],
            d_ff=[128, 256, 384],
        )
    )
    assert expansion.points == 3 * 2 * 2 * 2 * 2 * 3
    assert len(expansion.families) == 48
    assert len({family.family_id for family in expansion.families}) == 48


def test_a_repeated_role_or_value_counts_once() -> None:
    repeated = config(roles=["mlp_up", "mlp_up"], h=[64, 64], tp=[1, 1], d_ff=[32, 32], dtype=["fp16", "fp16"])
    assert expand_space(repeated) == expand_space(config(roles=["mlp_up"], h=64, tp=1, d_ff=32))


def test_a_list_or_a_range_has_no_baseline() -> None:
    for chosen in ([10944, 11008], {"start": 10944, "stop": 11008, "step": 64}):
        family = only(expand_space(config(d_ff=chosen)))
        assert (d_ffs(family), baselines(family)) == ([10944, 11008], [])


def test_where_keeps_the_exact_baseline() -> None:
    # multiples of 64 between 10820 and 11020: 170·64, 171·64, 172·64
    expansion = expand_space(config(where="d_ff % 64 == 0"))
    assert d_ffs(only(expansion)) == [10880, 10922, 10944, 11008]
    assert baselines(only(expansion)) == [10922]
    assert reasons(expansion.skips) == {"space.where": 48}
    assert expansion.skips[0].reason == "space.where (d_ff % 64 == 0) does not hold"


def test_where_leaves_the_baselines_stand_in() -> None:
    # 10922 goes by tp; 10920, the next below, stands for it and is not a multiple of 64
    expansion = expand_space(config(tp=4, where="d_ff % (16 * tp) == 0"))
    assert (d_ffs(only(expansion)), baselines(only(expansion))) == ([10880, 10920, 10944, 11008], [10920])
    assert reasons(expansion.skips) == {"space.where": 47, "tp does not divide d_ff": 1}


def test_a_family_with_nothing_at_or_below_the_baseline_has_none() -> None:
    family = only(expand_space(config(tp=127)))  # 10922 = 127 * 86: of the multiples of 127, only it is near
    assert (d_ffs(family), baselines(family)) == ([10922], [10922])
    above = only(expand_space(config(tp=91, d_ff={"ratio": "8/3", "distance": 4, "step": 2})))
    assert d_ffs(above) == [10920]


def test_where_may_take_a_whole_family_and_leave_the_others() -> None:
    expansion = expand_space(config(tp=[1, 2, 4], where="tp == 2"))
    assert [family.tp for family in expansion.families] == [2]
    # A baseline alone has nothing to compete with.
    assert {skip.tp for skip in expansion.skips} == {1, 4}


def test_where_that_empties_a_family_skips_its_baseline_too() -> None:
    expansion = expand_space(config(tp=[1, 2], where="tp == 2"))
    assert 10922 in [skip.value for skip in expansion.skips]
    assert len(expansion.skips) == 52


def test_a_condition_on_seq_leaves_out_roles_without_one() -> None:
    expansion = expand_space(config(roles=["seed_bmm", "mlp_up"], d_ff=[64], seq=[16, 32], where="seq < 32"))
    assert [(family.role, family.seq) for family in expansion.families] == [("mlp_up", 16)]


def test_the_seeds_protocol_skips_what_the_seed_did_not_time() -> None:
    expansion = expand_space(
        config(Timing(protocol="seed"), roles=["seed_bmm", "mlp"], dtype=["fp16", "bf16"], seq=[16, 32])
    )
    assert [(family.role, family.dtype) for family in expansion.families] == [("seed_bmm", "fp16")]
    assert [(skip.role, skip.dtype, skip.seq, skip.value) for skip in expansion.skips] == [
        ("seed_bmm", "bf16", None, None),
        ("mlp", "fp16", 16, None),
        ("mlp", "fp16", 32, None),
        ("mlp", "bf16", 16, None),
        ("mlp", "bf16", 32, None),
    ]
    assert "fp16 only, not mlp in bf16" in expansion.skips[-1].reason


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        ({"tp": 7, "d_ff": [64, 128]}, ["of 2 points", "2 x tp does not divide d_ff", "tp=7 does not divide d_ff=64"]),
        ({"where": "h > 5000", "d_ff": [64]}, ["1 x space.where", "seed_bmm h=4096 tp=1", "(h > 5000) does not hold"]),
        ({"timing": Timing(protocol="seed"), "roles": ["mlp"]}, ["protocol seed times seed_bmm in fp16 only"]),
        ({"where": "tp == 3", "tp": [1, 8]}, ["of 104 points", "space.where", "tp does not divide d_ff"]),
    ],
)
def test_an_empty_space_says_why(changes: dict[str, Any], fragments: list[str]) -> None:
    with pytest.raises(SpaceError) as caught:
        expand_space(config(**changes))
    text = str(caught.value)
    assert text.startswith("conf=mine: nothing is left to measure")
    assert [fragment for fragment in fragments if fragment not in text] == []
    assert caught.value.exit_code == 2


def test_families_with_identical_gemms_are_measured_once() -> None:
    # tokens: 2·2048 = 4096; 2·4096 = 4·2048 = 8192; 4·4096 = 16384
    expansion = expand_space(config(roles=["mlp_up"], batch=[2, 4], seq=[2048, 4096], d_ff=[64, 128]))
    assert ids(expansion) == [
        ["mlp_up-h4096-tp1-b2-s2048-fp16"],
        ["mlp_up-h4096-tp1-b2-s4096-fp16", "mlp_up-h4096-tp1-b4-s2048-fp16"],
        ["mlp_up-h4096-tp1-b4-s4096-fp16"],
    ]
    assert (expansion.points, expansion.gemms) == (8, 6)


def test_gate_and_up_on_two_ranks_are_up_on_one() -> None:
    # widths: up 128 and 64; gate_up 256 and 128
    expansion = expand_space(config(roles=["mlp_up", "mlp_gate_up"], tp=[1, 2], d_ff=[128], seq=1))
    assert ids(expansion)[0] == ["mlp_up-h4096-tp1-b4-s1-fp16", "mlp_gate_up-h4096-tp2-b4-s1-fp16"]
    assert (len(expansion.bundles), expansion.gemms) == (3, 3)


@pytest.mark.parametrize("roles", [["mlp", "mlp_gate_up", "mlp_down"], ["mlp_down", "mlp_gate_up", "mlp"]])
def test_the_parts_of_mlp_are_measured_with_it(roles: list[str]) -> None:
    expansion = expand_space(config(roles=roles, d_ff=[64, 128, 192]))
    (bundle,) = expansion.bundles
    assert bundle.families[0].role == "mlp"
    assert {family.role for family in bundle.families} == set(roles)
    assert (len(bundle.gemms), expansion.gemms) == (6, 6)
    assert bundle.flops == 6 * 4 * 2048 * 4096 * (64 + 128 + 192)


def test_families_that_only_overlap_stay_apart() -> None:
    # widths 128, 256 and 64, 128: the shared one is timed in the rounds of both
    expansion = expand_space(config(roles=["mlp_up"], tp=[1, 2], d_ff=[128, 256]))
    assert (len(expansion.bundles), expansion.gemms) == (2, 3)
    assert [len(each.gemms) for each in expansion.bundles] == [2, 2]


def families_of(*chosen: dict[str, Any]) -> list[Family]:
    return [family for each in chosen for family in expand_space(config(**each)).families]


def test_a_subset_of_d_ff_joins_the_larger_family_wherever_it_stands() -> None:
    part, whole = families_of({"d_ff": [64]}, {"d_ff": [64, 128]})
    assert [each.families for each in bundle([part, whole])] == [(whole, part)]
    assert [each.families for each in bundle([whole, part])] == [(whole, part)]


def test_the_hash_is_the_same_for_the_same_plan() -> None:
    one, two = config(tp=[1, 2]), config(tp=[1, 2])
    hashed = plan_hash(one, expand_space(one))
    assert hashed == plan_hash(two, expand_space(two))
    assert len(hashed) == 16
    assert int(hashed, 16) >= 0


def test_the_hash_knows_neither_where_it_runs_nor_what_is_printed() -> None:
    plain = config()
    for other in (
        replace(plain, run=Run(dir="elsewhere", name="x")),
        replace(plain, cluster=Cluster(gpu="h100")),
        replace(plain, rank=Rank(top=9)),
        replace(plain, conf_name="other", overrides=("space.h=4096",)),
        config(h=[4096]),
        config(where="d_ff > 0"),
    ):
        assert plan_hash(other, expand_space(other)) == plan_hash(plain, expand_space(plain))


def test_the_hash_changes_with_what_is_measured_and_how() -> None:
    changed = [
        config(),
        config(h=4097),
        config(tp=2),
        config(batch=2),
        config(dtype=["bf16"]),
        config(roles=["mlp_up"]),
        config(roles=["mlp_up"], seq=1024),
        config(where="d_ff > 10900"),
        config(d_ff=list(range(10820, 11021, 4))),
        config(d_ff=sorted([*range(10820, 11021, 4), 10922])),  # the same values, none of them the baseline
        config(Timing(l2="hot")),
        config(Timing(power="burst")),
        config(Timing(max_rounds=11)),
        config(Timing(seed=1)),
        config(Timing(protocol="seed")),
        config(Timing(protocol="sequential")),
        config(Timing(protocol="sequential", warmup_s=0.0)),
    ]
    assert len({plan_hash(each, expand_space(each)) for each in changed}) == len(changed)


def test_the_hash_does_not_change_with_a_setting_that_has_no_part_in_it() -> None:
    for protocol in ("interleaved", "seed"):
        plain, other = (config(Timing(protocol=protocol, warmup_s=seconds)) for seconds in (30.0, 0.0))
        assert plan_hash(other, expand_space(other)) == plan_hash(plain, expand_space(plain))


SHUFFLED: tuple[dict[str, Any], ...] = (
    {"roles": ["mlp", "seed_bmm", "mlp_up"], "h": [64, 128], "tp": [1, 2, 4], "batch": [1, 2], "seq": [8, 16]},
    {"roles": ["mlp_up", "mlp", "seed_bmm"], "h": [128, 64], "tp": [4, 1, 2], "batch": [2, 1], "seq": [16, 8]},
)


def test_the_order_of_the_axes_changes_nothing_that_is_measured() -> None:
    one, two = (expand_space(config(**axes, d_ff={"ratio": "8/3", "distance": 8, "step": 4})) for axes in SHUFFLED)
    assert set(one.families) == set(two.families)
    assert (one.points, one.gemms, set(one.skips)) == (two.points, two.gemms, set(two.skips))
    assert {frozenset(each.gemms) for each in one.bundles} == {frozenset(each.gemms) for each in two.bundles}


def test_the_order_of_the_axes_does_not_change_the_hash() -> None:
    one, two = (config(**axes) for axes in SHUFFLED)
    assert plan_hash(one, expand_space(one)) == plan_hash(two, expand_space(two))
