"""All Slates of one role and dtype as columns: a row a Slate, and a row a Point."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
from typing import Any

import numpy as np

from orchestrator.axis import by_ratio, by_ratios, choice, d_ff_values, expand, is_ratio, seed_d_ff_values
from orchestrator.budget_count import Counted
from orchestrator.budget_grid import counting
from orchestrator.budget_search import shapes
from orchestrator.column import Array, Column
from orchestrator.gemm_columns import GemmColumns
from orchestrator.passes import named
from orchestrator.roles import ROLES, Role
from orchestrator.schema import Config, Space
from orchestrator.shape import Shape
from orchestrator.shape_code import SHAPE, dimensions
from orchestrator.slate import Slate, by_ratio_of, divided
from tasks.family import FamilyKey
from tasks.gemm import Gemm

Values = tuple[Sequence[int], int | None]
"""Values in increasing order, and the baseline among them or None."""


class ShapeColumns(Shape):
    """Points of one role and dtype: a dimension that is the same for all is a number, the others are Columns."""

    __slots__ = ()

    def gemm(self, kind: str, b: int, m: int, n: int, k: int, layout: str) -> Gemm:
        """The Gemms of all Points."""
        return GemmColumns(kind=kind, b=b, m=m, n=n, k=k, dtype=self.dtype, layout=layout)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Slates:
    """The Slates of one role and dtype, in the space's order.

    sizes: of each Slate its fixed dimensions, as int64 or as one number where all have the same. values: of ``axis``,
    of all Slates one after the other, each in increasing order: Slate i has those from ``starts[i]`` to
    ``starts[i + 1]``. exact: of each Slate the baseline among its values, 0 where there is none. ratio: the choice of
    d_ff that follows h, where h is chosen. counted: how a whole model's parameters are, where shapes are chosen. fixed:
    dimensions that are not chosen, as a FamilyKey has them.
    """

    role: Role
    dtype: str
    passes: str
    axis: str
    fixed: tuple[str, ...]
    v_multiple: int
    sizes: dict[str, int | Array]
    values: Array
    starts: Array
    exact: Array
    ratio: object
    counted: Counted | None = None

    def __len__(self) -> int:
        return len(self.starts) - 1

    def slate(self, number: int) -> Slate:
        """One of them."""
        sizes: dict[str, Any] = {
            name: size if isinstance(size, int) else int(size[number]) for name, size in self.sizes.items()
        }
        base = Shape(dtype=self.dtype, v_multiple=self.v_multiple, **sizes)
        key = FamilyKey(
            role=self.role.name,
            h=base.h,
            tp=base.tp,
            batch=base.batch,
            seq=base.seq,
            dtype=self.dtype,
            axis=self.axis,
            fixed=tuple((name, base.size(name)) for name in self.fixed),
            passes=self.passes,
        )
        return Slate(key=key, role=self.role, base=base, ratio=self.ratio, counted=self.counted)

    def owners(self) -> Array:
        """Of each Point the number of its Slate."""
        return np.repeat(np.arange(len(self), dtype=np.int32), np.diff(self.starts))

    def points(self, rows: Array | slice, owners: Array, *, exact: bool) -> ShapeColumns:
        """Some of the Points, by their rows and their Slates; ``exact``: in numbers that cannot overflow.

        Raises InexactError.
        """
        sizes: dict[str, Any] = {
            name: size if isinstance(size, int) else Column.of(size[owners], exact=exact)
            for name, size in self.sizes.items()
        }
        chosen = self.values[rows]
        taken = dimensions(chosen) if self.axis == SHAPE else {self.axis: chosen}
        sizes |= {name: Column.of(each, exact=exact) for name, each in taken.items()}
        if self.ratio is not None:
            width: Any = Column.of(_by_ratio(self.ratio, chosen), exact=exact)
            sizes["d_ff"] = divided(width, sizes["tp"])
        return ShapeColumns(dtype=self.dtype, v_multiple=self.v_multiple, **sizes)


def slates(config: Config) -> Iterator[Slates]:
    """Yield the Families that the space asks for, by role and dtype, in the space's order."""
    space = config.space
    passes = named(space.passes)
    choose = _one_dimension if space.params_budget is None else _whole_shapes
    for name, dtype in product(dict.fromkeys(space.roles), dict.fromkeys(space.dtype)):
        role = ROLES[name]
        yield choose(config, role, partial(Slates, role=role, dtype=dtype, passes=passes, v_multiple=space.v_multiple))


def _whole_shapes(config: Config, role: Role, make: Callable[..., Slates]) -> Slates:
    """Slates whose Candidates are the shapes that a budget of parameters allows."""
    space = config.space
    names = counting(space)
    sizes, count = _product({name: expand(getattr(space, name)) for name in ("tp", "batch", "seq", *names)})
    values, starts, exact = shapes(space, role.name, sizes, count)
    return make(
        axis=SHAPE,
        fixed=tuple(names),
        sizes=sizes,
        values=values,
        starts=starts,
        exact=exact,
        ratio=None,
        counted=Counted(role=role.name, weights=space.other_weights or {}),
    )


