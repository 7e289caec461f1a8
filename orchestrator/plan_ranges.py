"""What a plan says of the values of a Family, and of a budget of parameters."""

from collections.abc import Iterable, Iterator
from typing import Any

from orchestrator.axis import expand
from orchestrator.budget import parse_budget
from orchestrator.budget_count import Counted
from orchestrator.budget_grid import baseline, counting
from orchestrator.families import Outline
from orchestrator.schema import Config, Space
from orchestrator.shape import Shape
from orchestrator.shape_code import SHAPE, axis_name, dimensions, value_name


def ranges(family: Outline) -> dict[str, tuple[int, int]]:
    """The least and the largest value of what is chosen; of shapes those of h, d_ff and a."""
    if family.axis != SHAPE:
        return {family.axis: (family.values[0], family.values[-1])}
    shapes = [dimensions(value) for value in family.values]
    return {name: (min(each), max(each)) for name in shapes[0] if (each := [shape[name] for shape in shapes])}


def shape_ranges(families: Iterable[Outline]) -> dict[str, tuple[int, int]]:
    """The least and the largest h, d_ff and a of all shapes."""
    each = [ranges(family) for family in families]
    return {name: (min(found[name][0] for found in each), max(found[name][1] for found in each)) for name in each[0]}


def budget_notes(config: Config) -> Iterator[str]:
    """Say what the budget is and what it counts, and whether the model's own shape is within it."""
    space = config.space
    if space.params_budget is None:
        return
    budget = parse_budget(space.params_budget)
    yield f"{budget} of the whole model; timed are the Gemms of one layer, on one of tp ranks"
    own = baseline(space)
    total = None if own is None else _parameters(space, own)
    if own is not None and total is not None and not budget.low <= total <= budget.high:
        yield f"no baseline: {axis_name(SHAPE)} {value_name(SHAPE, own)} has {total:,} parameters"


def _parameters(space: Space, shape: int) -> int | None:
    """Those of a shape, where all else has one value."""
    each = {name: expand(getattr(space, name)) for name in counting(space)}
    if any(len(values) > 1 for values in each.values()):
        return None
    sizes: dict[str, Any] = {**dimensions(shape), **{name: values[0] for name, values in each.items()}}
    counted = Counted(role=space.roles[0], weights=space.other_weights or {})
    return counted.parameters(Shape(tp=1, batch=1, dtype="", **sizes))
