"""The space of a model: its own dimensions, and the neighbours of the one that is chosen."""

from collections.abc import Mapping
from typing import Any

from orchestrator.model import Model
from orchestrator.model_checks import divisors

NEIGHBOURS: Mapping[str, tuple[int, int]] = {"d_ff": (1024, 64), "h": (1024, 128), "v": (1024, 64)}
"""Most distance, and step, of the neighbours of a model's own value."""

SMALL = 4096
"""Below this a quarter of the value is the distance and the steps are half as long."""

HEAD_DIMS = range(16, 257, 8)
"""Sizes of a head to choose from where the number of heads is chosen."""

SIDE = 4
"""Neighbours of h on either side where the size of a head follows it, in steps of 8 elements of a head."""


def space_of(model: Model, around: str) -> dict[str, Any]:
    """The keys of ``space`` that a model sets; with ``around`` a range of neighbours, marked with its own value."""
    mixture = model.experts > 0
    space: dict[str, Any] = {
        "model": model.name,
        "roles": list(_roles(model, around)),
        "h": model.h,
        "a": model.a,
        "kv": None if model.kv == model.a and around != "kv" else model.kv,
        "head_dim": None if model.head_dim * model.a == model.h else model.head_dim,
        "v": model.v,
        "d_ff": model.d_ff or model.expert_d_ff,
        "experts": model.experts or None,
        "topk": model.topk or None,
        "expert_d_ff": model.expert_d_ff if mixture else None,
    }
    for name in ("d_ff", "expert_d_ff") if around == "d_ff" else (around,):
        if space.get(name) is not None:
            space[name] = _neighbours(model, around, space[name])
    return space


def _roles(model: Model, around: str) -> tuple[str, ...]:
    """What a user pays for together where this dimension is chosen."""
    mlp = "mlp" if model.mlp == "swiglu" else "mlp_gelu"
    mixture = model.experts > 0
    if around == "d_ff":
        return ("experts", *((mlp,) if model.dense_layers else ())) if mixture else (mlp,)
    if around in ("a", "kv"):
        return ("attn", "attention") if around == "a" else ("attn",)
    if around == "v":
        return ("logits",)
    if around == "experts":
        return ("router", "experts")
    return ("layer_moe" if mixture else "layer" if model.mlp == "swiglu" else "layer_gelu",)


def _neighbours(model: Model, around: str, own: int) -> dict[str, Any]:
    if around == "h" and model.head_dim * model.a == model.h:
        step = HEAD_DIMS.step * model.a
        side = min(SIDE, (own - 1) // step)
        return {"start": own - side * step, "stop": own + SIDE * step, "step": step, "baseline": own}
    if around in NEIGHBOURS:
        most, step = NEIGHBOURS[around]
        step = step if own >= SMALL else step // 2
        distance = min(most, own // 4) // step * step  # whole steps, so that they meet the model's own value
        return {"start": own - distance, "stop": own + distance, "step": step, "baseline": own}
    values = {"a": heads, "kv": _key_value_heads, "experts": _experts}[around](model)
    return {"values": sorted({own, *values}), "baseline": own}


def heads(model: Model) -> list[int]:
    """Numbers of heads that divide h into heads of a usual size; with a head size of its own, half to twice as many."""
    grouped = model.kv < model.a
    if model.head_dim * model.a == model.h:
        found = [model.h // head_dim for head_dim in HEAD_DIMS if model.h % head_dim == 0]
    else:
        step = max(model.kv if grouped else 1, model.a // 8)
        found = list(range(model.a % step + model.a // 2 // step * step, 2 * model.a + 1, step))
    return [a for a in found if a >= 1 and (not grouped or a % model.kv == 0)]


def _key_value_heads(model: Model) -> list[int]:
    return divisors(model.a)


def _experts(model: Model) -> list[int]:
    return [e for e in (model.experts // 2, model.experts, 2 * model.experts) if e >= max(model.topk, 1)]