def _one_dimension(config: Config, role: Role, make: Callable[..., Slates]) -> Slates:
    """Slates whose Candidates differ in ``space.around``."""
    space = config.space
    chosen = space.around in (*role.dimensions, "batch")
    axis = space.around if chosen else role.axis
    sizes, count = _product(_fixed(space, role))
    spec = _spec(space, role, "d_ff") if "d_ff" in role.dimensions else None
    ratio = spec if is_ratio(spec) else None
    if ratio is not None and axis not in ("d_ff", "h"):
        sizes["d_ff"] = _width(ratio, sizes)
    names = [name for name in role.dimensions if name != "h" and name in sizes]
    if not chosen and axis not in sizes:  # d_ff by its ratio
        sizes[axis] = _width(ratio, sizes)
        names.append(axis)
    values, starts, exact = _chosen(config, role, axis, sizes, count) if chosen else _alone(sizes[axis], count)
    return make(
        axis=axis,
        fixed=tuple(names),
        sizes=sizes,
        values=values,
        starts=starts,
        exact=exact,
        ratio=ratio if axis == "h" else None,
    )


def _fixed(space: Space, role: Role) -> dict[str, Sequence[int]]:
    """The values of the dimensions that are not chosen; without what the role or the space does not have."""
    names = ["h", "tp", "batch", *(["seq"] if role.needs_seq else []), *role.dimensions[1:]]
    found: dict[str, Sequence[int]] = {}
    for name in names:
        spec = _spec(space, role, name)
        if name != space.around and spec is not None and not (name == "d_ff" and is_ratio(spec)):
            found[name] = expand(spec)
    return found


def _spec(space: Space, role: Role, name: str) -> object:
    if name == "d_ff" and "topk" in role.dimensions and space.expert_d_ff is not None:
        return space.expert_d_ff
    return getattr(space, name)


def _product(axes: dict[str, Sequence[int]]) -> tuple[dict[str, int | Array], int]:
    """Every combination, the last dimension the fastest, as a column each; how many there are."""
    count = int(np.prod([len(values) for values in axes.values()], dtype=np.int64))
    sizes: dict[str, int | Array] = {}
    inner = count
    for name, values in axes.items():
        inner //= len(values)
        column = np.repeat(np.array(values, dtype=np.int64), inner)
        sizes[name] = values[0] if len(values) == 1 else np.tile(column, count // len(column))
    return sizes, count


def _width(ratio: object, sizes: dict[str, int | Array]) -> int | Array:
    """The d_ff that stands for ratio·h in each Slate."""
    h, tp = sizes["h"], sizes["tp"]
    if isinstance(h, int) and isinstance(tp, int):
        return by_ratio_of(ratio, Shape(tp=tp, batch=1, dtype="", h=h))
    exact: Any = by_ratio(ratio, h) if isinstance(h, int) else _by_ratio(ratio, h)
    ranks: Any = tp
    return divided(exact, ranks)


def _by_ratio(ratio: object, h: Array) -> Array:
    distinct, which = np.unique(h, return_inverse=True)
    return np.array(by_ratios(ratio, distinct.tolist()), dtype=np.int64)[which]


def _alone(size: int | Array, count: int) -> tuple[Array, Array, Array]:
    """One value in each Slate, where the role does not have what is chosen."""
    values = np.broadcast_to(np.asarray(size, dtype=np.int64), (count,))
    return values, np.arange(count + 1), np.zeros(count, dtype=np.int64)


def _chosen(
    config: Config, role: Role, axis: str, sizes: dict[str, int | Array], count: int
) -> tuple[Array, Array, Array]:
    """The values of all Slates, where each Slate's begin, and the baseline of each."""
    spec = _spec(config.space, role, axis)
    if axis != "d_ff" or not is_ratio(spec):
        each, baseline = choice(spec)
        values = np.tile(np.array(each, dtype=np.int64), count)
        return values, np.arange(count + 1) * len(each), np.full(count, baseline or 0, dtype=np.int64)
    of = seed_d_ff_values if config.timing.protocol == "seed" else d_ff_values
    h = sizes["h"]
    distinct = [h] if isinstance(h, int) else list(dict.fromkeys(h.tolist()))
    inner = count // len(distinct)  # h is the slowest dimension
    found: list[Values] = [of(spec, value) for value in distinct]
    by_h = np.array(list(chain.from_iterable(each for each, _ in found)), dtype=np.int64)
    lengths = np.array([len(each) for each, _ in found])
    starts = _starts(np.repeat(lengths, inner))
    shift = np.repeat(_starts(lengths)[:-1], inner) - starts[:-1]
    values = by_h[np.arange(starts[-1]) + np.repeat(shift, np.repeat(lengths, inner))]
    exact = np.repeat(np.array([baseline or 0 for _, baseline in found], dtype=np.int64), inner)
    return values, starts, exact


def _starts(lengths: Array) -> Array:
    return np.concatenate(([0], np.cumsum(lengths)))
