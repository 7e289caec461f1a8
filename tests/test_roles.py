"""Which Gemms a role asks for: hand-worked shapes, and the laws of tensor-parallel sharding."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.roles import ROLES, Shape
from tasks.gemm import Gemm

MLP_ROLES = ("seed_bmm", "mlp_up", "mlp_gate_up", "mlp_down", "mlp", "mlp_gelu")

Facts = tuple[str, str, int, int, int, int, str]

LLAMA: dict[str, Any] = {"h": 4096, "d_ff": 11008, "batch": 4, "seq": 2048}
"""Llama-2-7B's MLP with 4 x 2048 = 8192 tokens."""


def asked(role: str, *, h: int, tp: int, batch: int, seq: int | None, d_ff: int, dtype: str = "fp16") -> list[Facts]:
    """(part, kind, b, m, n, k, layout) of each Gemm of one Point."""
    parts = ROLES[role].parts(Shape(h=h, tp=tp, batch=batch, seq=seq, d_ff=d_ff, dtype=dtype))
    assert {part.gemm.dtype for part in parts} == {dtype}
    return [(p.name, p.gemm.kind, p.gemm.b, p.gemm.m, p.gemm.n, p.gemm.k, p.gemm.layout) for p in parts]


@pytest.mark.parametrize(
    ("role", "tp", "expected"),
    [
        ("mlp_up", 1, [("up", "mm", 1, 8192, 11008, 4096, "nt")]),
        ("mlp_up", 2, [("up", "mm", 1, 8192, 5504, 4096, "nt")]),
        ("mlp_up", 4, [("up", "mm", 1, 8192, 2752, 4096, "nt")]),
        ("mlp_up", 8, [("up", "mm", 1, 8192, 1376, 4096, "nt")]),
        ("mlp_gate_up", 1, [("gate_up", "mm", 1, 8192, 22016, 4096, "nt")]),
        ("mlp_gate_up", 2, [("gate_up", "mm", 1, 8192, 11008, 4096, "nt")]),
        ("mlp_gate_up", 4, [("gate_up", "mm", 1, 8192, 5504, 4096, "nt")]),
        ("mlp_gate_up", 8, [("gate_up", "mm", 1, 8192, 2752, 4096, "nt")]),
        ("mlp_down", 1, [("down", "mm", 1, 8192, 4096, 11008, "nt")]),
        ("mlp_down", 2, [("down", "mm", 1, 8192, 4096, 5504, "nt")]),
        ("mlp_down", 4, [("down", "mm", 1, 8192, 4096, 2752, "nt")]),
        ("mlp_down", 8, [("down", "mm", 1, 8192, 4096, 1376, "nt")]),
        ("mlp", 1, [("gate_up", "mm", 1, 8192, 22016, 4096, "nt"), ("down", "mm", 1, 8192, 4096, 11008, "nt")]),
        ("mlp", 8, [("gate_up", "mm", 1, 8192, 2752, 4096, "nt"), ("down", "mm", 1, 8192, 4096, 1376, "nt")]),
    ],
)
def test_llama_2_7b_on_one_rank(role: str, tp: int, expected: list[Facts]) -> None:
    assert asked(role, tp=tp, **LLAMA) == expected


@pytest.mark.parametrize(("batch", "seq", "tokens"), [(1, 1, 1), (16, 1, 16), (1, 2048, 2048), (4, 2048, 8192)])
def test_rows_are_all_tokens_of_the_batch(batch: int, seq: int, tokens: int) -> None:
    for role in ("mlp_up", "mlp_gate_up", "mlp_down"):
        ((_, _, b, m, _, _, _),) = asked(role, h=4096, tp=8, batch=batch, seq=seq, d_ff=11008)
        assert (b, m) == (1, tokens)


@pytest.mark.parametrize(("tp", "k"), [(1, 10920), (2, 5460), (4, 2730), (8, 1365)])
def test_the_seeds_bmm_reduces_over_d_ff(tp: int, k: int) -> None:
    """The seed calls benchmark_bmm(b=4, m=4096, n=d_ff, k=4096): its n is the reduction dimension."""
    expected = [("bmm", "bmm", 4, 4096, 4096, k, "nn")]
    assert asked("seed_bmm", h=4096, tp=tp, batch=4, seq=None, d_ff=10920) == expected


