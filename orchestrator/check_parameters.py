"""How many parameters a model has, and what one tensor-parallel rank holds of it."""

import math
from dataclasses import replace

from orchestrator.model import Model

MEGATRON_MULTIPLE = 128
"""Megatron pads the vocabulary to a multiple of this times tp (``--make-vocab-size-divisible-by``, its default)."""


def parameters(model: Model) -> int:
    """Count weights, biases and norms: embeddings, every layer's attention and MLP, and the output layer."""
    embeddings = model.h * (model.v * (1 if model.tied else 2) + model.positions)
    dense = dense_layers(model)
    layers = model.layers * (_attention(model) + 2 * _norm(model))
    layers += dense * _mlp(model, model.d_ff) + (model.layers - dense) * _experts(model)
    return embeddings + layers + _norm(model)


def dense_layers(model: Model) -> int:
    """Return how many layers have a dense MLP."""
    return model.dense_layers if model.experts else model.layers


def padded_vocabulary(v: int, tp: int) -> int:
    """Return the vocabulary as Megatron pads it.

    >>> padded_vocabulary(32000, 8), padded_vocabulary(50257, 1)
    (32768, 50304)
    """
    multiple = MEGATRON_MULTIPLE * tp
    return -(-v // multiple) * multiple


def shard(model: Model, tp: int) -> Model:
    """Return what one rank holds, as a smaller model; key/value heads are replicated where there are fewer than ranks.

    Norms, learned positions and the router are on every rank. What tp does not divide is rounded up.
    """

    def split(size: int) -> int:
        return math.ceil(size / tp)

    return replace(
        model,
        a=split(model.a),
        kv=split(model.kv),
        v=split(model.v),
        d_ff=split(model.d_ff),
        expert_d_ff=split(model.expert_d_ff),
        shared_d_ff=split(model.shared_d_ff),
        parameters=None,
    )


def mlp_matrices(model: Model) -> int:
    """Return the matrices of an MLP: gate, up and down with SwiGLU, else up and down."""
    return 3 if model.mlp == "swiglu" else 2


def _attention(model: Model) -> int:
    qkv, out = (model.a + 2 * model.kv) * model.head_dim, model.a * model.head_dim
    biases = qkv * model.qkv_bias + model.h * model.linear_bias
    return model.h * (qkv + out) + biases + 2 * model.head_dim * model.qk_norm


def _mlp(model: Model, width: int) -> int:
    matrices = mlp_matrices(model)
    return matrices * model.h * width + ((matrices - 1) * width + model.h) * model.linear_bias


def _experts(model: Model) -> int:
    shared = _mlp(model, model.shared_d_ff) if model.shared_d_ff else 0
    return model.experts * (_mlp(model, model.expert_d_ff) + model.h) + shared


def _norm(model: Model) -> int:
    return model.h * (2 if model.norm == "layer" else 1)
