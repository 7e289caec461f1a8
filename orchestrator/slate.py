"""Who competes in one Family: the values of the chosen dimension, and the Point that each of them makes."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from orchestrator.axis import by_ratio, choice, d_ff_values, expand, is_ratio, seed_d_ff_values
from orchestrator.divisibility import Refusal, refusal
from orchestrator.passes import named, with_passes
from orchestrator.roles import ROLES, Role
from orchestrator.schema import Config, Space
from orchestrator.shape import Shape
from tasks.family import Candidate, Dimensions, FamilyKey

Values = tuple[Sequence[int], int | None]
"""Values in increasing order, and the baseline among them or None."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slate:
    """One Family before its Candidates are made.

    values: of ``key.axis``, in increasing order; exact: the baseline among them, or None. base: the Point without the
    chosen dimension. ratio: the choice of d_ff that follows h, where h is chosen.
    """

    key: FamilyKey
    role: Role
    values: Sequence[int]
    exact: int | None
    base: Shape
    ratio: object = None

    def shape(self, value: int) -> Shape:
        """The Point of one value."""
        chosen = self.base.having(self.key.axis, value)
        return chosen if self.ratio is None else replace(chosen, d_ff=_by_ratio(self.ratio, chosen))

    def candidate(self, value: int) -> Candidate | Refusal:
        """The Candidate of a value, or why it cannot be sharded."""
        shape = self.shape(value)
        refused = refusal(self.role, shape)
        if refused is not None:
            return refused
        return Candidate(
            value=value,
            parts=with_passes(self.role.parts(shape), self.key.passes),
            follows=self._follows(shape),
            params=self.role.params(shape),
            local_dim=_local(self.key.axis, self.role, shape),
        )

    def dimensions(self, value: int) -> dict[str, int | None]:
        """What ``space.where`` may name of this Point; None for what the role does not have."""
        shape = self.shape(value)
        known = {**self.key.dimensions(Candidate(value=value, parts=())), **dict(self._follows(shape))}
        h = known.pop("h", None)
        return {"h": h, "tp": shape.tp, "batch": shape.batch, "seq": shape.seq, **known}

    def _follows(self, shape: Shape) -> Dimensions:
        derived: dict[str, int] = {}
        if self.ratio is not None:
            derived["d_ff"] = shape.size("d_ff")
        if "kv" in self.role.dimensions and shape.kv is None:
            derived["kv"] = shape.key_value_heads
        if "head_dim" in self.role.dimensions and shape.head_dim is None:
            derived["head_dim"] = shape.head
        return tuple(derived.items())


def slates(config: Config) -> Iterator[Slate]:
    """Yield every Family that the space asks for, in the space's order."""
    space = config.space
    passes = named(space.passes)
    for name, dtype in itertools.product(dict.fromkeys(space.roles), dict.fromkeys(space.dtype)):
        role = ROLES[name]
        for sizes in _products(space, role):
            base = Shape(dtype=dtype, v_multiple=space.v_multiple, **sizes)
            yield _slate(config, role, base, passes)


def _products(space: Space, role: Role) -> Iterator[dict[str, int]]:
    """Every combination of what is not chosen; without what the role or the space does not have."""
    names = ["h", "tp", "batch", *(["seq"] if role.needs_seq else []), *role.dimensions[1:]]
    axes = {name: values for name in names if (values := _fixed_values(space, role, name)) is not None}
    for combination in itertools.product(*axes.values()):
        yield dict(zip(axes, combination, strict=True))


def _fixed_values(space: Space, role: Role, name: str) -> Sequence[int] | None:
    """The values of a dimension that is not chosen, None where there is none or it is chosen or follows another."""
    if name == space.around:
        return None
    spec = _spec(space, role, name)
    return None if spec is None or (name == "d_ff" and is_ratio(spec)) else expand(spec)


def _spec(space: Space, role: Role, name: str) -> object:
    if name == "d_ff" and "topk" in role.dimensions and space.expert_d_ff is not None:
        return space.expert_d_ff
    return getattr(space, name)


def _slate(config: Config, role: Role, base: Shape, passes: str) -> Slate:
    space = config.space
    chosen = space.around in role.dimensions
    axis = space.around if chosen else role.axis
    spec = _spec(space, role, "d_ff") if "d_ff" in role.dimensions else None
    ratio = spec if is_ratio(spec) and axis != "d_ff" else None
    if ratio is not None and axis != "h":  # where h is chosen it follows Candidate by Candidate
        base, ratio = replace(base, d_ff=_by_ratio(ratio, base)), None
    if chosen:
        values, exact = _choice(config, role, axis, base)
    elif axis == "d_ff" and is_ratio(spec):
        values, exact = (_by_ratio(spec, base),), None
    else:
        values, exact = (base.size(axis),), None
    fixed = [name for name in role.dimensions if name != "h" and getattr(base, name) is not None]
    if not chosen and axis not in fixed:
        fixed.append(axis)
        base = base.having(axis, values[0])
    key = FamilyKey(
        role=role.name,
        h=base.h,
        tp=base.tp,
        batch=base.batch,
        seq=base.seq,
        dtype=base.dtype,
        axis=axis,
        fixed=tuple((name, base.size(name)) for name in fixed),
        passes=passes,
    )
    return Slate(key=key, role=role, values=values, exact=exact, base=base, ratio=ratio)


def _by_ratio(spec: object, shape: Shape) -> int:
    """The d_ff that stands for ratio·h where it is not what is chosen: the largest one up to it that tp divides."""
    exact = by_ratio(spec, shape.size("h"))
    return max(exact // shape.tp, 1) * shape.tp


def _choice(config: Config, role: Role, axis: str, base: Shape) -> Values:
    spec = _spec(config.space, role, axis)
    if axis != "d_ff":
        return choice(spec)
    of = seed_d_ff_values if config.timing.protocol == "seed" else d_ff_values
    return of(spec, base.size("h"))


def _local(axis: str, role: Role, shape: Shape) -> int:
    """What one rank holds of the dimension that the choice aligns."""
    if axis == "d_ff":
        return shape.local_d_ff
    if axis == "v":
        return shape.padded_v // shape.tp
    if "head_dim" in role.dimensions and (axis in ("a", "kv") or shape.head_dim is None):
        return shape.head
    return shape.local_experts if axis == "experts" and "ep" in role.dimensions else shape.size(axis)
