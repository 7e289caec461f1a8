"""What a config.json says of a model that a Model cannot hold: said in its notes, never silently dropped."""

from collections.abc import Iterator, Mapping

_RECURRENT = ("linear_num_value_heads", "mamba_d_state", "ssm_cfg", "mamba_num_heads", "attn_layer_period")


def shape_notes(config: Mapping[str, object]) -> Iterator[str]:
    """Yield a note for each feature that changes Gemms or parameters and is left out."""
    yield from _latent_attention(config)
    recurrent = [key for key in _RECURRENT if config.get(key)]
    if recurrent:
        yield f"{', '.join(recurrent)}: layers of another kind than attention are described as attention"
    ahead = config.get("num_nextn_predict_layers")
    if ahead:
        yield f"num_nextn_predict_layers={ahead}: the layers that predict further tokens are not counted"
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window") is not False:
        yield f"sliding_window={window}: attention is described as attention over the whole sequence in every layer"
    if config.get("num_kv_shared_layers"):
        yield "num_kv_shared_layers: layers that share their keys and values are described as having their own"


def _latent_attention(config: Mapping[str, object]) -> Iterator[str]:
    ranks = [key for key in ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim") if config.get(key)]
    if config.get("kv_lora_rank"):
        yield (
            f"{', '.join(f'{key}={config[key]}' for key in ranks)}: multi-head latent attention is described as plain "
            "multi-head attention with v_head_dim, so the attention's Gemms, its parameters and the KV cache differ"
        )
