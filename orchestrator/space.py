"""Expansion of the search space: Points, their Gemms, Families of Candidates, and Bundles that share Gemms.

A Point is one logical configuration (role, h, tp, batch, seq, dtype, d_ff, …): a Family with one of its Candidates.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from orchestrator.errors import InvalidValueError, SpaceError
from orchestrator.expression import Where
from orchestrator.schema import Config
from orchestrator.slate import Slate, slates
from tasks.family import Bundle, Candidate, Family, FamilyKey
from tasks.gemm import Gemm

MAX_BITS = 60
"""FLOPs and bytes are stored as 64-bit integers, and summed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip(FamilyKey):
    """Points that are not measured, and why: one Point, or a whole Family where ``value`` is None."""

    value: int | None
    points: int
    kind: str  # the reason without its numbers, for counting
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """What a configuration asks for. points: before skips; gemms: distinct ones, each measured once a Bundle."""

    families: tuple[Family, ...]
    bundles: tuple[Bundle, ...]
    points: int
    gemms: int
    skips: tuple[Skip, ...]


def expand_space(config: Config) -> Expansion:
    """Expand ``config.space``; raise SpaceError, which says why, where nothing is left to measure."""
    where = Where(config.space.where)
    families: list[Family] = []
    skips: list[Skip] = []
    points = 0
    for slate in slates(config):
        points += len(slate.values)
        untimed = _untimed(config, slate.key, len(slate.values))
        if untimed is not None:
            skips.append(untimed)
            continue
        try:
            family, left_out = _family(slate, where)
        except InvalidValueError as error:
            raise SpaceError(f"space.where: {error}") from error
        skips.extend(left_out)
        if family is not None:
            families.append(family)
    if not families:
        raise SpaceError(_empty(config, points, skips))
    bundles = bundle(families)
    gemms = len({gemm for each in bundles for gemm in each.gemms})
    return Expansion(families=tuple(families), bundles=bundles, points=points, gemms=gemms, skips=tuple(skips))


def _untimed(config: Config, key: FamilyKey, points: int) -> Skip | None:
    """Refuse what the seed's protocol does not time."""
    if config.timing.protocol != "seed" or (key.role, key.dtype, key.passes) == ("seed_bmm", "fp16", "fwd"):
        return None
    kind = "protocol seed times seed_bmm in fp16 only"
    passes = "" if key.passes == "fwd" else f" ({key.passes})"
    reason = f"timing.protocol=seed times role seed_bmm in fp16 only, not {key.role} in {key.dtype}{passes}"
    return Skip(**_fields(key), value=None, points=points, kind=kind, reason=reason)


def _family(slate: Slate, where: Where) -> tuple[Family | None, list[Skip]]:
    """The Family of one slate, None where it comes out empty, and what was left out.

    The baseline is ``exact`` where it can be sharded, else the next value below that can. ``where`` does not take the
    baseline away, for without it there is nothing to compare with; alone it is no Family.
    """
    reasons: dict[int, tuple[str, str]] = {}
    possible: dict[int, Candidate] = {}
    for value in slate.values:
        made = _candidate(slate, value)
        if isinstance(made, Candidate):
            possible[value] = made
        else:
            reasons[value] = made
    exact = slate.exact
    baseline = None if exact is None else max((value for value in possible if value <= exact), default=None)
    wanted = {value for value in possible if where.evaluate(**slate.dimensions(value))} if where.text else {*possible}
    unmet = f"space.where ({where.text}) does not hold{_lacking(slate, where)}"
    for value in possible:
        if not wanted or not (value in wanted or value == baseline):
            reasons[value] = ("space.where", unmet)
    candidates = tuple(
        replace(made, baseline=True) if value == baseline else made
        for value, made in possible.items()
        if value not in reasons
    )
    key = _fields(slate.key)
    skips = [
        Skip(**key, value=value, points=1, kind=reasons[value][0], reason=reasons[value][1])
        for value in slate.values
        if value in reasons
    ]
    return Family(**key, candidates=candidates) if candidates else None, skips


def _lacking(slate: Slate, where: Where) -> str:
    """Name what the condition asks for and the role does not have: none of its Points can meet it."""
    known = slate.dimensions(slate.values[0]) if where.names else {}
    lacking = sorted(name for name in where.names if known.get(name) is None)
    return f": {slate.role.name} has no {' and no '.join(lacking)}" if lacking else ""


def _fields(key: FamilyKey) -> dict[str, Any]:
    return {field.name: getattr(key, field.name) for field in fields(FamilyKey)}


def _candidate(slate: Slate, value: int) -> Candidate | tuple[str, str]:
    """The Candidate, or why there is none: the kind of reason and the reason."""
    made = slate.candidate(value)
    if isinstance(made, Candidate) and _too_large(made):
        return "too large to count", f"{slate.key.axis}={value} takes 2^{MAX_BITS} FLOPs or bytes, or more"
    return made


def _too_large(made: Candidate) -> bool:
    return any(max(part.gemm.flops, part.gemm.bytes) >= 2**MAX_BITS for part in made.parts)


def reasons(skips: Iterable[Skip]) -> dict[str, int]:
    """How many Points are skipped for each kind of reason, most first."""
    counts: dict[str, int] = {}
    for skip in skips:
        counts[skip.kind] = counts.get(skip.kind, 0) + skip.points
    return dict(sorted(counts.items(), key=lambda item: -item[1]))


def _empty(config: Config, points: int, skips: Sequence[Skip]) -> str:
    why = "; ".join(f"{count} x {kind} (e.g. {_example(skips, kind)})" for kind, count in reasons(skips).items())
    return f"conf={config.conf_name}: nothing is left to measure of {points} points: {why}"


def _example(skips: Sequence[Skip], kind: str) -> str:
    skip = next(skip for skip in skips if skip.kind == kind)
    h = "" if skip.h is None else f" h={skip.h}"
    return f"{skip.role}{h} tp={skip.tp}: {skip.reason}"


def bundle(families: Sequence[Family]) -> tuple[Bundle, ...]:
    """Group Families so that one whose Gemms are all among another's is measured with it, in the same rounds.

    Families that only overlap stay apart: each needs the shared Gemms in its own rounds to compare with them.
    """
    order = sorted(range(len(families)), key=lambda i: -len(families[i].gemms))
    hosts: dict[Gemm, list[int]] = {}
    members: dict[int, list[int]] = {}
    sets: dict[int, frozenset[Gemm]] = {}
    for i in order:
        gemms = frozenset(families[i].gemms)
        host = next((j for j in hosts.get(families[i].gemms[0], ()) if gemms <= sets[j]), None)
        if host is not None:
            members[host].append(i)
            continue
        members[i], sets[i] = [i], gemms
        for gemm in gemms:
            hosts.setdefault(gemm, []).append(i)
    return tuple(Bundle(families=tuple(families[i] for i in members[host])) for host in sorted(members))


def plan_hash(config: Config, expansion: Expansion) -> str:
    """A short hash of what is measured and how: equal for two runs whose samples may be merged."""
    timing = asdict(config.timing)
    if timing["goal"] == "full":
        del timing["goal"]  # runs from before there was a choice had this one
    families = sorted(
        [family.family_id, [[c.value, c.baseline, [p.gemm.gemm_id for p in c.parts]] for c in family.candidates]]
        for family in expansion.families
    )
    text = json.dumps([families, timing], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
