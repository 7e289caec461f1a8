"""A model in Hugging Face's config.json, unchanged as it lies next to the weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.errors import ConfigError
from orchestrator.hf_dialect import Dialect, dialect_of
from orchestrator.hf_experts import Sizes, experts, unread_experts
from orchestrator.hf_extras import Extra, extras
from orchestrator.hf_notes import shape_notes
from orchestrator.model import Model
from orchestrator.model_checks import violations
from orchestrator.model_keys import Keys

_PARTS = ("text_config", "llm_config", "language_config")
_H = ("hidden_size", "n_embd", "d_model", "n_embed")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_A = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_KV = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "kv_n_heads")
_D_FF = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
_POSITIONS = ("max_position_embeddings", "n_positions", "n_ctx")
_BIASES = {
    "attention_bias": ("qkv", "out"),
    "qkv_bias": ("qkv",),
    "use_qkv_bias": ("qkv",),
    "mlp_bias": ("mlp",),
    "bias": ("qkv", "out", "mlp"),
    "use_bias": ("qkv", "out", "mlp"),
    "enable_bias": ("qkv", "out", "mlp"),
}
_FALCON = ("falcon", "RefinedWeb", "RefinedWebModel")


def parse(config: Mapping[str, object], *, name: str, origin: str) -> Model:
    """Return the decoder that a config.json describes, or raise ConfigError with everything that is wrong.

    A multimodal file's text part is read. What is assumed or left out is in the model's notes.
    """
    keys, part = _text_part(config, origin)
    model_type = keys.text("model_type")
    dialect, guess = dialect_of(model_type, keys.values)
    keys.defaults |= {**(dialect.part_defaults if part else {}), **dialect.defaults}
    if keys.flag("is_encoder_decoder", False):
        keys.report("is_encoder_decoder", "true is an encoder with a decoder; only decoder-only models are described")
    sizes = _sizes(keys, dialect, model_type)
    tied = _tied(keys, config, dialect)
    biases = _biases(keys, dialect)
    for key, message in violations(sizes, lambda noun: keys.written.get(noun, noun)):
        keys.report(key, message)
    if keys.problems:
        raise ConfigError(keys.problems)
    model = _model(sizes, name=name, origin=origin, dialect=_adapted(dialect, model_type, keys.values), tied=tied)
    model, bias_extras = _with_biases(model, biases)
    notes = [guess, _part_note(config, part), _assumed(keys), *shape_notes(keys.values)]
    notes += [unread_experts(keys)] if model.experts == 0 else []
    return _with_extras(model, [*bias_extras, *extras(model, model_type, keys.values)], notes)


def _text_part(config: Mapping[str, object], origin: str) -> tuple[Keys, str | None]:
    outer = Keys(config, origin)
    part = next((key for key in _PARTS if config.get(key) is not None), None)
    if part is None:
        for key in ("attn_config", "ffn_config"):  # DBRX and MPT keep some keys in these
            outer.values = {**(outer.mapping(key) or {}), **outer.values}
        return outer, None
    values = outer.mapping(part)
    if values is None:
        raise ConfigError(outer.problems)
    return Keys(values, f"{origin} ({part})"), part


def _sizes(keys: Keys, dialect: Dialect, model_type: str) -> Sizes:
    sizes: Sizes = {"h": keys.whole("h", _H), "layers": keys.whole("layers", _LAYERS), "a": keys.whole("a", _A)}
    sizes["v"] = keys.whole("v", ("vocab_size",))
    sizes["kv"] = _kv(keys, model_type, sizes["a"])
    sizes["head_dim"] = _head_dim(keys)
    sizes["d_ff"] = _d_ff(keys, dialect, model_type, sizes["h"])
    sizes["positions"] = 0
    if dialect.learned_positions is not None:
        rows = keys.whole("positions", _POSITIONS)
        sizes["positions"] = None if rows is None else rows + dialect.learned_positions
    sizes |= experts(keys, dialect, model_type, sizes["layers"], sizes["d_ff"])
    if model_type == "llama4_text" and sizes["experts"]:
        sizes["d_ff"] = keys.whole("dense_d_ff", ("intermediate_size_mlp",), default=sizes["d_ff"])
    return sizes


def _kv(keys: Keys, model_type: str, a: int | None) -> int | None:
    """Falcon and GPTBigCode share one key/value head where multi_query says so; elsewhere the default is ``a``."""
    multi_query = model_type in (*_FALCON, "gpt_bigcode") and keys.flag("multi_query", True)
    if multi_query and not _new_falcon(keys.values, model_type):
        keys.written["kv"] = "multi_query"
        return 1
    return keys.whole("kv", _KV, default=a or 1)


def _new_falcon(values: Mapping[str, object], model_type: str) -> bool:
    """RefinedWeb is what Falcon-40B's first files call the architecture that has a key of its own since."""
    return values.get("new_decoder_architecture", model_type == "RefinedWeb") is True


