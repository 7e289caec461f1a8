"""What ``check`` counts of a model: all its parameters, and those of one rank."""

from dataclasses import replace

from orchestrator import model_counts
from orchestrator.model import Model


def parameters(model: Model) -> int:
    """Count all parameters."""
    return model_counts.parameters(model).total


def dense_layers(model: Model) -> int:
    """Return how many layers have a dense MLP."""
    return model.layers - model_counts.expert_layers(model)


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
