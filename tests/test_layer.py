"""Which components a layer has: shapes of Llama-3-8B, of GPT-3-2.7B and of a mixture of experts, worked out by hand."""

from dataclasses import replace
from typing import Any

import pytest

from orchestrator.layer import FLASH, UNFUSED, LayerCase, layer, problems
from orchestrator.model import Model
from tasks.component import Component, Layer
from tests.shapes import GPT_3_2_7B, LLAMA_3_8B

MIXTRAL = Model(
    name="mixtral", h=4096, layers=32, a=32, kv=8, head_dim=128, d_ff=0, v=32000, experts=8, topk=2, expert_d_ff=14336
)


def names(wanted: Layer, variant: str) -> list[str]:
    steps = next(each.steps for each in wanted.variants if each.name == variant)
    return ["|".join(component.name for component in step) for step in steps]


def named(wanted: Layer) -> dict[str, Component]:
    steps = (component for variant in wanted.variants for step in variant.steps for component in step)
    return {component.name: component for component in (*steps, *wanted.extras)}


def test_the_steps_of_a_swiglu_layer_with_grouped_heads() -> None:
    wanted = layer(LayerCase(model=LLAMA_3_8B))
    before = ["rms_norm", "qkv", "rope"]
    after = ["attn_out", "residual", "rms_norm", "mlp_gate_up", "swiglu", "mlp_down", "residual"]
    unfused = ["repeat_kv", "attn_score", "scale_mask", "softmax", "attn_over_value"]
    assert names(wanted, UNFUSED) == [*before, *unfused, *after]
    assert names(wanted, FLASH) == [*before, "sdpa_flash|sdpa_efficient|sdpa_cudnn", *after]
    assert [each.name for each in wanted.extras] == ["sdpa_math"]


def test_the_steps_of_a_gelu_layer_that_is_trained() -> None:
    wanted = layer(LayerCase(model=GPT_3_2_7B, training=True))
    before = ["layer_norm", "qkv"]
    unfused = ["attn_score", "scale_mask", "softmax", "attn_dropout", "attn_over_value"]
    after = ["attn_out", "dropout", "residual", "layer_norm", "mlp_up", "gelu", "mlp_down", "dropout", "residual"]
    assert names(wanted, UNFUSED) == [*before, *unfused, *after]


@pytest.mark.parametrize(
    ("norms", "around"),
    [
        (0, ["attn_out residual mlp_gate_up", "mlp_down residual"]),
        (1, ["rms_norm qkv", "attn_out residual mlp_gate_up", "mlp_down residual"]),
        (2, ["rms_norm qkv", "attn_out residual rms_norm mlp_gate_up", "mlp_down residual"]),
        (4, ["rms_norm qkv", "attn_out rms_norm residual rms_norm mlp_gate_up", "mlp_down rms_norm residual"]),
    ],
)
def test_a_layer_has_as_many_norms_as_its_model(norms: int, around: list[str]) -> None:
    steps = names(layer(LayerCase(model=replace(LLAMA_3_8B, norms=norms))), FLASH)
    assert steps.count("rms_norm") == norms
    assert [part for part in around if part not in " ".join(steps)] == []


def test_the_shapes_of_llama_3_8b_on_one_of_eight_ranks() -> None:
    found = named(layer(LayerCase(model=LLAMA_3_8B, tp=8, b=4, s=2048)))
    gemms = {name: (g.b, g.m, g.n, g.k) for name, each in found.items() if (g := each.gemm) is not None}
    assert gemms == {
        "qkv": (1, 8192, (4 + 2) * 128, 4096),
        "attn_score": (16, 2048, 2048, 128),
        "attn_over_value": (16, 2048, 128, 2048),
        "attn_out": (1, 8192, 4096, 512),
        "mlp_gate_up": (1, 8192, 3584, 4096),
        "mlp_down": (1, 8192, 4096, 1792),
    }
    assert found["sdpa_flash"].inputs == ((4, 2048, 4, 128), (4, 2048, 1, 128), (4, 2048, 1, 128))
    assert found["rope"].inputs == ((4, 2048, 6, 128), (2048, 64), (2048, 64))
    assert found["softmax"].inputs == ((16, 2048, 2048),)
    assert found["swiglu"].inputs == ((8192, 3584),)
    assert found["rms_norm"].inputs == ((4, 2048, 4096), (4096,))


