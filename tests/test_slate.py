"""Choosing another dimension than d_ff: who competes, what follows the choice, and what is fixed."""

from typing import Any

import pytest

from orchestrator.config import compose
from orchestrator.errors import ConfigError
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, reasons
from tasks.family import Family


def expand(*words: str) -> Expansion:
    return expand_space(asked(*words))


def asked(*words: str) -> Config:
    return compose("cpu", ["space.batch=1", "space.seq=16", "space.tp=1", "space.h=256", *words])


def only(expansion: Expansion) -> Family:
    (family,) = expansion.families
    return family


def points(family: Family) -> list[dict[str, Any]]:
    return [family.dimensions(candidate) for candidate in family.candidates]


def test_heads_are_chosen_with_h_fixed_and_the_head_size_follows() -> None:
    family = only(expand("space.roles=attn", "space.a=4,8,16", "space.around=a"))
    assert (family.axis, family.h, family.family_id) == ("a", 256, "attn-h256-tp1-b1-s16-fp32-by-a")
    assert points(family) == [
        {"h": 256, "a": 4, "kv": 4, "head_dim": 64},
        {"h": 256, "a": 8, "kv": 8, "head_dim": 32},
        {"h": 256, "a": 16, "kv": 16, "head_dim": 16},
    ]
    assert [candidate.local_dim for candidate in family.candidates] == [64, 32, 16]


def test_a_head_size_of_its_own_does_not_follow() -> None:
    family = only(expand("space.roles=qkv", "space.a=4,8", "space.kv=2", "space.head_dim=48", "space.around=a"))
    assert family.family_id == "qkv-h256-kv2-d48-tp1-b1-s16-fp32-by-a"
    assert [part.gemm.n for c in family.candidates for part in c.parts] == [(4 + 4) * 48, (8 + 4) * 48]


