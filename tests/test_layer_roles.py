"""Every GEMM of a layer: hand-worked shapes of real models, the FLOPs of a layer, and the laws of sharding."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.divisibility import refusal, refusals
from orchestrator.passes import named, with_passes
from orchestrator.roles import ROLES
from orchestrator.shape import Shape

Facts = tuple[str, int, int, int, int]
"""Part, b, m, n and k."""

LLAMA_3_8B = Shape(tp=1, batch=4, seq=2048, dtype="bf16", h=4096, a=32, kv=8, d_ff=14336, v=128256)
MIXTRAL = Shape(tp=1, batch=4, seq=2048, dtype="bf16", h=4096, a=32, kv=8, d_ff=14336, v=32000, experts=8, topk=2, ep=1)
GPT_3 = Shape(tp=1, batch=4, seq=2048, dtype="fp16", h=2560, a=32, d_ff=10240, v=50257)


def asked(role: str, shape: Shape) -> list[Facts]:
    return [(part.name, part.gemm.b, part.gemm.m, part.gemm.n, part.gemm.k) for part in ROLES[role].parts(shape)]


def flops(role: str, shape: Shape) -> int:
    return sum(part.gemm.flops for part in ROLES[role].parts(shape))


# Llama-3-8B: h = 4096, 32 heads of 128, 8 key/value heads, d_ff = 14336, v = 128256; 4 x 2048 = 8192 tokens
@pytest.mark.parametrize(
    ("tp", "qkv", "out", "score", "gate_up", "logits"),
    [
        # (32/t + 2·max(8/t, 1))·128; 32/t·128; 4·32/t; 2·14336/t; the vocabulary is a multiple of 128·t up to t = 2
        (1, 6144, 4096, 128, 28672, 128256),
        (2, 3072, 2048, 64, 14336, 64128),
        (4, 1536, 1024, 32, 7168, 32128),  # 128256 → 128512 = 251·512
        (8, 768, 512, 16, 3584, 16128),  # 129024 = 126·1024
        (16, 512, 256, 8, 1792, 8064),  # kv = 8 on 16 ranks: one head each, twice: (2 + 2)·128; 129024 = 63·2048
    ],
)
def test_llama_3_8b_on_one_rank(tp: int, qkv: int, out: int, score: int, gate_up: int, logits: int) -> None:
    shape = replace(LLAMA_3_8B, tp=tp)
    assert refusal(ROLES["layer"], shape) is None
    assert asked("qkv", shape) == [("qkv", 1, 8192, qkv, 4096)]
    assert asked("attn_score", shape) == [("score", score, 2048, 2048, 128)]
    assert asked("attn_over_value", shape) == [("over_value", score, 2048, 128, 2048)]
    assert asked("attn_out", shape) == [("out", 1, 8192, 4096, out)]
    assert asked("mlp", shape) == [("gate_up", 1, 8192, gate_up, 4096), ("down", 1, 8192, 4096, gate_up // 2)]
    assert asked("logits", shape) == [("logits", 1, 8192, logits, 4096)]
    whole = asked("attn", shape) + asked("mlp", shape)
    assert asked("layer", shape) == whole
    assert [name for name, *_ in whole] == ["qkv", "score", "over_value", "out", "gate_up", "down"]


@pytest.mark.parametrize(("tp", "ep", "count", "width"), [(1, 1, 8, 28672), (2, 1, 8, 14336), (1, 4, 2, 28672)])
def test_mixtral_8x7b(tp: int, ep: int, count: int, width: int) -> None:
    """Each of 8 experts gets 8192·2/8 = 2048 of the tokens."""
    shape = replace(MIXTRAL, tp=tp, ep=ep)
    assert asked("router", shape) == [("router", 1, 8192, 8, 4096)]
    assert asked("experts", shape) == [
        ("expert_gate_up", count, 2048, width, 4096),
        ("expert_down", count, 2048, 4096, width // 2),
    ]
    assert asked("logits", shape) == [("logits", 1, 8192, 32000 // tp, 4096)]  # 32000 = 250·128 = 125·256
    assert asked("layer_moe", shape) == asked("attn", shape) + asked("router", shape) + asked("experts", shape)


def test_gpt_3_2_7b() -> None:
    """h = 2560, 32 heads of 80; its vocabulary is padded from 50257 to 50304 = 393·128."""
    assert asked("layer_gelu", GPT_3) == [
        ("qkv", 1, 8192, 7680, 2560),
        ("score", 128, 2048, 2048, 80),
        ("over_value", 128, 2048, 80, 2048),
        ("out", 1, 8192, 2560, 2560),
        ("up", 1, 8192, 10240, 2560),
        ("down", 1, 8192, 2560, 10240),
    ]
    assert asked("logits", GPT_3) == [("logits", 1, 8192, 50304, 2560)]
    assert asked("logits", replace(GPT_3, tp=8)) == [("logits", 1, 8192, 6400, 2560)]  # 51200 = 50·1024
    assert asked("logits", replace(GPT_3, v_multiple=1)) == [("logits", 1, 8192, 50257, 2560)]


@given(
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 3, 4]),
    st.integers(1, 300),
    st.sampled_from([4, 8, 12]),
    st.integers(1, 200),
)
def test_the_flops_of_a_layer_are_24bsh2_and_4bs2h(tp: int, b: int, s: int, a: int, head_dim: int) -> None:
    """With f = 4h and as many key/value heads as heads (arXiv 2401.14489, section III), divided by t."""
    h = a * head_dim
    shape = Shape(tp=tp, batch=b, seq=s, dtype="fp16", h=h, a=a, d_ff=4 * h)
    assert refusal(ROLES["layer_gelu"], shape) is None
    assert tp * flops("layer_gelu", shape) == 24 * b * s * h**2 + 4 * b * s**2 * h
    # SwiGLU has three matrices of h·f: 6bshf in place of the two matrices' 4bshf = 16bsh2
    assert tp * flops("layer", shape) == 32 * b * s * h**2 + 4 * b * s**2 * h


@given(st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 64))
def test_key_and_value_are_sharded_or_held_by_several_ranks(tp: int, kv: int, head_dim: int) -> None:
    shape = Shape(tp=tp, batch=1, seq=4, dtype="fp16", h=64, a=16, kv=kv, head_dim=head_dim)
    ((_, _, _, n, _),) = asked("qkv", shape)
    held = max(kv, tp)  # heads over all ranks, copies counted
    assert tp * n == (16 + 2 * held) * head_dim


@given(st.integers(1, 300_000), st.sampled_from([1, 2, 4, 8, 16]), st.sampled_from([1, 64, 128]))
def test_the_padded_vocabulary_is_the_least_that_every_rank_holds_whole(v: int, tp: int, multiple: int) -> None:
    padded = Shape(tp=tp, batch=1, dtype="fp16", h=8, v=v, v_multiple=multiple).padded_v
    assert padded % (tp * multiple) == 0
    assert v <= padded < v + tp * multiple


@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4]), st.integers(1, 8), st.integers(1, 4))
def test_the_experts_of_all_ranks_do_the_tokens_work_topk_times(tp: int, ep: int, tokens: int, topk: int) -> None:
    shape = Shape(tp=tp, batch=tokens, seq=8, dtype="fp16", h=16, d_ff=8, experts=8, topk=topk, ep=ep)
    assert refusal(ROLES["experts"], shape) is None
    assert tp * ep * flops("experts", shape) == 6 * tokens * 8 * topk * 16 * 8


@pytest.mark.parametrize(
    ("role", "change", "reason"),
    [
        ("qkv", {"tp": 3}, "tp=3 does not divide a=32"),
        ("qkv", {"kv": 5}, "kv=5 does not divide a=32"),
        ("qkv", {"kv": 16, "tp": 32, "a": 48, "head_dim": 64}, "tp=32 does not divide a=48"),
        ("qkv", {"a": 24, "kv": 12, "tp": 8, "head_dim": 64}, "tp=8 does not divide kv=12"),
        ("attn_score", {"a": 30}, "a=30 does not divide h=4096"),
        ("mlp", {"tp": 3}, "tp=3 does not divide d_ff=14336"),
        ("experts", {"ep": 3}, "ep=3 does not divide experts=8"),
        ("experts", {"topk": 9}, "topk=9 is more than experts=8"),
        ("experts", {"batch": 1, "seq": 1}, "experts=8 does not divide tokens*topk=2"),
    ],
)
def test_what_cannot_be_sharded_says_why(role: str, change: dict[str, int], reason: str) -> None:
    found = refusal(ROLES[role], replace(MIXTRAL, **change))  # type: ignore[arg-type]
    assert found is not None
    assert found[1] == reason


def test_a_given_head_size_need_not_divide_h() -> None:
    """Qwen3-30B-A3B: h = 2048, 32 heads of 128: qkv and out are twice as wide as h."""
    shape = Shape(tp=1, batch=1, seq=16, dtype="bf16", h=2048, a=32, kv=4, head_dim=128)
    assert refusal(ROLES["attn"], shape) is None
    assert asked("qkv", shape) == [("qkv", 1, 16, 5120, 2048)]
    assert asked("attn_out", shape) == [("out", 1, 16, 2048, 4096)]


# Backward


def test_the_gradients_of_a_linear_layer() -> None:
    """dX = dY @ W swaps n and k; dW = dY^T @ X, stored as W is, reduces over the tokens."""
    forward = ROLES["mlp_down"].parts(LLAMA_3_8B)
    found = [(p.name, p.gemm.m, p.gemm.n, p.gemm.k, p.gemm.layout) for p in with_passes(forward, "fwd+bwd")]
    assert found == [
        ("down", 8192, 4096, 14336, "nt"),
        ("down.dgrad", 8192, 14336, 4096, "nn"),
        ("down.wgrad", 4096, 14336, 8192, "tn"),
    ]
    assert [p.name for p in with_passes(forward, "bwd")] == ["down.dgrad", "down.wgrad"]
    assert with_passes(forward, "fwd") == forward


def test_the_gradients_of_attentions_products() -> None:
    """S = Q @ K^T: dQ = dS @ K and dK = dS^T @ Q; O = P @ V: dP = dO @ V^T and dV = P^T @ dO."""
    forward = ROLES["attention"].parts(LLAMA_3_8B)
    found = {p.name: (p.gemm.b, p.gemm.m, p.gemm.n, p.gemm.k, p.gemm.layout) for p in with_passes(forward, "bwd")}
    assert found == {
        "score.dgrad": (128, 2048, 128, 2048, "nn"),
        "score.wgrad": (128, 2048, 128, 2048, "tn"),
        "over_value.dgrad": (128, 2048, 2048, 128, "nt"),
        "over_value.wgrad": (128, 2048, 128, 2048, "tn"),
    }


@pytest.mark.parametrize("role", [name for name in ROLES if name != "seed_bmm"])
def test_a_backward_pass_is_twice_the_forward_ones_work(role: str) -> None:
    forward = ROLES[role].parts(MIXTRAL)
    backward = with_passes(forward, "bwd")
    assert sum(p.gemm.flops for p in backward) == 2 * sum(p.gemm.flops for p in forward)
    assert len({p.name for p in with_passes(forward, "fwd+bwd")}) == 3 * len(forward)


def test_passes_are_named_forward_first() -> None:
    assert [named(["fwd"]), named(["bwd"]), named(["bwd", "fwd"])] == ["fwd", "bwd", "fwd+bwd"]


# Parameters


def test_parameters_of_a_block_by_hand() -> None:
    """Llama-3-8B: attention 4096·(32 + 16)·128 + 4096·4096, MLP 3·4096·14336, output 4096·128256."""
    sizes = {role: ROLES[role].params(replace(LLAMA_3_8B, tp=8)) for role in ("attn", "mlp", "layer", "logits")}
    assert sizes == {"attn": 41_943_040, "mlp": 176_160_768, "layer": 218_103_808, "logits": 525_336_576}
    assert ROLES["experts"].params(MIXTRAL) == 8 * 176_160_768
    assert ROLES["router"].params(MIXTRAL) == 8 * 4096
    assert ROLES["layer_gelu"].params(GPT_3) == 12 * 2560**2


@pytest.mark.parametrize(
    ("kv", "tp", "found"),
    [
        (32, 3, ["tp=3 does not divide a=32"]),  # as many as heads: said once
        (8, 3, ["tp=3 does not divide a=32", "tp=3 does not divide kv=8"]),
        (8, 16, []),  # two ranks hold each of them
        (8, 24, ["tp=24 does not divide a=32"]),
        (6, 4, ["kv=6 does not divide a=32"]),
    ],
)
def test_each_law_that_is_broken_is_told_once(kv: int, tp: int, found: list[str]) -> None:
    assert [reason for _, reason in refusals(ROLES["attn"], replace(LLAMA_3_8B, a=32, kv=kv, tp=tp))] == found
