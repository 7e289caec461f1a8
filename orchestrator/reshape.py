"""A model with other dimensions: what follows from the ones that are changed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import InvalidValueError
from orchestrator.model import Model

DIMENSIONS = (
    *("h", "a", "kv", "head_dim", "d_ff", "v", "layers"),
    *("experts", "topk", "expert_d_ff", "shared_d_ff", "dense_layers"),
)


def follows_h(model: Model) -> bool:
    """Return whether the size of a head is h / a, so that it changes with them."""
    return model.head_dim * model.a == model.h


def reshaped(model: Model, dimensions: Mapping[str, int]) -> Model:
    """Return ``model`` with these of its DIMENSIONS replaced, or raise InvalidValueError with all that does not fit.

    head_dim stays h / a where it was and is not given; kv stays a where it was (multi-head attention) and is not
    given. The published count of parameters is no longer the model's.
    """
    changes: dict[str, Any] = dict(dimensions)
    h, a = changes.get("h", model.h), changes.get("a", model.a)
    problems = []
    if "head_dim" not in changes and follows_h(model):
        if h % a:
            problems.append(f"a ({a}) must divide h ({h}); give head_dim where it is not h / a")
        changes["head_dim"] = max(h // a, 1)
    if "kv" not in changes and model.kv == model.a:
        changes["kv"] = a
    changed = replace(model, **changes, parameters=None)
    if problems := [*problems, *conflicts(changed)]:
        raise InvalidValueError("; ".join(problems))
    return changed


def conflicts(model: Model) -> list[str]:
    """Say which dimensions of a model contradict each other."""
    found = []
    if model.a % model.kv:
        found.append(f"kv ({model.kv}) must divide a ({model.a})")
    if model.experts:
        if not 1 <= model.topk <= model.experts:
            found.append(f"1 <= topk <= experts must hold, but got {model.topk} and {model.experts}")
        if not model.expert_d_ff:
            found.append("a model with experts needs expert_d_ff")
        if model.dense_layers and not model.d_ff:
            found.append("dense_layers need d_ff")
    if model.dense_layers > model.layers:
        found.append(f"dense_layers <= layers must hold, but got {model.dense_layers} and {model.layers}")
    return found
