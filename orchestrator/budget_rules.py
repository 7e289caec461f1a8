"""What the keys of a parameter budget take."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator.budget import EXAMPLES, parse_budget
from orchestrator.errors import InvalidValueError, describe, unknown_part
from orchestrator.model import Model
from orchestrator.rules import Choice, Integer, Rule, Switch

_COUNT = Integer(low=0)
_MOST = 10**15
OTHER_WEIGHTS: Mapping[str, Rule] = MappingProxyType(
    {
        "tied": Switch(),
        "positions": _COUNT,
        "norm": Choice(what="norm", names=lambda: ("rms", "layer")),
        "norms": _COUNT,
        "linear_bias": Switch(),
        "qkv_bias": Switch(),
        "qk_norm": Switch(),
        "other_parameters": Integer(low=-_MOST, high=_MOST),
    }
)
"""Fields of a Model that count weights beside the layers' matrices."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetRule(Rule):
    """A number of parameters with a tolerance; kept as it is written."""

    type_text: str = f"parameters with a tolerance, {EXAMPLES}"
    verbatim: bool = True

    def _check(self, value: object) -> str:
        parse_budget(value)
        return str(value)


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherWeightsRule(Rule):
    """Some of OTHER_WEIGHTS, by name."""

    type_text: str = f"a mapping with some of {', '.join(OTHER_WEIGHTS)}"
    parts: tuple[str, ...] = tuple(OTHER_WEIGHTS)

    def _check(self, value: object) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidValueError(f"{describe(value)} is no mapping; give {self.type_text}")
        return {str(name): _checked(str(name), each) for name, each in value.items()}


def _checked(name: str, value: object) -> object:
    if name not in OTHER_WEIGHTS:
        raise InvalidValueError(unknown_part(name, OTHER_WEIGHTS))
    try:
        return OTHER_WEIGHTS[name].check(value)
    except InvalidValueError as error:
        raise InvalidValueError(f"{name}: {error}") from None


def other_weights(model: Model) -> dict[str, Any]:
    """Those of a model."""
    return {name: getattr(model, name) for name in OTHER_WEIGHTS}
