"""The operations of a layer compute what they say: against formulas written out, in float32 or float64 on the CPU."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

from orchestrator.layer import LayerCase, layer
from orchestrator.model import Model
from tasks.component import Component
from tasks.layer_ops import BACKENDS, OPS

CPU = torch.device("cpu")
B, S, A, KV, D = 2, 5, 6, 2, 8

MODEL = Model(name="", h=A * D, layers=1, a=A, kv=KV, head_dim=D, d_ff=24, v=64, qk_norm=True)
MIXTURE = Model(
    name="", h=16, layers=1, a=2, kv=2, head_dim=8, d_ff=0, v=64, experts=4, topk=2, expert_d_ff=12, shared_d_ff=6
)


def component(name: str, model: Model = MODEL, **running: Any) -> Component:
    wanted = layer(LayerCase(model=model, b=B, s=S if model is MODEL else 4, dtype="fp32", **running))
    return next(each for each in wanted.components if each.name == name)


def drawn(each: Component) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(shape, generator=generator) for shape in each.inputs]


def run(each: Component, tensors: list[torch.Tensor]) -> Any:
    return OPS[each.op](each, CPU)(tensors)


def by_hand(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Causal attention in float64, one head and one row at a time."""
    out = torch.zeros(B, A, S, D, dtype=torch.float64)
    for b in range(B):
        for head in range(A):
            group = head // (A // KV)
            for row in range(S):
                scores = k[b, : row + 1, group].double() @ q[b, row, head].double() / math.sqrt(D)
                weights = torch.exp(scores) / torch.exp(scores).sum()
                out[b, head, row] = weights @ v[b, : row + 1, group].double()
    return out


@pytest.mark.parametrize("backend", ["flash", "math"])
def test_fused_attention_with_grouped_heads_is_softmax_of_scores_times_values(backend: str) -> None:
    each = component(f"sdpa_{backend}")
    q, k, v = drawn(each)
    assert torch.allclose(run(each, [q, k, v]).double(), by_hand(q, k, v), atol=1e-5)


def test_attention_step_by_step_is_the_same() -> None:
    q, k, v = drawn(component("sdpa_math"))
    keys, values = (x.reshape(B * A, S, D) for x in run(component("repeat_kv"), [k, v]))
    scores = torch.bmm(q.transpose(1, 2).reshape(B * A, S, D), keys.transpose(1, 2))
    mask = torch.full((S, S), -math.inf).triu(1)
    weights = run(component("softmax"), [run(component("scale_mask"), [scores, mask])])
    assert torch.allclose(torch.bmm(weights, values).view(B, A, S, D).double(), by_hand(q, k, v), atol=1e-5)


def test_a_backend_without_grouped_heads_gets_them_repeated() -> None:
    each = component("sdpa_efficient")
    assert each.option("repeat") is True
    q, k, v = drawn(each)
    shown = Component(
        name="x", kind="attention", dtype="fp32", op="attention", options=(("backend", "math"), *each.options[1:])
    )
    assert torch.allclose(run(shown, [q, k, v]).double(), by_hand(q, k, v), atol=1e-5)


def test_every_backend_has_its_name() -> None:
    assert {name: backend.name for name, backend in BACKENDS.items()} == {
        "flash": "FLASH_ATTENTION",
        "efficient": "EFFICIENT_ATTENTION",
        "cudnn": "CUDNN_ATTENTION",
        "math": "MATH",
    }


def test_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    each = component("rms_norm")
    x, weight = drawn(each)
    expected = x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight
    assert torch.allclose(run(each, [x, weight]), expected, atol=1e-6)


def test_layer_norm_takes_the_mean_away_first() -> None:
    each = component("layer_norm", Model(name="", h=48, layers=1, a=6, kv=6, head_dim=8, d_ff=24, v=64, norm="layer"))
    x, weight, bias = drawn(each)
    centred = x - x.mean(-1, keepdim=True)
    expected = centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + 1e-5) * weight + bias
    assert torch.allclose(run(each, [x, weight, bias]), expected, atol=1e-5)