def test_h_is_chosen_and_d_ff_follows_by_its_ratio() -> None:
    family = only(expand("space.roles=layer", "space.h=192,256,320", "space.a=4", "space.around=h"))
    assert (family.h, family.family_id) == (None, "layer-a4-tp1-b1-s16-fp32-by-h")
    assert points(family) == [
        {"h": h, "a": 4, "kv": 4, "d_ff": 8 * h // 3, "head_dim": h // 4} for h in (192, 256, 320)
    ]


def test_where_h_is_chosen_a_given_d_ff_stays() -> None:
    families = expand("space.roles=mlp", "space.h=128,256", "space.d_ff=512,1024", "space.around=h").families
    assert [family.family_id for family in families] == [
        "mlp-f512-tp1-b1-s16-fp32-by-h",
        "mlp-f1024-tp1-b1-s16-fp32-by-h",
    ]


def test_d_ff_that_follows_h_is_brought_down_to_what_tp_divides() -> None:
    # 8/3 · 256 = 682.67: 680 = 8 · 85
    family = only(expand("space.roles=layer", "space.a=8", "space.tp=8", "space.around=a"))
    assert points(family) == [{"h": 256, "d_ff": 680, "a": 8, "kv": 8, "head_dim": 32}]


def test_the_batch_is_chosen_in_any_role_and_what_it_aligns_is_the_tokens() -> None:
    words = ("space.roles=attn_out,mlp", "space.a=4", "space.d_ff=512", "space.tp=2", "space.around=batch")
    one, two = expand(*words, "space.batch={start: 1, stop: 3, step: 1, baseline: 2}").families
    assert (one.batch, one.family_id) == (None, "attn_out-h256-a4-tp2-s16-fp32-by-batch")
    assert two.family_id == "mlp-h256-f512-tp2-s16-fp32-by-batch"
    assert [part.gemm.m for candidate in one.candidates for part in candidate.parts] == [16, 32, 48]
    assert [(c.value, c.baseline, c.local_dim) for c in two.candidates] == [
        (1, False, 16),
        (2, True, 32),
        (3, False, 48),
    ]
    assert points(two)[2] == {"h": 256, "d_ff": 512, "batch": 3}
    held = only(expand(*words, "space.roles=mlp", "space.batch=1,2,3,4", "space.where=batch % 2 == 0"))
    assert [candidate.value for candidate in held.candidates] == [2, 4]


def test_the_vocabulary_is_chosen_and_values_of_one_padded_size_are_measured_once() -> None:
    expansion = expand("space.roles=logits", "space.v=1000,1024,1025", "space.around=v")
    assert [c.local_dim for c in only(expansion).candidates] == [1024, 1024, 1152]
    assert expansion.gemms == 2


def test_a_role_that_the_choice_does_not_touch_is_measured_at_each_of_its_points() -> None:
    families = expand("space.roles=qkv,mlp_up", "space.a=4,8", "space.h=128,256", "space.d_ff=512,640").families
    assert [family.family_id for family in families] == [
        "qkv-h128-a4-tp1-b1-s16-fp32",
        "qkv-h128-a8-tp1-b1-s16-fp32",
        "qkv-h256-a4-tp1-b1-s16-fp32",
        "qkv-h256-a8-tp1-b1-s16-fp32",
        "mlp_up-h128-tp1-b1-s16-fp32",
        "mlp_up-h256-tp1-b1-s16-fp32",
    ]
    assert [len(family.candidates) for family in families] == [1, 1, 1, 1, 2, 2]


def test_experts_have_a_d_ff_of_their_own() -> None:
    words = ("space.experts=4", "space.topk=2", "space.expert_d_ff=[64,96]", "space.d_ff=512")
    families = expand("space.roles=experts,mlp", *words).families
    assert [[c.value for c in family.candidates] for family in families] == [[64, 96], [512]]


def test_a_range_or_a_list_may_name_the_value_to_compare_with() -> None:
    for spec in ("{start: 64, stop: 128, step: 32, baseline: 100}", "{values: [64, 96, 128], baseline: 100}"):
        family = only(expand("space.roles=mlp", f"space.d_ff={spec}"))
        assert [c.value for c in family.candidates] == [64, 96, 100, 128]
        assert [c.value for c in family.candidates if c.baseline] == [100]


def test_a_span_gives_a_wide_choice_with_its_baseline() -> None:
    # 8/3·256 = 682.67, 35% of it to either side: 443.73 to 921.6, on the multiples of 8 from 448 to 920
    family = only(expand("space.roles=mlp", "space.d_ff={ratio: 8/3, span: 0.35, step: 8}"))
    assert [c.value for c in family.candidates] == sorted([*range(448, 921, 8), 682])
    assert [c.value for c in family.candidates if c.baseline] == [682]


def test_d_ff_follows_h_by_its_ratio_whatever_the_span() -> None:
    words = ("space.roles=layer", "space.h=192,256", "space.a=4", "space.around=h")
    wide = expand(*words, "space.d_ff={ratio: 8/3, span: 0.35, step: 8}")
    assert points(only(wide)) == points(only(expand(*words)))


def test_where_may_name_what_follows_the_choice() -> None:
    family = only(expand("space.roles=attn", "space.a=4,8,16", "space.around=a", "space.where=head_dim >= 32"))
    assert [c.value for c in family.candidates] == [4, 8]


def test_a_role_that_lacks_what_where_names_is_skipped_with_the_reason() -> None:
    expansion = expand("space.roles=mlp_up,qkv", "space.a=4", "space.d_ff=512", "space.where=kv == 4 or h > 1")
    assert [family.role for family in expansion.families] == ["qkv"]
    assert [skip.reason for skip in expansion.skips] == [
        "space.where (kv == 4 or h > 1) does not hold: mlp_up has no kv"
    ]


def test_heads_that_do_not_divide_h_are_skipped_with_the_reason() -> None:
    expansion = expand("space.roles=attn", "space.a=4,5", "space.around=a")
    assert [skip.reason for skip in expansion.skips] == ["a=5 does not divide h=256"]


def test_kinds_of_reasons_that_are_as_many_come_in_the_order_of_their_first_points() -> None:
    words = ("space.roles=qkv", "space.h=48", "space.tp=4", "space.a=6,5,8")
    assert list(reasons(expand(*words).skips).items()) == [("tp does not divide a", 1), ("a does not divide h", 1)]


def test_both_passes_are_paid_for_together() -> None:
    family = only(expand("space.roles=mlp_up", "space.d_ff=512", "space.pass=fwd,bwd"))
    assert family.family_id == "mlp_up-h256-tp1-b1-s16-fp32-fwd+bwd"
    assert [part.name for part in family.candidates[0].parts] == ["up", "up.dgrad", "up.wgrad"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["space.roles=qkv"], "space.a: role qkv cannot do without; give it, or a model=NAME that has it"),
        (["space.roles=logits"], "space.v: role logits cannot do without"),
        (["space.roles=experts"], "space.topk: role experts cannot do without"),
        (["space.around=a"], "space.around: none of the roles has a; those that do: qkv, attn_score"),
        (["space.around=q"], "unknown dimension 'q'; there are: d_ff, h, a, kv, v, experts, batch"),
        (["space.pass=back"], "unknown pass 'back'"),
        (["space.pass=[]"], "space.pass: [] is no list of names"),
        (["space.d_ff={values: []}"], "an empty list"),
        (["space.d_ff={values: [8], baseline: 0}"], "baseline: 0 is too small"),
        (["space.d_ff={values: [8], step: 2}"], "unknown part 'step'; there are: values, baseline"),
        (["space.d_ff.span=0.35"], "space.d_ff: both a distance and a span; give {ratio, distance, step} or"),
        (["space.d_ff={ratio: 8/3, span: 1/0, step: 8}"], "space.d_ff: span: '1/0' divides by zero"),
        (
            ["space.h=2147483647", "space.d_ff={ratio: 8/3, span: 0.9, step: 1}"],
            "points; at most 10000000 are planned at once",
        ),
        (
            ["space.h=600000", "space.d_ff={ratio: 8/3, span: 0.9, step: 1}"],
            "space.d_ff: 2880001 values; at most 1000000 fit on one axis: use a larger step",
        ),
        (["space.roles=qkv", "space.a=4", "space.around=kv"], "space.kv has no values to choose from"),
        (
            ["space.around=h", "space.h={values: [8], baseline: 1}", "space.d_ff={ratio: 0.5, distance: 4, step: 4}"],
            "space.d_ff: ratio 1/2 of h=1 is less than 1",
        ),
        (["model=llama-3-9b"], "llama-3-8b"),
        (["model=llama-3-8b", "space.h=x"], "argument 'space.h=x': space.h: 'x' is not a whole number"),
    ],
)
def test_a_wrong_choice_is_explained(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        asked(*words)
    assert message in str(raised.value)
