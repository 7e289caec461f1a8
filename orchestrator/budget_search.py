"""The shapes whose models have as many parameters as a budget allows: all of a grid, counted in columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.budget import Budget, parse_budget
from orchestrator.budget_count import Counted
from orchestrator.budget_grid import Shapes, baseline, counting, grid
from orchestrator.column import Array, Column, InexactError
from orchestrator.cross_checks import MAX_POINTS
from orchestrator.errors import SpaceError
from orchestrator.schema import Space
from orchestrator.shape import Shape
from orchestrator.shape_code import code, dimensions

KEY = "space.params_budget"

Sizes = Mapping[str, int | Array]


def shapes(space: Space, role: str, sizes: Sizes, count: int) -> tuple[Array, Array, Array]:
    """The shapes of ``count`` Slates, where each one's begin, and of each the baseline or 0.

    sizes: of the Slates, as ``Slates`` has them. Raises SpaceError where there are no shapes for one of them, and says
    what comes nearest.
    """
    names = counting(space)
    columns = [np.broadcast_to(np.asarray(sizes[name], dtype=np.int64), (count,)) for name in names]
    distinct, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
    own = _found(space, role, [dict(zip(names, map(int, each), strict=True)) for each in distinct.T])
    each = which.reshape(-1).tolist()
    starts = np.cumsum([0, *(len(own[place]) for place in each)])
    if starts[-1] > MAX_POINTS:
        advice = "use a larger step in space.d_ff or space.h, or a smaller tolerance"
        raise SpaceError(f"{KEY}: {starts[-1]} points; at most {MAX_POINTS} are planned at once: {advice}")
    values = np.concatenate([own[place] for place in each])
    return values, starts, np.full(count, baseline(space) or 0, dtype=np.int64)


def _found(space: Space, role: str, every: Sequence[Mapping[str, int]]) -> list[Array]:
    """The shapes for each of some values of the dimensions that are not chosen."""
    counted = Counted(role=role, weights=space.other_weights or {})
    budget = parse_budget(space.params_budget)
    searches = [_Search(budget=budget, counted=counted, fixed=fixed) for fixed in every]
    for search in searches:
        search.run(space)
    if wrong := [text for search in searches if (text := search.complaint())]:
        raise SpaceError("\n".join(wrong))
    return [search.codes() for search in searches]


@dataclass(kw_only=True, slots=True)
class _Search:
    """The shapes for one value of each dimension that is not chosen.

    kept: their numbers. under, over: the nearest outside the budget, as parameters and number.
    """

    budget: Budget
    counted: Counted
    fixed: Mapping[str, int]
    kept: list[Array] = field(default_factory=list)
    under: tuple[int, int] | None = None
    over: tuple[int, int] | None = None

    def run(self, space: Space) -> None:
        """Count all shapes of the grid."""
        for part in grid(space):
            total, codes = self._total(part), code(*part)
            below, above = total < self.budget.low, total > self.budget.high
            self.kept.append(codes[~(below | above)])
            self.under = max(_known(self.under, total[below], codes[below], np.argmax), default=None)
            self.over = min(_known(self.over, total[above], codes[above], np.argmin), default=None)

    def codes(self) -> Array:
        """The numbers of the shapes, in increasing order."""
        return np.unique(np.concatenate(self.kept))

    def complaint(self) -> str:
        """Why there is no shape, or ""."""
        if any(len(each) for each in self.kept):
            return ""
        if not self.kept:
            return f"{KEY}: no h of space.h is a whole number of heads: see space.head_dim and space.a"
        at = " ".join(f"{name}={value}" for name, value in self.fixed.items())
        near = (("smaller", self.under), ("larger", self.over))
        told = "; ".join(f"the next {word} has {_shape(each)}" for word, each in near if each is not None)
        return f"{KEY}: no shape has {self.budget} at {at}: {told}. {self._advice()}"

    def _advice(self) -> str:
        if self.over is None:
            return "Larger values of space.h, space.d_ff or space.layers reach it"
        if self.under is None:
            return "Smaller values of space.h, space.d_ff or space.layers reach it"
        return "A smaller step of space.d_ff or space.h reaches it, or a wider tolerance"

    def _total(self, part: Shapes) -> Array:
        try:
            return self._counted(part, exact=False)
        except InexactError:
            return self._counted(part, exact=True)

    def _counted(self, part: Shapes, *, exact: bool) -> Array:
        h, d_ff, a = (Column.of(each, exact=exact) for each in part)
        columns: dict[str, Any] = {"h": h, "d_ff": d_ff, "a": a}
        total: Any = self.counted.parameters(Shape(tp=1, batch=1, dtype="", **columns, **self.fixed))
        found: Array = total.values
        return found


def _known(former: tuple[int, int] | None, total: Array, codes: Array, pick: Any) -> Iterator[tuple[int, int]]:
    """What was the nearest so far, and the nearest of some more."""
    if former is not None:
        yield former
    if len(total):
        place = int(pick(total))
        yield int(total[place]), int(codes[place])


def _shape(near: tuple[int, int]) -> str:
    total, number = near
    sizes = " ".join(f"{name}={size}" for name, size in dimensions(number).items())
    return f"{total:,} ({sizes})"
