"""Who competes in one Family: the values of the chosen dimension, and the Point that each of them makes."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import gcd
from typing import Any

from orchestrator.axis import by_ratio
from orchestrator.budget_count import Counted
from orchestrator.divisibility import Refusal, refusal
from orchestrator.passes import with_passes
from orchestrator.roles import Role
from orchestrator.shape import Shape, at_least_one
from orchestrator.shape_code import CHOSEN, SHAPE, axis_name, value_name
from orchestrator.shape_code import dimensions as chosen_dimensions
from tasks.family import Candidate, Dimensions, FamilyKey
from tasks.gemm import Gemm

MAX_BITS = 60
"""FLOPs and bytes are stored as 64-bit integers, and summed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slate:
    """One Family before its Candidates are made.

    base: the Point without the chosen dimension, ``key.axis``. ratio: the choice of d_ff that follows h, where h is
    chosen. counted: how a whole model's parameters are, where shapes are chosen.
    """

    key: FamilyKey
    role: Role
    base: Shape
    ratio: object = None
    counted: Counted | None = None

    def shape(self, value: int) -> Shape:
        """The Point of one value."""
        if self.key.axis == SHAPE:
            return replace(self.base, **chosen_dimensions(value))
        chosen = self.base.having(self.key.axis, value)
        return chosen if self.ratio is None else replace(chosen, d_ff=by_ratio_of(self.ratio, chosen))

    def refusal(self, value: int) -> Refusal:
        """Why there is no Candidate of a value: the kind of reason and the reason."""
        named = f"{axis_name(self.key.axis)}={value_name(self.key.axis, value)}"
        too_many = TOO_LARGE, f"{named} takes 2^{MAX_BITS} FLOPs or bytes, or more"
        return refusal(self.role, self.shape(value)) or too_many

    def candidate(self, value: int, *, baseline: bool = False) -> Candidate:
        """The Candidate of a value that can be measured."""
        shape = self.shape(value)
        return Candidate(
            value=value,
            parts=with_passes(self.role.parts(shape), self.key.passes),
            baseline=baseline,
            follows=follows(self.role, shape, self.key.axis, derived=self.ratio is not None),
            params=self.role.params(shape) if self.counted is None else self.counted.parameters(shape),
            local_dim=_local(self.key.axis, self.role, shape),
        )

    def dimensions(self, value: int) -> dict[str, int | None]:
        """What ``space.where`` may name of the Point of a value."""
        names = [name for name, _ in self.key.fixed]
        return dimensions(self.role, self.shape(value), self.key.axis, names, derived=self.ratio is not None)


TOO_LARGE = "too large to count"
"""The kind of reason of a Point whose FLOPs or bytes are."""


def too_large(gemm: Gemm) -> bool:
    """Whether FLOPs or bytes are too many to be stored; a mask of GemmColumns."""
    most: int = 2**MAX_BITS
    return (gemm.flops >= most) | (gemm.bytes >= most)


def dimensions(role: Role, shape: Shape, axis: str, fixed: Sequence[str], *, derived: bool) -> dict[str, int | None]:
    """What ``space.where`` may name of a Point, or of many; None, or absent, for what the role does not have.

    axis, fixed, derived: the dimension that is chosen, those that are not, and whether d_ff follows h.
    """
    known: dict[str, int | None] = {"h": shape.h, "tp": shape.tp, "batch": shape.batch, "seq": shape.seq}
    known |= {name: shape.size(name) for name in (*fixed, *([] if axis == SHAPE else [axis]))}
    return known | dict(follows(role, shape, axis, derived=derived))


def follows(role: Role, shape: Shape, axis: str, *, derived: bool) -> Dimensions:
    """The dimensions that change with the value that is chosen."""
    found = {name: shape.size(name) for name in CHOSEN} if axis == SHAPE else {}
    if derived:
        found["d_ff"] = shape.size("d_ff")
    if "kv" in role.dimensions and shape.kv is None:
        found["kv"] = shape.key_value_heads
    if "head_dim" in role.dimensions and shape.head_dim is None:
        found["head_dim"] = shape.head
    return tuple(found.items())


def by_ratio_of(spec: object, shape: Shape) -> int:
    """The d_ff that stands for ratio·h where it is not what is chosen: the largest one up to it that tp divides."""
    return divided(by_ratio(spec, shape.size("h")), shape.tp)


def divided(width: int, tp: int) -> int:
    """The largest multiple of ``tp`` up to ``width``, at least one."""
    return at_least_one(width // tp) * tp


def key_fields(key: FamilyKey) -> dict[str, Any]:
    """A FamilyKey's fields by name."""
    return {field.name: getattr(key, field.name) for field in fields(FamilyKey)}


def _local(axis: str, role: Role, shape: Shape) -> int:
    """What one rank holds of the dimension that the choice aligns."""
    if axis == "d_ff":
        return shape.local_d_ff
    if axis == "batch":
        return shape.tokens
    if axis == SHAPE:
        return gcd(shape.size("h"), shape.local_d_ff, shape.head)
    if axis == "v":
        return shape.padded_v // shape.tp
    if "head_dim" in role.dimensions and (axis in ("a", "kv") or shape.head_dim is None):
        return shape.head
    return shape.local_experts if axis == "experts" and "ep" in role.dimensions else shape.size(axis)
