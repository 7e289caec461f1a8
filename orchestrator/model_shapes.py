"""The space of a model's shapes under a budget of parameters: a grid around its own h, d_ff and a."""

from fractions import Fraction
from typing import Any

from orchestrator.budget_rules import other_weights
from orchestrator.model import Model
from orchestrator.model_space import SMALL, heads, space_of
from orchestrator.reshape import follows_h

HEAD_DIMS = (64, 80, 96, 128, 192, 256)
"""Sizes of a head to choose from, beside the model's own."""

SPAN = 0.5
"""How far d_ff may lie from the model's own ratio to h, as a share of it."""

H_STEP, D_FF_STEP = 128, 64
"""Where h is SMALL or more."""
LEAST_STEP = 4


def shapes_of(model: Model) -> dict[str, Any]:
    """The keys of ``space`` that a model sets where a budget chooses the shape; its own shape is the baseline.

    h from half its own to twice, d_ff within SPAN of the model's own ratio to h, a as h and the size of a head give it.
    Where the size of a head is not h / a, it stays, and half as many to twice as many heads are chosen from.
    """
    space = {
        **space_of(model, "d_ff"),
        "h": _around(model.h),
        "layers": model.layers,
        "other_weights": other_weights(model),
    }
    if model.experts:
        return {**space, "roles": ["layer_moe"]}  # which a budget refuses, and says why
    space["roles"] = ["layer" if model.mlp == "swiglu" else "layer_gelu"]
    ratio = str(Fraction(model.d_ff, model.h))
    space["d_ff"] = {"ratio": ratio, "span": SPAN, "step": _step(D_FF_STEP, model.h)}
    if follows_h(model):
        space["a"] = None
        space["head_dim"] = {"values": sorted({model.head_dim, *HEAD_DIMS}), "baseline": model.head_dim}
    else:
        space["a"] = {"values": sorted({model.a, *heads(model)}), "baseline": model.a}
    return space


def _step(step: int, h: int) -> int:
    """Halved for every halving of h below SMALL."""
    while h < SMALL and step > LEAST_STEP:
        h, step = 2 * h, step // 2
    return step


def _around(own: int) -> dict[str, Any]:
    """Whole steps, so that they meet the model's own value."""
    step = _step(H_STEP, own)
    below, above = own // 2 // step * step, own // step * step
    return {"start": own - below, "stop": own + above, "step": step, "baseline": own}