def test_the_seeds_baseline_as_published() -> None:
    assert asked("seed_bmm", h=4096, tp=1, batch=4, seq=None, d_ff=10922)[0][5] == 10922


def test_only_the_seeds_bmm_has_no_sequence() -> None:
    assert {name for name, role in ROLES.items() if not role.needs_seq} == {"seed_bmm"}


def test_every_role_is_found_under_its_own_name_and_described() -> None:
    mlp = ["seed_bmm", "mlp_up", "mlp_gate_up", "mlp_down", "mlp", "mlp_gelu"]
    attention = ["qkv", "attn_score", "attn_over_value", "attn_out", "attention", "attn"]
    others = ["logits", "router", "expert_gate_up", "expert_down", "experts", "layer", "layer_gelu", "layer_moe"]
    assert list(ROLES) == [*mlp, *attention, *others]
    assert all(role.name == name and role.help for name, role in ROLES.items())


@st.composite
def shapes(draw: st.DrawFn, tp: int | None = None) -> Shape:
    ranks = draw(st.sampled_from([1, 2, 3, 4, 8, 16])) if tp is None else tp
    return Shape(
        h=draw(st.integers(1, 8192)),
        tp=ranks,
        batch=draw(st.integers(1, 64)),
        seq=draw(st.integers(1, 4096)),
        d_ff=ranks * draw(st.integers(1, 4096)),
        dtype=draw(st.sampled_from(["fp16", "bf16", "fp32"])),
    )


def gemms(role: str, shape: Shape) -> tuple[Gemm, ...]:
    return tuple(part.gemm for part in ROLES[role].parts(shape))


def flops(role: str, shape: Shape) -> int:
    return sum(gemm.flops for gemm in gemms(role, shape))


def unsharded(shape: Shape) -> Shape:
    return Shape(h=shape.h, tp=1, batch=shape.batch, seq=shape.seq, d_ff=shape.d_ff, dtype=shape.dtype)


@given(shapes())
def test_the_ranks_flops_sum_to_those_of_one_device(shape: Shape) -> None:
    for role in MLP_ROLES:
        assert shape.tp * flops(role, shape) == flops(role, unsharded(shape))


@given(shapes())
def test_a_rank_holds_its_part_of_the_weights(shape: Shape) -> None:
    """SwiGLU has 3·h·d_ff weights: twice h·d_ff in gate_up, once in down."""
    gate_up, down = gemms("mlp", shape)
    weights = gate_up.n * gate_up.k + down.n * down.k
    assert shape.tp * weights == 3 * shape.size("h") * shape.size("d_ff")


@given(shapes())
def test_gate_up_is_twice_as_wide_as_up(shape: Shape) -> None:
    (up,), (gate_up,) = gemms("mlp_up", shape), gemms("mlp_gate_up", shape)
    assert gate_up.n == 2 * up.n
    assert (gate_up.m, gate_up.k, gate_up.layout) == (up.m, up.k, up.layout)


@given(shapes())
def test_down_takes_what_up_gives(shape: Shape) -> None:
    (up,), (down,) = gemms("mlp_up", shape), gemms("mlp_down", shape)
    assert (down.m, down.k, down.n) == (up.m, up.n, up.k)


@given(shapes())
def test_mlp_is_gate_up_and_then_down(shape: Shape) -> None:
    assert gemms("mlp", shape) == gemms("mlp_gate_up", shape) + gemms("mlp_down", shape)
    # 2·M·2f·h + 2·M·h·f = 6·M·h·f, divided by tp
    assert shape.tp * flops("mlp", shape) == 6 * shape.tokens * shape.size("h") * shape.size("d_ff")


@given(shapes())
def test_the_seeds_bmm_does_not_know_a_sequence(shape: Shape) -> None:
    other = Shape(h=shape.h, tp=shape.tp, batch=shape.batch, seq=None, d_ff=shape.d_ff, dtype=shape.dtype)
    assert gemms("seed_bmm", shape) == gemms("seed_bmm", other)
    assert shape.tp * flops("seed_bmm", other) == 2 * shape.size("batch") * shape.size("h") ** 2 * shape.size("d_ff")
