"""Shapes under a budget of parameters: all of the grid that have as many, and no others."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import budget_grid, budget_search, cli
from orchestrator.budget_grid import grid
from orchestrator.config import compose, recompose, to_dict
from orchestrator.errors import SpaceError
from orchestrator.model_counts import parameters
from orchestrator.models import load_model
from orchestrator.plan import plan
from orchestrator.roles import ROLES
from orchestrator.schema import Config, Space
from orchestrator.shape import Shape
from orchestrator.shape_code import code
from orchestrator.space import Expansion, expand_space
from tasks.family import Candidate, Family

TINY = Space(
    roles=["layer"],
    h={"start": 32, "stop": 96, "step": 16},
    tp=[1],
    batch=1,
    seq=8,
    dtype=["fp16"],
    d_ff={"start": 32, "stop": 256, "step": 8},
    head_dim=[8, 16],
    v=100,
    layers=2,
    params_budget="100000±5%",
)


def counted(h: int, d_ff: int, a: int, kv: int, head_dim: int, layers: int, v: int, kind: str, other: Any) -> int:
    """The parameters of a decoder, written out weight by weight."""
    total = v * h if other["tied"] else 2 * v * h
    total += other["positions"] * h
    norm = 2 * h if other["norm"] == "layer" else h
    total += norm  # the last one
    for _ in range(layers):
        total += h * a * head_dim + 2 * h * kv * head_dim + a * head_dim * h
        total += (3 if kind == "layer" else 2) * h * d_ff
        total += other["norms"] * norm
        if other["qkv_bias"]:
            total += a * head_dim + 2 * kv * head_dim
        if other["qk_norm"]:
            total += 2 * head_dim
        if other["linear_bias"]:
            total += h + (2 if kind == "layer" else 1) * d_ff + h
    return int(total + other["other_parameters"])


PLAIN = {
    "tied": False,
    "positions": 0,
    "norm": "rms",
    "norms": 2,
    "linear_bias": False,
    "qkv_bias": False,
    "qk_norm": False,
    "other_parameters": 0,
}


@st.composite
def spaces(draw: st.DrawFn) -> Space:
    """Small grids, with a target that is near what some shape of them has."""
    heads: dict[str, Any] = draw(
        st.sampled_from([{"head_dim": [8, 16]}, {"head_dim": 12}, {"a": [2, 4, 6]}, {"a": [2, 4], "head_dim": [8, 24]}])
    )
    d_ff = draw(
        st.sampled_from(
            [
                {"start": 32, "stop": 160, "step": 8},
                [40, 64, 96],
                {"ratio": "8/3", "span": 0.5, "step": 8},
                {"ratio": "8/3", "distance": 32, "step": 4},
            ]
        )
    )
    other = draw(
        st.fixed_dictionaries(
            {
                **{name: st.booleans() for name in ("tied", "linear_bias", "qkv_bias", "qk_norm")},
                "positions": st.sampled_from([0, 50]),
                "norm": st.sampled_from(["rms", "layer"]),
                "norms": st.sampled_from([2, 4]),
                "other_parameters": st.sampled_from([0, 777, -100]),
            }
        )
    )
    return replace(
        TINY,
        roles=draw(st.sampled_from([["layer"], ["layer_gelu"]])),
        h=draw(st.sampled_from([{"start": 32, "stop": 96, "step": 16}, [48, 72, 40], {"values": [48, 96]}])),
        d_ff=d_ff,
        **{"head_dim": None, **heads},
        kv=draw(st.sampled_from([None, 2, [1, 2]])),
        layers=draw(st.sampled_from([2, [2, 3]])),
        tp=draw(st.sampled_from([[1], [1, 2, 4]])),
        other_weights=draw(st.sampled_from([None, other])),
        params_budget=f"{draw(st.integers(60_000, 160_000))}±{draw(st.sampled_from(['0.5', '4', '20']))}%",
    )


def values(axis: Any) -> list[int]:
    if isinstance(axis, dict):
        return list(axis["values"]) if "values" in axis else list(range(axis["start"], axis["stop"] + 1, axis["step"]))
    return axis if isinstance(axis, list) else [axis]


def widths(space: Space, h: int) -> list[int]:
    """Those of d_ff by the words of docs/configuration.md, without ratio·h where it is no multiple of the step."""
    if "ratio" not in space.d_ff:
        return values(space.d_ff)
    own, step = 8 * h // 3, space.d_ff["step"]
    if "span" in space.d_ff:  # half of it to either side: 4h/3 to 4h
        return [width for width in range(step, 5 * h, step) if 4 * h <= 3 * width <= 12 * h]
    near = {(own + d) // step * step for d in range(-space.d_ff["distance"], space.d_ff["distance"] + 1, step)}
    return sorted(near | ({own} if own % step == 0 else set()))


def brute(space: Space, kv: int | None, layers: int, own_head: int | None) -> dict[tuple[int, int, int], int]:
    """Every shape of the grid whose parameters lie in the budget, with them."""
    target, _, percent = str(space.params_budget).rstrip("%").partition("±")
    low, high = (int(target) * (1 + sign * float(percent) / 100) for sign in (-1, 1))
    found = {}
    for h in values(space.h):
        sizes = [(a, own_head or h // a) for a in values(space.a) if own_head or h % a == 0] if space.a else []
        sizes += [(h // d, d) for d in values(space.head_dim) if h % d == 0] if not space.a else []
        for (a, head_dim), d_ff in product(sizes, widths(space, h)):
            total = counted(h, d_ff, a, kv or a, head_dim, layers, 100, space.roles[0], space.other_weights or PLAIN)
            if low - 1e-6 <= total <= high + 1e-6:
                found[h, d_ff, a] = total
    return found


def fixed(family: Family, name: str) -> int | None:
    return dict(family.fixed).get(name)


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_all_shapes_of_the_grid_that_meet_the_budget_compete_and_no_others(space: Space) -> None:
    combinations = list(
        product(
            values(space.layers),
            values(space.kv),
            values(space.head_dim) if space.a and space.head_dim else [None],
        )
    )
    expected = {each: brute(space, each[1], each[0], each[2]) for each in combinations}
    lawful = {
        (tp, *each): {shape for shape in shapes if all_divides(shape, tp, each[1])}
        for tp in space.tp
        for each, shapes in expected.items()
    }
    if not all(expected.values()) or not any(lawful.values()):
        with pytest.raises(SpaceError):
            expand_space(Config(space=space))
        return
    found = expand_space(Config(space=space))
    assert found.points == len(space.tp) * sum(map(len, expected.values()))
    measured = {
        (family.tp, fixed(family, "layers"), fixed(family, "kv"), fixed(family, "head_dim")): family
        for family in found.families
    }
    assert {key: {shape_of(family, each) for each in family.candidates} for key, family in measured.items()} == {
        key: shapes for key, shapes in lawful.items() if shapes
    }
    for key, family in measured.items():
        for candidate in family.candidates:
            h, d_ff, a = shape_of(family, candidate)
            known = family.dimensions(candidate)
            assert candidate.value == code(h, d_ff, a)
            assert candidate.params == expected[key[1:]][h, d_ff, a]  # type: ignore[index]
            assert candidate.local_dim == gcd(h, d_ff // family.tp, known["head_dim"])
            whole = Shape(
                tp=family.tp, batch=1, seq=8, dtype="fp16", h=h, d_ff=d_ff, a=a, kv=key[2], head_dim=known["head_dim"]
            )
            assert candidate.parts == ROLES[family.role].parts(whole)


def all_divides(shape: tuple[int, int, int], tp: int, kv: int | None) -> bool:
    _, d_ff, a = shape
    shared = kv is None or kv == a or kv % tp == 0 or tp % kv == 0
    return a % tp == 0 and d_ff % tp == 0 and a % (kv or a) == 0 and shared


def shape_of(family: Family, candidate: Candidate) -> tuple[int, int, int]:
    known = family.dimensions(candidate)
    return known["h"], known["d_ff"], known["a"]


def expanded(*words: str) -> tuple[Config, Expansion]:
    config = compose("h200", words)
    return config, expand_space(config)


def test_a_model_is_counted_as_it_is_published_and_its_own_shape_is_the_baseline() -> None:
    for name in ("llama-2-7b", "llama-3-8b", "qwen2.5-7b", "pythia-12b", "gpt-3-2.7b"):
        model = load_model(name)
        total = parameters(model).total
        _, found = expanded(f"model={name}", f"space.params_budget={total}±1%", "space.tp=1", "space.batch=1")
        (family,) = found.families
        (own,) = (each for each in family.candidates if each.baseline)
        assert shape_of(family, own) == (model.h, model.d_ff, model.a)
        assert own.params == total
        assert family.dimensions(own)["kv"] == model.kv
        assert family.dimensions(own)["layers"] == model.layers
        assert len(family.candidates) > 20


def test_a_baseline_outside_the_budget_is_none_and_the_plan_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "model=llama-2-7b", "space.params_budget=7e9±2%", "space.tp=8", "conf=h200"]
    assert cli.main(words) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "no baseline: h/d_ff/a 4096/11008/32 has 6,738,415,616 parameters" in text
    assert "shapes h 3840…5120, d_ff 6912…13568, a 16…80" in text
    assert "layer-l32-v32000-tp8-b4-s2048-fp16-by-shape 103" in text
    assert "GPU-seconds" in text
    _, found = expanded(*words[1:4])
    (family,) = found.families
    totals = [each.params or 0 for each in family.candidates]
    assert 6_860_000_000 <= min(totals) <= max(totals) <= 7_140_000_000
    assert not any(each.baseline for each in family.candidates)


def test_where_and_tp_take_shapes_away_but_not_the_baseline() -> None:
    words = ("model=llama-2-7b", "space.params_budget=6.74B±2%", "space.tp=8")
    _, every = expanded(*words)
    _, some = expanded(*words, "space.where=d_ff % (64*tp) == 0 and head_dim == 64 and layers == 32")
    (family,) = some.families
    kept = {each.value for each in family.candidates if not each.baseline}
    assert kept == {
        each.value
        for each in every.families[0].candidates
        if (known := every.families[0].dimensions(each))["d_ff"] % 512 == 0 and known["head_dim"] == 64
    }
    assert [family.dimensions(each)["head_dim"] for each in family.candidates if each.baseline] == [128]
    reasons = {skip.reason for skip in every.skips}
    assert "tp=8 does not divide a=36" in reasons


def test_a_stored_configuration_needs_no_model_file(tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    path.write_text("h: 96\nlayers: 2\na: 6\nd_ff: 256\nv: 512\ntied: true\nsources: [a test]\n")
    words = (f"model={path}", "space.params_budget=300K±10%", "space.tp=1", "space.head_dim=16,32")
    config, found = expanded(*words)
    path.unlink()
    again = expand_space(recompose("h200", to_dict(config)))
    assert list(again.families) == list(found.families)


def test_a_large_grid_is_counted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = expand_space(Config(space=TINY))
    monkeypatch.setattr(budget_grid, "AT_ONCE", 7)
    assert len(list(grid(TINY))) > 1
    assert list(expand_space(Config(space=TINY)).families) == list(whole.families)


def test_more_points_than_can_be_planned_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_search, "MAX_POINTS", 10)
    with pytest.raises(SpaceError, match=r"space.params_budget: 100 points; at most 10 are planned at once"):
        expand_space(Config(space=replace(TINY, tp=[1, 2, 3, 4, 5])))


def test_counts_that_no_int64_takes_are_exact() -> None:
    huge: dict[str, Any] = {"h": 900_000, "a": 8, "head_dim": 2**31 - 1, "d_ff": 8, "layers": 10_000}
    total = counted(900_000, 8, 8, 8, 2**31 - 1, 10_000, 100, "layer", PLAIN)
    assert total > 2**63
    with pytest.raises(SpaceError, match="the next larger has") as raised:
        expand_space(Config(space=replace(TINY, **huge)))
    assert f"the next larger has {total:,} (h=900000 d_ff=8 a=8)" in str(raised.value)


def test_what_a_plan_costs_is_known() -> None:
    config, found = expanded("model=llama-2-7b", "space.params_budget=7e9±2%", "space.tp=8")
    shown = plan(config, found)
    assert shown.estimate is not None
    assert shown.flops == sum(gemm.flops for gemm in {gemm for family in found.families for gemm in family.gemms})


def refused(words: Sequence[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["plan", "conf=h200", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


LLAMA = ("model=llama-2-7b", "space.tp=8")


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        ([*LLAMA, "space.params_budget=many"], ["'space.params_budget=many'", "is no number of parameters"]),
        ([*LLAMA, "space.params_budget="], ["argument 'space.params_budget='", "is no number of parameters"]),
        (
            [*LLAMA, "space.params_budget=7e13"],
            ["the next smaller has 35,085,885,440 (h=8192 d_ff=33024 a=", "Larger values of space.h, space.d_ff or"],
        ),
        (
            [*LLAMA, "space.params_budget=1M"],
            ["at layers=32 v=32000: the next larger has 1,209,141,248 (h=2048 d_ff=2752 a=", "Smaller values of"],
        ),
        (
            [*LLAMA, "space.params_budget=7000000001±0%"],
            ["the next smaller has 6,999,175,040", "the next larger has", "A smaller step of space.d_ff or space.h"],
        ),
        ([*LLAMA, "space.params_budget=7B", "space.layers=32,400"], ["at layers=400 v=32000"]),
        ([*LLAMA, "space.params_budget=7B", "space.head_dim=1000"], ["no h of space.h is a whole number of heads"]),
        (
            [*LLAMA, "space.params_budget=7B", "space.tp=128"],
            ["nothing is left to measure of 399 points", "tp=128 does not divide a"],
        ),
        (
            ["space.params_budget=7B"],
            ["seed_bmm, mlp is not a whole layer", "space.layers: ", "space.v: ", "space.head_dim: "],
        ),
        (
            [*LLAMA, "space.params_budget=7B", "space.around=a", "timing.protocol=seed"],
            ["'space.around=a': space.params_budget chooses h, d_ff and a together", "timing.protocol=seed times role"],
        ),
        (["model=mixtral-8x7b", "space.params_budget=40B"], ["layer_moe is not a whole layer of a dense model"]),
        (
            [*LLAMA, "space.params_budget=7B", "space.h=2000000", "space.d_ff=1000000"],
            ["takes shapes with h <= 900000", "takes shapes with d_ff <= 999999", "takes shapes with a <= 9999"],
        ),
        (
            [*LLAMA, "space.params_budget=7B", "space.other_weights={tie: 1}"],
            ["space.other_weights: unknown part 'tie'; did you mean tied?"],
        ),
        (
            [*LLAMA, "space.params_budget=7B", "space.other_weights.tied=3"],
            ["space.other_weights: tied: 3 is neither true nor false"],
        ),
        (
            [*LLAMA, "space.params_budget=7B", "space.d_ff={start: 1, stop: 900000, step: 1}"],
            ["shapes in the grid; at most 50000000 are counted"],
        ),
        ([*LLAMA, "space.layers=32"], ["space.layers: it counts under space.params_budget only"]),
        ([*LLAMA, "space.params_budget=7B", "space.layers=20000"], ["20000 is too large; it must be <= 10000"]),
    ],
)
def test_bad_input_names_what_is_wrong_and_what_is_right(
    words: list[str], messages: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = refused(words, capsys)
    assert [each for each in messages if each not in text] == []
