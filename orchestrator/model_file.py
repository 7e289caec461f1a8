"""A model in a file of the project's own format: YAML with the names of the Model's fields."""

from collections.abc import Mapping
from typing import Any

from orchestrator.axis import whole
from orchestrator.errors import ConfigError, InvalidValueError, unknown
from orchestrator.model import Model
from orchestrator.model_checks import violations
from orchestrator.model_keys import Keys

_REQUIRED = ("h", "layers", "a", "d_ff", "v")
_COUNTS = ("positions", "experts", "topk", "expert_d_ff", "shared_d_ff", "dense_layers")
_FLAGS = ("tied", "linear_bias", "qkv_bias", "qk_norm")
_CHOICES = {"mlp": ("swiglu", "gelu"), "norm": ("rms", "layer")}
_TEXTS = ("sources", "notes")
MOST_PARAMETERS = 10**18
_KNOWN = ("name", *_REQUIRED, "kv", "head_dim", *_COUNTS, *_FLAGS, *_CHOICES, "norms", "other_parameters", "parameters")


def parse(values: Mapping[str, object], *, name: str, origin: str) -> Model:
    """Return the model that ``values`` describe, or raise ConfigError with everything that is wrong.

    h, layers, a, d_ff and v must be there; kv is a and head_dim is h / a unless given.
    """
    keys = Keys(values, origin)
    for key in values:
        if key not in (*_KNOWN, *_TEXTS):
            keys.report(str(key), unknown("key", str(key), (*_KNOWN, *_TEXTS)))
    sizes = _sizes(keys)
    for key, message in violations(sizes, lambda noun: noun):
        keys.report(key, message)
    rest = _rest(keys, name)
    if keys.problems:
        raise ConfigError(keys.problems)
    given: dict[str, Any] = {noun: size for noun, size in {**sizes, **rest}.items() if size is not None}
    return Model(origin=origin, **{"head_dim": given["h"] // given["a"], **given})


def _sizes(keys: Keys) -> dict[str, int | None]:
    sizes = {noun: keys.whole(noun, (noun,)) for noun in _REQUIRED}
    sizes["kv"] = keys.whole("kv", ("kv",), default=sizes["a"] or 1)
    sizes["head_dim"] = keys.whole("head_dim", ("head_dim",)) if keys.present(("head_dim",)) else None
    sizes |= {noun: keys.whole(noun, (noun,), low=0, default=0) for noun in _COUNTS}
    if sizes["experts"]:
        for noun in ("topk", "expert_d_ff"):
            sizes[noun] = keys.whole(noun, (noun,))
    elif sizes["experts"] == 0:
        for noun in ("topk", "expert_d_ff", "shared_d_ff", "dense_layers"):
            if sizes[noun]:
                keys.report(noun, f"{sizes[noun]} needs experts; give experts, or leave {noun} out")
    sizes["norms"] = keys.whole("norms", ("norms",), low=0, default=2)
    return sizes


def _rest(keys: Keys, name: str) -> dict[str, object]:
    rest: dict[str, object] = {"name": keys.text("name", name)}
    rest |= {key: keys.flag(key, False) for key in _FLAGS}
    for key, choices in _CHOICES.items():
        rest[key] = keys.text(key, choices[0])
        if rest[key] not in choices:
            keys.report(key, unknown("kind", str(rest[key]), choices))
    rest |= {"parameters": _count(keys, "parameters", 1), "other_parameters": _count(keys, "other_parameters") or 0}
    return rest | {key: keys.texts(key) for key in _TEXTS}


def _count(keys: Keys, key: str, low: int | None = None) -> int | None:
    value = keys.values.get(key)
    try:
        return (
            None
            if value is None
            else whole("", value, low=-MOST_PARAMETERS if low is None else low, high=MOST_PARAMETERS)
        )
    except InvalidValueError as error:
        keys.report(key, str(error))
        return None
