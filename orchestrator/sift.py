"""Which Points of a role and dtype are measured, why the others are not, and the Gemms of those that are."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from orchestrator.column import Array, Column, InexactError, Mask
from orchestrator.divisibility import laws
from orchestrator.errors import InvalidValueError
from orchestrator.expression import Where
from orchestrator.gemm_columns import Sort
from orchestrator.passes import with_passes
from orchestrator.shape_code import SHAPE
from orchestrator.slate import TOO_LARGE, dimensions, too_large
from orchestrator.slates import Slates
from tasks.gemm import Gemm

UNWANTED = "space.where"
"""The kind of reason of a Point for which the condition does not hold."""

Sizes = tuple[int | Array, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Sifted:
    """The Points of ``slates``, sifted.

    owners: of each Point the number of its Slate. codes: of each Point 0 where it is kept, else the place of its reason
    in ``kinds``. baselines: of each Slate the row of its baseline, -1 where there is none. unmet: why ``space.where``
    does not hold. sorts, sizes: of each part of the Candidates, and b, m, n and k of the Points that are kept, as int64
    or as one number where all have the same.
    """

    slates: Slates
    owners: Array
    codes: Array
    kinds: Sequence[str]
    baselines: Array
    unmet: str
    sorts: Sequence[Sort]
    sizes: Sequence[Sizes]


def sift(slates: Slates, where: Where) -> Sifted:
    """Sift the Points; raise InvalidValueError where the condition cannot be evaluated for one that could be measured.

    The baseline is ``exact`` where it can be sharded, else the next value below that can. ``where`` does not take the
    baseline away, for without it there is nothing to compare with; alone it is no Family.
    """
    owners = slates.owners()
    kinds = [""]
    try:
        codes, lawful, gemms = _lawful(slates, owners, kinds, exact=False)
    except InexactError:
        codes, lawful, gemms = _lawful(slates, owners, kinds, exact=True)
    possible = lawful[codes[lawful] == 0]
    baselines = _baselines(slates, owners, possible)
    if where.text and possible.size:
        wanted = _wanted(slates, possible, owners[possible], where)
        hosts = owners[possible]
        useful = np.bincount(hosts[wanted], minlength=len(slates)) > 0
        kept = useful[hosts] & (wanted | (baselines[hosts] == possible))
        codes[possible[~kept]] = _code(kinds, UNWANTED)
    kept = codes[lawful] == 0
    return Sifted(
        slates=slates,
        owners=owners,
        codes=codes,
        kinds=kinds,
        baselines=baselines,
        unmet=f"space.where ({where.text}) does not hold{_lacking(slates, where)}",
        sorts=[(gemm.kind, gemm.dtype, gemm.layout) for gemm in gemms],
        sizes=[tuple(_kept(size, kept) for size in (gemm.b, gemm.m, gemm.n, gemm.k)) for gemm in gemms],
    )


def _lawful(slates: Slates, owners: Array, kinds: list[str], *, exact: bool) -> tuple[Array, Array, list[Gemm]]:
    """The reason's code of each Point that cannot be measured, else 0; the rows of those that have Gemms, and these.

    Raises InexactError, unless in numbers that are ``exact``.
    """
    codes = np.zeros(len(owners), dtype=np.int8)
    for law in laws(slates.role, slates.points(slice(None), owners, exact=exact)):
        codes[law.broken & (codes == 0)] = _code(kinds, law.kind)
    lawful = np.flatnonzero(codes == 0)
    shape = slates.points(lawful, owners[lawful], exact=exact)
    gemms = [part.gemm for part in with_passes(slates.role.parts(shape), slates.passes)]
    large = np.zeros(len(lawful), dtype=bool)
    for gemm in gemms:
        large |= too_large(gemm)
    codes[lawful[large]] = _code(kinds, TOO_LARGE)
    return codes, lawful, gemms


def _code(kinds: list[str], kind: str) -> int:
    """The place of a kind, which gets one where it has none."""
    if kind not in kinds:
        kinds.append(kind)
    return kinds.index(kind)


def _baselines(slates: Slates, owners: Array, possible: Array) -> Array:
    """Of each Slate the row of the largest value up to its exact baseline, of those that are possible; else -1.

    Of shapes the exact one: the others are not below or above it.
    """
    values, exact = slates.values[possible], slates.exact[owners[possible]]
    below = possible[values == exact if slates.axis == SHAPE else values <= exact]
    found = np.full(len(slates), -1, dtype=np.int64)
    found[owners[below]] = below  # in increasing order: the last stays
    return found


def _wanted(slates: Slates, rows: Array, owners: Array, where: Where) -> Mask:
    """Of some Points whether the condition holds."""
    try:
        known = _dimensions(slates, rows, owners, exact=False)
        return np.broadcast_to(np.asarray(where.evaluate(**known)), rows.shape)
    except (InexactError, InvalidValueError):  # one by one it may hold, or say for which Point it cannot be evaluated
        return _wanted_each(slates, rows, owners, where)


def _wanted_each(slates: Slates, rows: Array, owners: Array, where: Where) -> Mask:
    """The same, Point by Point."""
    known = _dimensions(slates, rows, owners, exact=True)
    sizes = [known.get(name) for name in where.names]
    columns = (size.values.tolist() if isinstance(size, Column) else repeat(size) for size in sizes)
    found = np.empty(len(rows), dtype=bool)
    for place, *point in zip(range(len(rows)), *columns, strict=False):
        try:
            found[place] = where.evaluate(**dict(zip(where.names, point, strict=True)))
        except InvalidValueError:
            whole = slates.slate(int(owners[place])).dimensions(int(slates.values[rows[place]]))
            where.evaluate(**whole)  # says it with all dimensions
            raise
    return found


def _dimensions(slates: Slates, rows: Array, owners: Array, *, exact: bool) -> dict[str, int | None]:
    points = slates.points(rows, owners, exact=exact)
    return dimensions(slates.role, points, slates.axis, slates.fixed, derived=slates.ratio is not None)


def _lacking(slates: Slates, where: Where) -> str:
    """Name what the condition asks for and the role does not have: none of its Points can meet it."""
    known = slates.slate(0).dimensions(int(slates.values[0])) if where.names else {}
    lacking = sorted(name for name in where.names if known.get(name) is None)
    return f": {slates.role.name} has no {' and no '.join(lacking)}" if lacking else ""


def _kept(size: object, rows: Mask) -> int | Array:
    """A size of those that are kept, which are no larger than int64 takes."""
    if isinstance(size, Column):
        return size.values[rows].astype(np.int64, copy=False)
    assert isinstance(size, int)
    return size
