"""The grid of shapes that a budget of parameters chooses from, and what else of a space a count depends on."""

from collections.abc import Iterator, Sequence

import numpy as np

from orchestrator.axis import choice, d_ff_values, is_ratio
from orchestrator.column import Array
from orchestrator.schema import Space
from orchestrator.shape_code import code

AT_ONCE = 1_000_000
"""Shapes that are counted together."""

Shapes = tuple[Array, Array, Array]
"""h, d_ff and a."""


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


def grid(space: Space) -> Iterator[Shapes]:
    """Yield all shapes of the grid, about AT_ONCE at a time.

    a is h / head_dim for each head_dim that divides h; of the values of ``space.a``, where it is given, those that h
    has room for. Where d_ff follows h by a ratio, ratio·h itself is among its values for the baseline's h only.
    """
    own = _baseline(space.h)
    pending: list[Shapes] = []
    waiting = 0
    for h in choice(space.h)[0]:
        heads, widths = np.array(_heads(space, h), dtype=np.int64), _widths(space, h, own=h == own)
        count = len(heads) * len(widths)
        pending.append((np.full(count, h, dtype=np.int64), np.tile(widths, len(heads)), np.repeat(heads, len(widths))))
        waiting += count
        if waiting >= AT_ONCE:
            yield _joined(pending)
            pending, waiting = [], 0
    if waiting:
        yield _joined(pending)


def _joined(parts: Sequence[Shapes]) -> Shapes:
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
