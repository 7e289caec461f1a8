"""The words that a model is made of: a named one, dimensions in place of its own, or dimensions alone."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from orchestrator.errors import ConfigError
from orchestrator.model import MOST_LAYERS, Model
from orchestrator.models import load_model
from orchestrator.reshape import DIMENSIONS, reshape
from orchestrator.rules import Integer, Text
from orchestrator.words import Key, Words, one_of

HEAD_DIM = 128
"""Size of a head where nothing says what it is: that of Llama, Mistral and GPT-3 175B."""
SWIGLU_MULTIPLE = 256
"""Llama rounds 8h/3 up to a multiple of this (its reference code, ``multiple_of``)."""

_SIZE, _COUNT = Integer(), Integer(low=0)
MODEL_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        "model": Key(rule=Text(type_text="a name or path"), help="a ready-made model, or a config.json (Hugging Face)"),
        "h": Key(rule=_SIZE, help="hidden size"),
        "a": Key(rule=_SIZE, help="attention heads"),
        "kv": Key(rule=_SIZE, help="key/value heads [a]"),
        "head_dim": Key(rule=_SIZE, help="size of a head [h / a]"),
        "d_ff": Key(rule=_SIZE, help="hidden size of the MLP"),
        "v": Key(rule=_SIZE, help="vocabulary"),
        "layers": Key(rule=Integer(high=MOST_LAYERS), help="layers"),
        "mlp": one_of("MLP", ("swiglu", "gelu"), "kind of MLP: {} [swiglu]"),
        "norm": one_of("norm", ("rms", "layer"), "kind of norm: {} [rms; layer with gelu]"),
        "norms": Key(rule=_COUNT, help="norms of a layer [2]"),
        "positions": Key(rule=_COUNT, help="learned positions; 0: rotary ones [0]"),
        "experts": Key(rule=_COUNT, help="routed experts of a layer [0]"),
        "topk": Key(rule=_COUNT, help="experts a token goes to"),
        "expert_d_ff": Key(rule=_COUNT, help="hidden size of an expert"),
        "shared_d_ff": Key(rule=_COUNT, help="hidden size of the experts that every token takes [0]"),
        "dense_layers": Key(rule=_COUNT, help="layers with a dense MLP in a model with experts [0]"),
    }
)
RUNNING_KEYS: Mapping[str, Key] = MappingProxyType(
    {
        "tp": Key(rule=_SIZE, help="tensor-parallel size [1]"),
        "b": Key(rule=_SIZE, help="microbatch, in sequences [4]"),
        "s": Key(rule=_SIZE, help="tokens of a sequence [2048]"),
    }
)
SIZES = (*DIMENSIONS, "norms", "positions")
KINDS = ("mlp", "norm")


def models(words: Words, needed: Sequence[str] = ("h",)) -> list[Model]:
    """Return the model that ``words`` ask for, one per h where several are given; none where something is wrong.

    needed: what must be given without ``model=``; d_ff stands for expert_d_ff where there are experts.
    """
    base = None
    if "model" in words.origins:
        base = _named(words)
    else:
        _tell_missing(words, needed)
    if words.problems:
        return []
    sizes = words.given(*SIZES)
    every = sizes.get("h")
    several = [{**sizes, "h": h} for h in every] if isinstance(every, tuple) else [sizes]
    made = [_made(words, base, each) for each in several]
    return [] if words.problems else made


def d_ff(h: int, mlp: str) -> int:
    """Return the usual hidden size of an MLP.

    >>> d_ff(4096, "swiglu"), d_ff(4096, "gelu")
    (11008, 16384)
    """
    return 4 * h if mlp == "gelu" else -(-8 * h // (3 * SWIGLU_MULTIPLE)) * SWIGLU_MULTIPLE


def _tell_missing(words: Words, needed: Sequence[str]) -> None:
    wanted = ["expert_d_ff" if key == "d_ff" and words.values.get("experts") else key for key in needed]
    if missing := [f"{key}=" for key in wanted if key not in words.origins]:
        words.report("arguments", f"give model=, such as model=llama-3-8b, or also {', '.join(missing)}")


def _named(words: Words) -> Model | None:
    """Load ``model=``; another kind of MLP or norm beside it makes it another model."""
    if "model" not in words.values:
        return None
    try:
        model = load_model(words.values["model"], words.origins["model"])
    except ConfigError as error:
        words.problems += error.problems
        return None
    changed = replace(model, **words.given(*KINDS))
    return model if changed == model else replace(changed, parameters=None)


def _made(words: Words, base: Model | None, sizes: dict[str, int]) -> Model:
    if base is None:
        base, sizes = _plain(words, sizes)
    model, conflicts = reshape(base, sizes) if sizes else (base, [])
    for dimensions, message in conflicts:
        words.report(words.origin(*dimensions), message)
    return model


def _plain(words: Words, sizes: dict[str, int]) -> tuple[Model, dict[str, int]]:
    """Return a model with one head, from which the others follow, and the sizes with their number of heads."""
    kinds: dict[str, Any] = {"mlp": "swiglu", **words.given(*KINDS)}
    h, head_dim = sizes["h"], sizes.get("head_dim", HEAD_DIM)
    if "a" not in sizes:
        sizes = {**sizes, "a": max(h // head_dim, 1), "head_dim": head_dim}
        if h % head_dim:
            message = f"head_dim ({head_dim}) must divide h ({h}); give a= where it does not"
            words.report(words.origin("h", "head_dim"), message)
    kinds.setdefault("norm", "layer" if kinds["mlp"] == "gelu" else "rms")
    width = 0 if sizes.get("experts") else d_ff(h, kinds["mlp"])
    return Model(name="", h=h, a=1, kv=1, head_dim=h, d_ff=width, layers=1, v=0, **kinds), sizes
