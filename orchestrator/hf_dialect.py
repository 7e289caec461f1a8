"""How each ``model_type`` of Hugging Face's transformers describes a model: what its config.json does not say.

Source: the configuration and modeling modules of huggingface/transformers for each type.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialect:
    """Facts of one model_type.

    gated: whether the MLP has a gate matrix. norm, norms: kind, and how many of size h a layer has. tied: the default
    of tie_word_embeddings. qkv_bias, out_bias, mlp_bias: which linear layers have biases when no key says so.
    qk_norm: whether query and key are normalised per head. learned_positions: rows of the position table beyond the
    longest sequence, None without such a table. four_h: whether the MLP is 4·h where no key says so. expert_is_ff:
    whether intermediate_size is an expert's size. d_ff_parts: how many matrices share intermediate_size.
    defaults: values of keys that files of this type may leave out; part_defaults: those that only a multimodal file
    leaves out of its text part.
    """

    gated: bool = True
    norm: str = "rms"
    norms: int = 2
    tied: bool = False
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    learned_positions: int | None = None
    four_h: bool = False
    expert_is_ff: bool = False
    d_ff_parts: int = 1
    defaults: Mapping[str, int] = field(default_factory=dict)
    part_defaults: Mapping[str, int] = field(default_factory=dict)


def dialect_of(model_type: str, config: Mapping[str, object]) -> tuple[Dialect, str | None]:
    """Return the dialect of a model_type; for an unknown one a guess from the keys, and a note that says so."""
    known = DIALECTS.get(model_type)
    if known is not None:
        return known, None
    rms = any(key.startswith("rms_norm") for key in config)
    activation = str(config.get("hidden_act") or config.get("activation_function") or "")
    gated = rms or any(name in activation for name in ("silu", "swish", "swiglu", "geglu"))
    guess = Dialect(gated=gated, norm="rms" if rms else "layer", tied=True, expert_is_ff=True)
    shown = f"model_type '{model_type}' is not a known one" if model_type else "there is no model_type"
    mlp = "a gated MLP (gate, up, down)" if gated else "an MLP without a gate (up, down)"
    norm = "RMSNorm" if rms else "LayerNorm"
    return guess, f"{shown}: from its keys it is taken to have {mlp}, {norm}, and no biases that no key names"


def _sizes(h: int, d_ff: int, layers: int, a: int, kv: int, v: int) -> Mapping[str, int]:
    return {
        "hidden_size": h,
        "intermediate_size": d_ff,
        "num_hidden_layers": layers,
        "num_attention_heads": a,
        "num_key_value_heads": kv,
        "vocab_size": v,
    }


_LLAMA = Dialect()
_GPT = Dialect(
    gated=False, norm="layer", tied=True, qkv_bias=True, out_bias=True, mlp_bias=True, four_h=True, learned_positions=0
)
_ROTARY_GPT = replace(_GPT, learned_positions=None)
_GEMMA = Dialect(tied=True, defaults={"head_dim": 256})
_QWEN2 = Dialect(qkv_bias=True, part_defaults=_sizes(4096, 22016, 32, 32, 32, 151936))
_QWEN3 = Dialect(qk_norm=True, defaults={"head_dim": 128})
_QWEN3_MOE = Dialect(qk_norm=True)
_GEMMA3 = replace(
    _GEMMA,
    norms=4,
    qk_norm=True,
    defaults={"head_dim": 256, "num_key_value_heads": 4},
    part_defaults=_sizes(2304, 9216, 26, 8, 4, 262208),
)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "llama": replace(_LLAMA, part_defaults=_sizes(4096, 11008, 32, 32, 32, 32000)),
        "llama4_text": Dialect(expert_is_ff=True, defaults={"head_dim": 128}),
        "mistral": Dialect(defaults={"num_key_value_heads": 8}, part_defaults=_sizes(4096, 14336, 32, 32, 8, 32000)),
        "mixtral": Dialect(expert_is_ff=True, defaults={"num_key_value_heads": 8}),
        "phi3": _LLAMA,
        "granite": _LLAMA,
        "granitemoe": Dialect(expert_is_ff=True),
        "olmo": Dialect(norm="layer"),
        "olmo2": _LLAMA,
        "olmo3": _LLAMA,
        "olmoe": Dialect(expert_is_ff=True),
        "stablelm": Dialect(norm="layer"),
        "cohere": Dialect(norm="layer", norms=1, tied=True),
        "cohere2": Dialect(norm="layer", norms=1, tied=True),
        "gemma": replace(_GEMMA, part_defaults=_sizes(3072, 24576, 28, 16, 16, 256000)),
        "gemma2": replace(_GEMMA, norms=4, part_defaults=_sizes(2304, 9216, 26, 8, 4, 256000)),
        "gemma3_text": _GEMMA3,
        "qwen": Dialect(qkv_bias=True, d_ff_parts=2),
        "qwen2": _QWEN2,
        "qwen2_vl": _QWEN2,
        "qwen2_vl_text": _QWEN2,
        "qwen2_5_vl": _QWEN2,
        "qwen2_5_vl_text": _QWEN2,
        "qwen2_moe": Dialect(qkv_bias=True),
        "qwen3": _QWEN3,
        "qwen3_vl_text": _QWEN3,
        "qwen3_moe": _QWEN3_MOE,
        "qwen3_vl_moe_text": _QWEN3_MOE,
        "deepseek_v2": _LLAMA,
        "deepseek_v3": Dialect(defaults={"first_k_dense_replace": 3}),
        "kimi_k2": _LLAMA,
        "gpt_oss": Dialect(qkv_bias=True, out_bias=True, mlp_bias=True, expert_is_ff=True, defaults={"head_dim": 64}),
        "dbrx": Dialect(norm="layer", expert_is_ff=True),
        "nemotron": Dialect(gated=False, norm="layer"),
        "gpt2": _GPT,
        "gpt_bigcode": _GPT,
        "gpt_neo": replace(_GPT, qkv_bias=False),
        "gpt_neox": replace(_ROTARY_GPT, tied=False, four_h=False),
        "gptj": replace(_ROTARY_GPT, tied=False, norms=1, qkv_bias=False, out_bias=False),
        "opt": replace(_GPT, learned_positions=2, four_h=False),
        "bloom": _ROTARY_GPT,
        "mpt": replace(_ROTARY_GPT, qkv_bias=False, out_bias=False, mlp_bias=False),
        "falcon": replace(_ROTARY_GPT, qkv_bias=False, out_bias=False, mlp_bias=False),
        "RefinedWeb": replace(_ROTARY_GPT, qkv_bias=False, out_bias=False, mlp_bias=False),
        "RefinedWebModel": replace(_ROTARY_GPT, qkv_bias=False, out_bias=False, mlp_bias=False),
        "phi": replace(_ROTARY_GPT, tied=False, norms=1),
        "starcoder2": replace(_ROTARY_GPT, four_h=False),
    }
)