def test_the_products_of_a_gelu_layer_are_the_papers_sum() -> None:
    """24·b·s·h² + 4·b·s²·h, f = 4h: «The Case for Co-Designing Model Architectures with Hardware»."""
    wanted = layer(LayerCase(model=GPT_3_2_7B, b=4, s=2048))
    steps = next(each.steps for each in wanted.variants if each.name == UNFUSED)
    assert sum(step[0].flops for step in steps) == 24 * 4 * 2048 * 2560**2 + 4 * 4 * 2048**2 * 2560


def test_fused_attention_counts_the_pairs_under_the_causal_mask() -> None:
    found = named(layer(LayerCase(model=replace(GPT_3_2_7B, a=1, kv=1, head_dim=3), b=1, s=2)))["sdpa_flash"]
    assert found.flops == 3 * (2 * 2 * 3)  # 3 of 4 pairs, two products of 2·d each


def test_a_mixture_has_a_router_and_the_experts_of_its_rank() -> None:
    wanted = layer(LayerCase(model=MIXTRAL, ep=4, b=4, s=2048))
    mixture = ["router", "route", "dispatch", "expert_gate_up", "expert_swiglu", "expert_down", "combine"]
    assert names(wanted, FLASH)[-8:-1] == mixture
    found = named(wanted)
    gemm = found["expert_gate_up"].gemm
    assert gemm is not None
    assert (gemm.b, gemm.m, gemm.n, gemm.k) == (2, 2048, 2 * 14336, 4096)
    assert found["expert_swiglu"].inputs == ((4096, 28672),)


def test_experts_that_every_token_takes_are_an_mlp_beside_them() -> None:
    found = named(layer(LayerCase(model=replace(MIXTRAL, shared_d_ff=2048), tp=2)))
    gate_up, down = found["shared_gate_up"].gemm, found["shared_down"].gemm
    assert gate_up is not None
    assert down is not None
    assert (gate_up.n, gate_up.k, down.n, down.k) == (2048, 4096, 4096, 1024)


def test_equal_components_are_measured_once() -> None:
    wanted = layer(LayerCase(model=replace(MIXTRAL, experts=0, d_ff=4096), b=1, s=128))
    keys = [each.key for each in wanted.components]
    assert len(keys) == len(set(keys))
    assert keys.count("rms_norm") == 1


@pytest.mark.parametrize(
    ("model", "running", "message"),
    [
        (replace(LLAMA_3_8B, kv=32), {"tp": 3}, "tp=3 does not divide d_ff=14336; tp=3 does not divide a=32"),
        (replace(LLAMA_3_8B, d_ff=14337), {"tp": 3}, "tp=3 does not divide a=32; tp=3 does not divide kv=8"),
        (replace(LLAMA_3_8B, kv=5), {}, "kv=5 does not divide a=32"),
        (replace(LLAMA_3_8B, norms=5), {}, "norms=5: a layer is timed with at most 4"),
        (replace(LLAMA_3_8B, head_dim=127), {}, "head_dim=127 is odd: rotary positions turn its two halves"),
        (LLAMA_3_8B, {"ep": 2}, "ep=2 needs experts"),
        (MIXTRAL, {"ep": 3}, "ep=3 does not divide experts=8"),
        (MIXTRAL, {"b": 1, "s": 3}, "experts=8 does not divide tokens*topk=6"),
        (replace(MIXTRAL, shared_d_ff=7), {"tp": 2}, "tp=2 does not divide shared_d_ff=7"),
        (replace(MIXTRAL, mlp="gelu"), {}, "mlp=gelu: experts are measured with swiglu only"),
    ],
)
def test_what_cannot_be_sharded_is_said(model: Model, running: dict[str, Any], message: str) -> None:
    assert problems(LayerCase(model=model, **running)) == message.split("; ")


def test_what_can_be_sharded_is_no_problem() -> None:
    assert problems(LayerCase(model=LLAMA_3_8B, tp=16)) == []  # kv is replicated
    assert problems(LayerCase(model=replace(GPT_3_2_7B, head_dim=81))) == []  # learned positions
