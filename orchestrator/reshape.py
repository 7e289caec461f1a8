"""A model with other dimensions: what follows from the ones that are changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import InvalidValueError
from orchestrator.model import Model
from orchestrator.model_counts import miscounted

DIMENSIONS = (
    *("h", "a", "kv", "head_dim", "d_ff", "v", "layers"),
    *("experts", "topk", "expert_d_ff", "shared_d_ff", "dense_layers"),
)
MIXTURE = ("topk", "expert_d_ff", "shared_d_ff", "dense_layers")
"""What a model has only with experts."""

Conflict = tuple[tuple[str, ...], str]
"""Dimensions that contradict each other, and how."""


def follows_h(model: Model) -> bool:
    """Return whether the size of a head is h / a, so that it changes with them."""
    return model.head_dim * model.a == model.h


def reshaped(model: Model, dimensions: Mapping[str, int]) -> Model:
    """Return ``model`` with these of its DIMENSIONS replaced, or raise InvalidValueError with all that does not fit."""
    changed, found = reshape(model, dimensions)
    if found:
        raise InvalidValueError("; ".join(message for _, message in found))
    return changed


def reshape(model: Model, dimensions: Mapping[str, int]) -> tuple[Model, list[Conflict]]:
    """Return ``model`` with these dimensions replaced, and what then does not fit.

    head_dim stays h / a where it was and is not given; kv stays a where it was (multi-head attention) and is not
    given. The published count of parameters is no longer the model's.
    """
    changes: dict[str, Any] = dict(dimensions)
    h, a = changes.get("h", model.h), changes.get("a", model.a)
    found: list[Conflict] = []
    if "head_dim" not in changes and follows_h(model):
        if h % a:
            found.append((("h", "a"), f"a ({a}) must divide h ({h}); give head_dim where it is not h / a"))
        changes["head_dim"] = max(h // a, 1)
    if "kv" not in changes and model.kv == model.a:
        changes["kv"] = a
    changed = replace(model, **changes, parameters=None)
    if not changed.experts:
        idle = [name for name in MIXTURE if dimensions.get(name)]
        found += [
            ((name,), f"{name}={dimensions[name]} needs experts; give experts=, or leave it out") for name in idle
        ]
    return changed, [*found, *conflicts(changed)]


def conflicts(model: Model) -> list[Conflict]:
    """Say which dimensions of a model contradict each other."""
    found: list[Conflict] = []
    if wrong := miscounted(model):
        found.append((DIMENSIONS, wrong))
    if model.a % model.kv:
        found.append((("a", "kv"), f"kv ({model.kv}) must divide a ({model.a})"))
    if model.experts:
        if not 1 <= model.topk <= model.experts:
            message = f"1 <= topk <= experts must hold, but got {model.topk} and {model.experts}"
            found.append((("experts", "topk"), message))
        if not model.expert_d_ff:
            found.append((("experts", "expert_d_ff"), "a model with experts needs expert_d_ff"))
        if model.dense_layers and not model.d_ff:
            found.append((("dense_layers", "d_ff"), "dense_layers need d_ff"))
    if model.dense_layers > model.layers:
        message = f"dense_layers <= layers must hold, but got {model.dense_layers} and {model.layers}"
        found.append((("layers", "dense_layers"), message))
    return found
