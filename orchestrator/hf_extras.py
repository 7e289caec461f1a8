"""Weights of some architectures that no term of a Model describes, so that its parameters still add up."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from orchestrator.model import Model

Extra = tuple[int, str]
"""How many weights, negative for those that a Model's terms describe but the architecture lacks; and what they are."""


def extras(model: Model, model_type: str, config: Mapping[str, object]) -> list[Extra]:
    """Return what the terms of ``model`` leave out or have too much of, for its model_type."""
    rule = _RULES.get(model_type)
    return [] if rule is None else [extra for extra in rule(model, config) if extra[0]]


def _norm_weights(model: Model) -> int:
    return (model.norms * model.layers + 1) * model.h


def _norm_without_bias(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(-_norm_weights(model), "its norms have no bias")]


def _cohere(model: Model, config: Mapping[str, object]) -> list[Extra]:
    heads = (model.a + model.kv) * model.head_dim * model.layers if config.get("use_qk_norm") else 0
    return [*_norm_without_bias(model, config), (heads, "norms of query and key")]


def _norm_without_weights(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(-2 * _norm_weights(model), "its norms have no weights")]


def _wide_qk_norm(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(model.layers * (model.a + model.kv) * model.head_dim, "norms over all heads of query and of key")]


def _shared_gate(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [((model.layers - model.dense_layers) * model.h, "the gate of the shared expert")]


def _gpt_oss(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(model.layers * model.a, "attention sinks"), (model.layers * model.experts, "the router's biases")]


def _embedding_norm(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(2 * model.h, "the norm of the embedding")]


def _output_bias(model: Model, _: Mapping[str, object]) -> list[Extra]:
    return [(model.v, "the output layer's bias")]


def _opt(model: Model, config: Mapping[str, object]) -> list[Extra]:
    width = config.get("word_embed_proj_dim")
    final = 0 if config.get("do_layer_norm_before", True) else -2 * model.h
    found = [(final, "it has no final norm")]
    if isinstance(width, int) and width != model.h:
        found.append(
            (2 * width * model.h - (model.h - width) * model.v, f"the embedding is {width} wide and projected")
        )
    return found


_RULES: Mapping[str, Callable[[Model, Mapping[str, object]], list[Extra]]] = MappingProxyType(
    {
        "dbrx": _norm_without_bias,
        "mpt": _norm_without_bias,
        "cohere": _cohere,
        "cohere2": _norm_without_bias,
        "olmo": _norm_without_weights,
        "olmo2": _wide_qk_norm,
        "olmo3": _wide_qk_norm,
        "olmoe": _wide_qk_norm,
        "qwen2_moe": _shared_gate,
        "gpt_oss": _gpt_oss,
        "bloom": _embedding_norm,
        "phi": _output_bias,
        "gptj": _output_bias,
        "opt": _opt,
    }
)
