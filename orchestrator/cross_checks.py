"""Values of a configuration that are right alone but not together."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from orchestrator.axis import by_ratio, check_span, choice, count, d_ff_count, expand, is_ratio
from orchestrator.budget_checks import BUDGET, budget_checks
from orchestrator.errors import InvalidValueError
from orchestrator.schema import schema_keys

MAX_POINTS = 10_000_000
"""A larger product of the axes is refused before anything is expanded."""
MAX_SHAPES = 50_000_000
"""Shapes of a grid, of which a budget of parameters lets few through."""

Complaint = tuple[tuple[str, ...], str]


def cross_checks(values: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield (keys concerned, message) for values that are right alone but not together; missing keys are not judged."""
    yield from _ordered(values, "timing.min_rounds", "timing.max_rounds")
    yield from _ordered(values, "timing.soak_min_s", "timing.soak_max_s")
    if all(name in values for name in (*_SIZES, *_LISTS, "space.d_ff")):
        yield from _space(values)


_SIZES = ("space.h", "space.tp", "space.batch", "space.seq")
_LISTS = ("space.roles", "space.dtype")
_WIDTHS = ("space.d_ff", "space.expert_d_ff")
"""A role has one of them: that of a dense layer, or that of an expert."""
_NEEDED = ("a", "v", "experts", "topk")
_OPTIONAL = (*_NEEDED, "kv", "head_dim", "ep", "layers")


def _space(values: Mapping[str, Any]) -> Iterator[Complaint]:
    budget = values.get(BUDGET) is not None
    missing = [] if budget else list(_missing(values))
    yield from missing
    widths = [name for name in _WIDTHS if values.get(name) is not None]
    too_many = list(_too_many(values, widths, budget=budget))
    yield from too_many
    if not missing and not too_many:
        baselines = [complaint for name in widths for complaint in _baseline(name, values)]
        yield from baselines or budget_checks(values)


def _too_many(values: Mapping[str, Any], widths: Sequence[str], *, budget: bool) -> Iterator[Complaint]:
    """More Points than are planned at once; under a budget more shapes than are counted."""
    sizes, lists = (_SIZES[:1], ()) if budget else (_SIZES, _LISTS)
    others = [f"space.{name}" for name in _OPTIONAL if values.get(f"space.{name}") is not None]
    points = math.prod(count(values[name]) for name in (*sizes, *others))
    points *= math.prod(len(values[name]) for name in lists)
    points *= max(_width_count(values[name], values) for name in widths)
    named = (*sizes, *others, *lists, *widths)
    if budget and points > MAX_SHAPES:
        yield named, f"space: {points} shapes in the grid; at most {MAX_SHAPES} are counted"
    elif not budget and points > MAX_POINTS:
        yield named, f"space: {points} points; at most {MAX_POINTS} are planned at once"


def _width_count(spec: object, values: Mapping[str, Any]) -> int:
    follows = is_ratio(spec) and values.get("space.around", "d_ff") != "d_ff"
    return 1 if follows else d_ff_count(spec, max(expand(values["space.h"])))


def _missing(values: Mapping[str, Any]) -> Iterator[Complaint]:
    """Dimensions that a role needs and the space has not, and a choice that touches no role."""
    from orchestrator.roles import ROLES

    roles = [ROLES[name] for name in values["space.roles"]]
    for name in _NEEDED:
        needing = [role.name for role in roles if name in role.dimensions]
        if needing and values.get(f"space.{name}") is None:
            which = f"role{'s' * (len(needing) > 1)} {', '.join(needing)}"
            yield ("space.roles",), f"space.{name}: {which} cannot do without; give it, or a model=NAME that has it"
    around = values.get("space.around", "d_ff")
    if around in ("d_ff", "batch") or f"space.{around}" not in schema_keys():
        return
    if not any(around in role.dimensions for role in roles):
        having = ", ".join(name for name, role in ROLES.items() if around in role.dimensions)
        yield ("space.around", "space.roles"), f"space.around: none of the roles has {around}; those that do: {having}"
    elif around not in _NEEDED and values.get(f"space.{around}") is None:
        yield ("space.around",), f"space.around: space.{around} has no values to choose from"


def _ordered(values: Mapping[str, Any], low: str, high: str) -> Iterator[Complaint]:
    defaults = {key.name: key.default for key in schema_keys().values()}
    least, most = values.get(low, defaults[low]), values.get(high, defaults[high])
    if least is not None and least > most:
        yield (low, high), f"{low} <= {high} must hold, but got {least} and {most}"


def _baseline(name: str, values: Mapping[str, Any]) -> Iterator[Complaint]:
    h, around = values["space.h"], values.get("space.around", "d_ff")
    sizes = choice(h)[0] if around == "h" or values.get(BUDGET) is not None else expand(h)
    try:
        if is_ratio(values[name]):
            by_ratio(values[name], min(sizes))
        if is_ratio(values[name]) and around == "d_ff":
            check_span(values[name], max(sizes))
    except InvalidValueError as error:
        yield ("space.h", name), f"{name}: {error}"
