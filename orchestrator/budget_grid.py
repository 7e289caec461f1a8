"""The shapes whose models have as many parameters as a budget allows: all of a grid, counted in columns."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from orchestrator.axis import choice, d_ff_values, is_ratio
from orchestrator.budget import Budget, parse_budget
from orchestrator.budget_count import Counted
from orchestrator.column import Array, Column, InexactError
from orchestrator.cross_checks import MAX_POINTS
from orchestrator.errors import SpaceError
from orchestrator.schema import Space
from orchestrator.shape import Shape
from orchestrator.shape_code import code, dimensions

AT_ONCE = 1_000_000
"""Shapes that are counted together."""

Sizes = Mapping[str, int | Array]


def shapes(space: Space, role: str, sizes: Sizes, count: int) -> tuple[Array, Array, Array]:
    """The shapes of ``count`` Slates, where each one's begin, and of each the baseline or 0.

    sizes: of the Slates, as ``Slates`` has them. Raises SpaceError where there are no shapes for one of them, and says
    what comes nearest.
    """
    budget = parse_budget(space.params_budget)
    counted = Counted(role=role, weights=space.other_weights or {})
    names = counting(space)
    columns = [np.broadcast_to(np.asarray(sizes[name], dtype=np.int64), (count,)) for name in names]
    distinct, which = np.unique(np.stack(columns), axis=1, return_inverse=True)
    found = [
        _Search(budget=budget, counted=counted, fixed=dict(zip(names, map(int, each), strict=True)))
        for each in distinct.T
    ]
    for search in found:
        search.run(space)
    if wrong := [text for search in found if (text := search.complaint())]:
        raise SpaceError("\n".join(wrong))
    own = [search.codes() for search in found]
    each = which.reshape(-1).tolist()
    exact = baseline(space)
    starts = np.cumsum([0, *(len(own[place]) for place in each)])
    if starts[-1] > MAX_POINTS:
        raise SpaceError(
            f"space.params_budget: {starts[-1]} points; at most {MAX_POINTS} are planned at once: use a larger step in "
            "space.d_ff or space.h, or a smaller tolerance"
        )
    values = np.concatenate([own[place] for place in each])
    return values, starts, np.full(count, exact or 0, dtype=np.int64)


def counting(space: Space) -> list[str]:
    """The dimensions on which a count of parameters depends, beside those that are chosen; the space has them."""
    known = ["layers", "v", "kv", *(["head_dim"] if space.a is not None else [])]
    return [name for name in known if getattr(space, name) is not None]


def baseline(space: Space) -> int | None:
    """The shape that the others are compared with: every part of it is named as such, or has no other value."""
    h = _baseline(space.h)
    if h is None:
        return None
    d_ff = d_ff_values(space.d_ff, h)[1] if is_ratio(space.d_ff) else _baseline(space.d_ff)
    head = None if space.head_dim is None else _baseline(space.head_dim)
    a = _baseline(space.a) if space.a is not None else h // head if head else None
    return None if d_ff is None or a is None else int(code(h, d_ff, a))


def _baseline(axis: object) -> int | None:
    values, named = choice(axis)
    return values[0] if len(values) == 1 else named


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
        for h, d_ff, a in grid(space):
            total = self._total(h, d_ff, a)
            inside = (total >= self.budget.low) & (total <= self.budget.high)
            self.kept.append(code(h[inside], d_ff[inside], a[inside]))
            self._note(total, code(h, d_ff, a))

    def codes(self) -> Array:
        return np.unique(np.concatenate(self.kept))

    def complaint(self) -> str:
        """Why there is no shape, or ""."""
        if any(len(each) for each in self.kept):
            return ""
        at = " ".join(f"{name}={value}" for name, value in self.fixed.items())
        if not self.kept:
            return "space.params_budget: no h of space.h is a whole number of heads: see space.head_dim and space.a"
        near = [f"the next {word} has {_shape(each)}" for word, each in self._near() if each]
        return f"space.params_budget: no shape has {self.budget} at {at}: {'; '.join(near)}. {self._advice()}"

    def _near(self) -> Sequence[tuple[str, tuple[int, int] | None]]:
        return ("smaller", self.under), ("larger", self.over)

    def _advice(self) -> str:
        if self.over is None:
            return "Larger values of space.h, space.d_ff or space.layers reach it"
        if self.under is None:
            return "Smaller values of space.h, space.d_ff or space.layers reach it"
        return "A smaller step of space.d_ff or space.h reaches it, or a wider tolerance"

    def _total(self, h: Array, d_ff: Array, a: Array) -> Array:
        try:
            return self._counted(h, d_ff, a, exact=False)
        except InexactError:
            return self._counted(h, d_ff, a, exact=True)

    def _counted(self, h: Array, d_ff: Array, a: Array, *, exact: bool) -> Array:
        chosen = {"h": h, "d_ff": d_ff, "a": a}
        columns: dict[str, Any] = {name: Column.of(each, exact=exact) for name, each in chosen.items()}
        total: Any = self.counted.parameters(Shape(tp=1, batch=1, dtype="", **columns, **self.fixed))
        found: Array = total.values
        return found

    def _note(self, total: Array, codes: Array) -> None:
        for name, outside, pick in (
            ("under", total < self.budget.low, np.argmax),
            ("over", total > self.budget.high, np.argmin),
        ):
            if not outside.any():
                continue
            place = int(pick(total[outside]))
            near = int(total[outside][place]), int(codes[outside][place])
            known = getattr(self, name)
            if known is None or abs(near[0] - self.budget.low) < abs(known[0] - self.budget.low):
                setattr(self, name, near)


def _shape(near: tuple[int, int]) -> str:
    total, number = near
    sizes = " ".join(f"{name}={size}" for name, size in dimensions(number).items())
    return f"{total:,} ({sizes})"


def grid(space: Space) -> Iterator[tuple[Array, Array, Array]]:
    """Yield h, d_ff and a of all shapes of the grid, about AT_ONCE at a time.

    a is h / head_dim for each head_dim that divides h; of the values of ``space.a``, where it is given, those that h
    has room for. Where d_ff follows h by a ratio, ratio·h itself is among its values for the baseline's h only.
    """
    sizes, known = choice(space.h)
    own = known if known is not None else sizes[0] if len(sizes) == 1 else None
    pending: list[tuple[Array, Array, Array]] = []
    waiting = 0
    for h in sizes:
        heads, widths = np.array(_heads(space, h), dtype=np.int64), _widths(space, h, own=h == own)
        if not len(heads):
            continue
        count = len(heads) * len(widths)
        pending.append((np.full(count, h, dtype=np.int64), np.tile(widths, len(heads)), np.repeat(heads, len(widths))))
        waiting += count
        if waiting >= AT_ONCE:
            yield _joined(pending)
            pending, waiting = [], 0
    if pending:
        yield _joined(pending)


def _joined(parts: list[tuple[Array, Array, Array]]) -> tuple[Array, Array, Array]:
    h, d_ff, a = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return h, d_ff, a


def _heads(space: Space, h: int) -> Sequence[int]:
    if space.a is None:
        return [h // size for size in choice(space.head_dim)[0] if h % size == 0]
    return [a for a in choice(space.a)[0] if space.head_dim is not None or h % a == 0]


def _widths(space: Space, h: int, *, own: bool) -> Array:
    if not is_ratio(space.d_ff):
        return np.array(choice(space.d_ff)[0], dtype=np.int64)
    values, exact = d_ff_values(space.d_ff, h)
    found = np.array(values, dtype=np.int64)
    return found if own else found[(found != exact) | (found % space.d_ff["step"] == 0)]