def _head_dim(keys: Keys) -> int | None:
    if keys.present(("kv_lora_rank",)):  # multi-head latent attention: its head_dim is that of the rotary part
        return keys.whole("head_dim", ("v_head_dim",))
    if keys.present(("head_dim",)) or "head_dim" in keys.defaults:
        return keys.whole("head_dim", ("head_dim",))
    return None


def _d_ff(keys: Keys, dialect: Dialect, model_type: str, h: int | None) -> int | None:
    four_h = 4 * (h or 1) if dialect.four_h else None
    if model_type == "mpt" and h:
        ratio = keys.whole("ratio", ("expansion_ratio",), default=4)
        return None if ratio is None else ratio * h
    d_ff = keys.whole("d_ff", _D_FF, low=dialect.d_ff_parts, default=four_h)
    return None if d_ff is None else d_ff // dialect.d_ff_parts


def _tied(keys: Keys, config: Mapping[str, object], dialect: Dialect) -> bool:
    """A multimodal file's own key wins over its text part's: it is the whole model that ties its weights."""
    if config is not keys.values and isinstance(config.get("tie_word_embeddings"), bool):
        return bool(config["tie_word_embeddings"])
    return keys.flag("tie_word_embeddings", dialect.tied)


def _biases(keys: Keys, dialect: Dialect) -> dict[str, bool]:
    biases = {"qkv": dialect.qkv_bias, "out": dialect.out_bias, "mlp": dialect.mlp_bias}
    for key, places in _BIASES.items():
        if keys.present((key,)):
            biases |= dict.fromkeys(places, keys.flag(key, False))
    return biases


def _adapted(dialect: Dialect, model_type: str, values: Mapping[str, object]) -> Dialect:
    """Falcon's number of norms depends on how attention and MLP are arranged."""
    if model_type not in _FALCON:
        return dialect
    new = _new_falcon(values, model_type)
    two = values.get("num_ln_in_parallel_attn") != 1 if new else values.get("parallel_attn") is False
    return replace(dialect, norms=2 if two else 1)


def _model(sizes: Sizes, *, name: str, origin: str, dialect: Dialect, tied: bool) -> Model:
    given: dict[str, Any] = {noun: size for noun, size in sizes.items() if size is not None}
    return Model(
        name=name,
        **{"head_dim": given["h"] // given["a"], **given},
        mlp="swiglu" if dialect.gated else "gelu",
        norm=dialect.norm,
        norms=dialect.norms,
        qk_norm=dialect.qk_norm,
        tied=tied,
        origin=origin,
    )


def _with_biases(model: Model, biases: Mapping[str, bool]) -> tuple[Model, list[Extra]]:
    both = biases["out"] and biases["mlp"]
    model = replace(model, qkv_bias=biases["qkv"], linear_bias=both)
    if both or not (biases["out"] or biases["mlp"]):
        return model, []
    if biases["out"]:
        return model, [(model.layers * model.h, "biases of the attention's output")]
    up = (2 if model.mlp == "swiglu" else 1) * model.d_ff
    return model, [(model.layers * (up + model.h), "biases of the MLP")]


def _part_note(config: Mapping[str, object], part: str | None) -> str | None:
    if part is not None:
        return f"the {part} of a {config.get('model_type') or 'multimodal'} model: its other parts are not counted"
    other = next((key for key in ("vision_config", "audio_config") if config.get(key)), None)
    return other and f"the language model alone: what {other} describes is not counted"


def _assumed(keys: Keys) -> str | None:
    listed = ", ".join(f"{key}={value}" for key, value in keys.assumed.items())
    return f"not in the file, so transformers' default for its model_type: {listed}" if listed else None


def _with_extras(model: Model, found: list[Extra], notes: list[str | None]) -> Model:
    total = sum(count for count, _ in found)
    listed = ", ".join(f"{what} ({count:+,})" for count, what in found)
    notes.append(f"counted as other parameters: {listed}" if listed else None)
    return replace(model, other_parameters=total, notes=tuple(note for note in notes if note))
