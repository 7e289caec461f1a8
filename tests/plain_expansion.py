"""The expansion written Point by Point, in plain Python: what the columns must come to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from orchestrator.axis import by_ratio, choice, d_ff_values, expand, is_ratio, seed_d_ff_values
from orchestrator.divisibility import refusal
from orchestrator.expression import Where
from orchestrator.passes import named, with_passes
from orchestrator.roles import ROLES, Role
from orchestrator.schema import Config
from orchestrator.shape import Shape
from orchestrator.skips import Skip
from tasks.family import Candidate, Family, FamilyKey
from tasks.gemm import Gemm


@dataclass
class Plain:
    points: int = 0
    families: list[Family] = field(default_factory=list)
    skips: list[Skip] = field(default_factory=list)


def plain(config: Config) -> Plain:
    """Families, skips and how many Points there are, in the space's order."""
    found = Plain()
    for name, dtype in product(config.space.roles, config.space.dtype):
        role = ROLES[name]
        for sizes in combinations(config, role):
            shape = Shape(dtype=dtype, v_multiple=config.space.v_multiple, **sizes)
            family(config, role, shape, found)
    return found


def spec_of(config: Config, role: Role, name: str) -> Any:
    own = name == "d_ff" and "topk" in role.dimensions and config.space.expert_d_ff is not None
    return config.space.expert_d_ff if own else getattr(config.space, name)


def combinations(config: Config, role: Role) -> Iterator[dict[str, int]]:
    names = ["h", "tp", "batch", *(["seq"] if role.needs_seq else []), *role.dimensions[1:]]
    specs = {name: spec_of(config, role, name) for name in names if name != config.space.around}
    fixed = {name: spec for name, spec in specs.items() if spec is not None and not (name == "d_ff" and is_ratio(spec))}
    for values in product(*map(expand, fixed.values())):
        yield dict(zip(fixed, values, strict=True))


def brought_down(spec: object, shape: Shape) -> int:
    exact = by_ratio(spec, shape.size("h"))
    return max(value for value in (exact - exact % shape.tp, shape.tp) if value)


def family(config: Config, role: Role, base: Shape, found: Plain) -> None:
    chosen = config.space.around in (*role.dimensions, "batch")
    axis = config.space.around if chosen else role.axis
    width = spec_of(config, role, "d_ff") if "d_ff" in role.dimensions else None
    follows_h = axis == "h" and is_ratio(width)
    if is_ratio(width) and axis not in ("h", "d_ff"):
        base = replace(base, d_ff=brought_down(width, base))
    fixed = [name for name in role.dimensions if name != "h" and getattr(base, name) is not None]
    if not chosen and base.d_ff is None and axis == "d_ff":
        base = replace(base, d_ff=brought_down(width, base))
    values, exact = values_of(config, role, axis, base) if chosen else ((base.size(axis),), None)
    if not chosen and axis not in fixed:
        fixed.append(axis)
    key: dict[str, Any] = {
        "role": role.name,
        "h": base.h,
        "tp": base.tp,
        "batch": base.batch,
        "seq": base.seq,
        "dtype": base.dtype,
        "axis": axis,
        "fixed": tuple((name, base.size(name)) for name in fixed),
        "passes": named(config.space.passes),
    }
    found.points += len(values)
    where = Where(config.space.where)
    candidates: dict[int, Candidate] = {}
    reasons: dict[int, tuple[str, str]] = {}
    holds: dict[int, bool] = {}
    for value in values:
        shape = base.having(axis, value)
        if follows_h:
            shape = replace(shape, d_ff=brought_down(width, shape))
        made = candidate(role, shape, axis, value, key["passes"], d_ff=follows_h)
        if isinstance(made, Candidate):
            candidates[value] = made
            known = FamilyKey(**key).dimensions(made)
            holds[value] = where.evaluate(tp=shape.tp, seq=shape.seq, **{"batch": shape.size("batch"), **known})
            lacking = {name for name in where.names if name not in known and getattr(shape, name, None) is None}
        else:
            reasons[value] = made
    below = [value for value in candidates if exact is not None and value <= exact]
    for value in candidates:
        if not (any(holds.values()) and (holds[value] or value in below[-1:])):
            no = f": {role.name} has no {' and no '.join(sorted(lacking))}" if lacking else ""
            reasons[value] = ("space.where", f"space.where ({config.space.where}) does not hold{no}")
    found.skips += [
        Skip(**key, value=value, points=1, kind=reasons[value][0], reason=reasons[value][1])
        for value in values
        if value in reasons
    ]
    left = [replace(made, baseline=v in below[-1:]) for v, made in candidates.items() if v not in reasons]
    if left:
        found.families.append(Family(**key, candidates=tuple(left)))


def values_of(config: Config, role: Role, axis: str, base: Shape) -> tuple[Sequence[int], int | None]:
    spec = spec_of(config, role, axis)
    if axis != "d_ff":
        return choice(spec)
    return (seed_d_ff_values if config.timing.protocol == "seed" else d_ff_values)(spec, base.size("h"))


def candidate(
    role: Role, shape: Shape, axis: str, value: int, passes: str, *, d_ff: bool
) -> Candidate | tuple[str, str]:
    if found := refusal(role, shape):
        return found
    parts = with_passes(role.parts(shape), passes)
    if any(max(part.gemm.flops, part.gemm.bytes) >= 2**60 for part in parts):
        return "too large to count", f"{axis}={value} takes 2^60 FLOPs or bytes, or more"
    follows = {"d_ff": shape.d_ff} if d_ff else {}
    if "kv" in role.dimensions and shape.kv is None:
        follows["kv"] = shape.a
    if "head_dim" in role.dimensions and shape.head_dim is None:
        follows["head_dim"] = shape.head
    return Candidate(
        value=value,
        parts=parts,
        follows=tuple((name, size) for name, size in follows.items() if size is not None),
        params=role.params(shape),
        local_dim=local_dim(role, shape, axis),
    )


def local_dim(role: Role, shape: Shape, axis: str) -> int:
    if axis == "d_ff":
        return shape.size("d_ff") // shape.tp
    if axis == "batch":
        return shape.size("batch") * (shape.seq or 1)
    if axis == "v":
        return shape.padded_v // shape.tp
    if axis in ("a", "kv") or ("head_dim" in role.dimensions and shape.head_dim is None):
        return shape.head
    return shape.size("experts") // shape.ep if axis == "experts" and "ep" in role.dimensions else shape.size(axis)


def hosts(families: Sequence[Family]) -> list[list[int]]:
    """The Families measured together, by their places: each after the one that has all its Gemms; larger ones first."""
    sets = [frozenset(each.gemms) for each in families]
    found: dict[int, list[int]] = {}
    for place in sorted(range(len(families)), key=lambda place: -len(sets[place])):
        host = next((other for other in found if sets[place] <= sets[other]), place)
        found.setdefault(host, []).append(place)
    return [found[host] for host in sorted(found)]


def distinct(families: Sequence[Family]) -> set[Gemm]:
    return {part.gemm for each in families for made in each.candidates for part in made.parts}
