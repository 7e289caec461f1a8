"""The mixture-of-experts keys of Hugging Face's config.json, as several families write them."""

from orchestrator.hf_dialect import Dialect
from orchestrator.model_keys import Keys

_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_TOPK = ("num_experts_per_tok", "experts_per_token", "num_experts_per_token", "moe_top_k", "moe_topk", "moe_k")
_EXPERT_D_FF = ("moe_intermediate_size", "expert_intermediate_size")
_SHARED = ("shared_expert_intermediate_size", "shared_intermediate_size")
_SHARED_COUNT = ("n_shared_experts", "num_shared_experts")

Sizes = dict[str, int | None]


def experts(keys: Keys, dialect: Dialect, model_type: str, layers: int | None, d_ff: int | None) -> Sizes:
    """Return experts, topk, expert_d_ff, shared_d_ff and dense_layers; all are 0 for a dense model."""
    count = keys.whole("experts", _EXPERTS, low=0, default=0)
    if count == 0:
        return dict.fromkeys(("experts", "topk", "expert_d_ff", "shared_d_ff", "dense_layers"), 0)
    sizes: Sizes = {"experts": count, "topk": keys.whole("topk", _TOPK)}
    fallback = d_ff if dialect.expert_is_ff else None
    has_own = keys.present(_EXPERT_D_FF) or not dialect.expert_is_ff
    sizes["expert_d_ff"] = keys.whole("expert_d_ff", _EXPERT_D_FF) if has_own else fallback
    sizes["shared_d_ff"] = _shared(keys, model_type, sizes["expert_d_ff"])
    sizes["dense_layers"] = None if layers is None else _dense_layers(keys, model_type, layers)
    return sizes


def unread_experts(keys: Keys) -> str | None:
    """Return a note about keys that speak of experts in a model that was read as a dense one."""
    named = [key for key in keys.values if "expert" in key.lower() or "moe" in key.lower().split("_")]
    unread = [key for key in named if keys.values[key] and key not in _EXPERTS]
    if not unread:
        return None
    return f"{', '.join(unread)}: no known key has a number of experts, so all layers are taken as dense"


def _shared(keys: Keys, model_type: str, expert_d_ff: int | None) -> int | None:
    if model_type == "llama4_text":  # every layer with experts has one that all tokens take
        return expert_d_ff
    if keys.present(_SHARED):
        return keys.whole("shared_d_ff", _SHARED, low=0)
    count = keys.whole("shared_experts", _SHARED_COUNT, low=0, default=0)
    return None if count is None or expert_d_ff is None else count * expert_d_ff


def _dense_layers(keys: Keys, model_type: str, layers: int) -> int | None:
    """Count the layers without experts.

    DeepSeek: layer i has experts if i >= first_k_dense_replace and moe_layer_freq divides i. Qwen: if
    decoder_sparse_step divides i + 1 and mlp_only_layers lacks i. Llama 4: moe_layers, or every
    interleave_moe_layer_step-th.
    """
    with_experts = set(range(layers))
    first = keys.whole("dense_layers", ("first_k_dense_replace",), low=0, default=0)
    if first is None or (first > layers and keys.present(("first_k_dense_replace",))):
        return first
    with_experts &= set(range(first, layers)) & _by_frequency(keys, layers)
    step = keys.whole("step", ("decoder_sparse_step", "interleave_moe_layer_step"), default=1) or 1
    listed = keys.wholes("moe_layers")
    with_experts &= set(range(step - 1, layers, step)) if listed is None else set(listed)
    with_experts -= set(keys.wholes("mlp_only_layers") or ())
    return layers - len(with_experts)


def _by_frequency(keys: Keys, layers: int) -> set[int]:
    if isinstance(keys.values.get("moe_layer_freq"), list):
        marks = keys.wholes("moe_layer_freq") or ()
        return {layer for layer, mark in enumerate(marks) if mark}
    step = keys.whole("frequency", ("moe_layer_freq",), default=1) or 1
    return set(range(0, layers, step))