def test_qk_norm_normalises_each_head_of_query_and_key_and_no_value() -> None:
    each = component("qk_norm")
    x, weight = drawn(each)
    found = run(each, [x, weight])
    assert found.shape == (B, S, A + KV, D)
    head = x[1, 2, 7]
    assert torch.allclose(found[1, 2, 7], head / torch.sqrt((head * head).mean() + 1e-5) * weight, atol=1e-6)


def test_rope_turns_pairs_of_query_and_key_by_the_angle_of_their_position() -> None:
    each = component("rope")
    x = drawn(each)[0]
    position = torch.arange(S).double()[:, None]
    angle = position * 10000.0 ** (-torch.arange(D // 2).double() / (D // 2))
    found = run(each, [x, angle.cos().float(), angle.sin().float()])
    assert found.shape == (B, S, A + KV, D)
    pairs = torch.complex(x[..., : D // 2].double(), x[..., D // 2 :].double())[:, :, : A + KV]
    turned = pairs * torch.polar(torch.ones_like(angle), angle)[:, None]
    assert torch.allclose(found.double(), torch.cat([turned.real, turned.imag], dim=-1), atol=1e-5)


def test_swiglu_is_the_gate_times_its_sigmoid_times_up() -> None:
    each = component("swiglu")
    (x,) = drawn(each)
    gate, up = x[:, :24], x[:, 24:]
    assert torch.allclose(run(each, [x]), gate * torch.sigmoid(gate) * up, atol=1e-6)


def test_gelu_is_the_tanh_form() -> None:
    each = component("gelu", Model(name="", h=48, layers=1, a=6, kv=6, head_dim=8, d_ff=24, v=64, mlp="gelu"))
    (x,) = drawn(each)
    expected = 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert torch.allclose(run(each, [x]), expected, atol=1e-6)


def test_the_residual_is_a_sum() -> None:
    each = component("residual")
    x, y = drawn(each)
    assert torch.equal(run(each, [x, y]), x + y)


def test_dropout_keeps_nine_of_ten_and_scales_them_up() -> None:
    each = component("dropout", Model(name="", h=4096, layers=1, a=6, kv=6, head_dim=8, d_ff=24, v=64), training=True)
    (x,) = drawn(each)
    found, kept = run(each, [x])
    assert torch.allclose(found, x * kept / 0.9, atol=1e-6)
    assert abs(kept.float().mean().item() - 0.9) < 0.01  # 40960 draws: a deviation of 0.0015


def test_the_router_takes_the_likeliest_experts_and_sorts_tokens_by_them() -> None:
    each = component("route", MIXTURE)
    (x,) = drawn(each)
    weights, order = run(each, [x])
    likeliest = x.argsort(dim=-1, descending=True)[:, :2]
    chosen = torch.exp(x.gather(1, likeliest))
    assert torch.allclose(weights, chosen / chosen.sum(-1, keepdim=True), atol=1e-6)
    assert torch.equal(likeliest.flatten()[order], likeliest.flatten().sort().values)


def test_what_is_dispatched_to_experts_comes_back_to_its_token() -> None:
    dispatch, combine = component("dispatch", MIXTURE), component("combine", MIXTURE)
    (x,) = drawn(dispatch)
    rows = run(dispatch, [x])
    assert rows.shape == (B * 4 * 2, 16)  # each token goes to two experts
    back = run(combine, [rows, torch.full((len(rows), 1), 0.5)])
    assert torch.allclose(back, x, atol=1e-6)


@pytest.mark.parametrize(
    ("model", "running"), [(MODEL, {"training": True}), (MIXTURE, {"training": True}), (MIXTURE, {"tp": 2, "ep": 2})]
)
def test_every_component_leaves_as_many_elements_as_it_says(model: Model, running: dict[str, Any]) -> None:
    for each in layer(LayerCase(model=model, b=B, s=4, dtype="fp32", **running)).components:
        if each.kind == "other":
            left = run(each, drawn(each))
            first = left[0] if isinstance(left, tuple) else left
            count = sum(map(_numel, first)) if isinstance(first, list) else _numel(first)
            assert count == each.output, each.name


_numel: Callable[[torch.Tensor], int] = torch.Tensor.numel
