"""What ``check`` counts of a model: all its parameters, those of one rank, and the padded vocabulary."""

from dataclasses import replace

from orchestrator import model_counts
from orchestrator.model import Model

MEGATRON_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of this times tp (``--make-vocab-size-divisible-by``, its default)."""


def parameters(model: Model) -> int:
    """Count all parameters."""
    return model_counts.parameters(model).total


def dense_layers(model: Model) -> int:
    """Return how many layers have a dense MLP."""
    return model.layers - model_counts.expert_layers(model)


def padded_vocabulary(v: int, tp: int) -> int:
    """Return the vocabulary as Megatron pads it.

    >>> padded_vocabulary(32000, 8), padded_vocabulary(50257, 1)
    (32768, 50304)
    """
    return _up(v, MEGATRON_MULTIPLE * tp) * MEGATRON_MULTIPLE * tp


def shard(model: Model, tp: int) -> Model:
    """Return what one rank holds, as a smaller model; key/value heads are replicated where there are fewer than ranks.

    Norms, learned positions and the router are on every rank. What tp does not divide is rounded up, for an estimate
    must not refuse it.
    """
    return replace(
        model,
        a=_up(model.a, tp),
        kv=_up(model.kv, tp),
        v=_up(model.v, tp),
        d_ff=_up(model.d_ff, tp),
        expert_d_ff=_up(model.expert_d_ff, tp),
        shared_d_ff=_up(model.shared_d_ff, tp),
        other_parameters=_up(model.other_parameters, tp),
        parameters=None,
    )


def _up(size: int, parts: int) -> int:
    return -(-size // parts)
