"""Expansion of the search space: Points, their Gemms, Families of Candidates, and Bundles that share Gemms.

A Point is one logical configuration (role, h, tp, batch, seq, dtype, d_ff): a Family with one of its Candidates.
"""

import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from orchestrator.axis import d_ff_values, expand, seed_d_ff_values
from orchestrator.errors import InvalidValueError, SpaceError
from orchestrator.expression import Where
from orchestrator.roles import ROLES, Shape
from orchestrator.schema import Config
from tasks.family import Bundle, Candidate, Family, FamilyKey
from tasks.gemm import Gemm

MAX_BITS = 60
"""FLOPs and bytes are stored as 64-bit integers, and summed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip(FamilyKey):
    """Points that are not measured, and why: one Point, or a whole Family where ``d_ff`` is None."""

    d_ff: int | None
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
    for key in _keys(config):
        values, exact = _d_ff(config, key.h)
        points += len(values)
        refused = _refused(config, key, len(values))
        if refused is not None:
            skips.append(refused)
            continue
        try:
            family, left_out = _family(key, values, exact, where)
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


def _keys(config: Config) -> Iterator[FamilyKey]:
    space = config.space
    axes = (expand(space.h), expand(space.tp), expand(space.batch))
    for role, dtype in itertools.product(dict.fromkeys(space.roles), dict.fromkeys(space.dtype)):
        sequences: Iterable[int | None] = expand(space.seq) if ROLES[role].needs_seq else (None,)
        for h, tp, batch, seq in itertools.product(*axes, tuple(sequences)):
            yield FamilyKey(role=role, h=h, tp=tp, batch=batch, seq=seq, dtype=dtype)


def _d_ff(config: Config, h: int) -> tuple[tuple[int, ...], int | None]:
    if config.timing.protocol == "seed":
        return seed_d_ff_values(config.space.d_ff, h)
    return d_ff_values(config.space.d_ff, h)


def _refused(config: Config, key: FamilyKey, points: int) -> Skip | None:
    if config.timing.protocol != "seed" or (key.role, key.dtype) == ("seed_bmm", "fp16"):
        return None
    kind = "protocol seed times seed_bmm in fp16 only"
    reason = f"timing.protocol=seed times role seed_bmm in fp16 only, not {key.role} in {key.dtype}"
    return Skip(**asdict(key), d_ff=None, points=points, kind=kind, reason=reason)


def _family(key: FamilyKey, values: Sequence[int], exact: int | None, where: Where) -> tuple[Family | None, list[Skip]]:
    """The Family of one key, None where it comes out empty, and what was left out; ``values`` are in order.

    The baseline is ``exact`` where tp divides it, else the next value below that tp divides. ``where`` does not take
    the baseline away, for without it there is nothing to compare with; alone it is no Family.
    """
    divided = [d_ff for d_ff in values if d_ff % key.tp == 0]
    while divided and _too_large(key, divided[-1]):
        divided.pop()
    baseline = None if exact is None else max((d_ff for d_ff in divided if d_ff <= exact), default=None)
    wanted = {d_ff for d_ff in divided if where.evaluate(h=key.h, tp=key.tp, batch=key.batch, seq=key.seq, d_ff=d_ff)}
    kept = [d_ff for d_ff in divided if wanted and (d_ff in wanted or d_ff == baseline)]
    left_out = set(values).difference(kept)
    skips = [_left_out(key, d_ff, where) for d_ff in values if d_ff in left_out]
    candidates = tuple(_candidate(key, d_ff, baseline=d_ff == baseline) for d_ff in kept)
    return Family(**asdict(key), candidates=candidates) if candidates else None, skips


def _candidate(key: FamilyKey, d_ff: int, *, baseline: bool) -> Candidate:
    shape = Shape(h=key.h, tp=key.tp, batch=key.batch, seq=key.seq, d_ff=d_ff, dtype=key.dtype)
    return Candidate(d_ff=d_ff, parts=ROLES[key.role].parts(shape), baseline=baseline)


def _too_large(key: FamilyKey, d_ff: int) -> bool:
    gemms = (part.gemm for part in _candidate(key, d_ff, baseline=False).parts)
    return any(max(gemm.flops, gemm.bytes) >= 2**MAX_BITS for gemm in gemms)


def _left_out(key: FamilyKey, d_ff: int, where: Where) -> Skip:
    if d_ff % key.tp:
        kind, reason = "tp does not divide d_ff", f"tp={key.tp} does not divide d_ff={d_ff}"
    elif _too_large(key, d_ff):
        kind, reason = "too large to count", f"d_ff={d_ff} takes 2^{MAX_BITS} FLOPs or bytes, or more"
    else:
        kind, reason = "space.where", f"space.where ({where.text}) does not hold"
    return Skip(**asdict(key), d_ff=d_ff, points=1, kind=kind, reason=reason)


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
    return f"{skip.role} h={skip.h} tp={skip.tp}: {skip.reason}"


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
    families = sorted(
        [family.family_id, [[c.d_ff, c.baseline, [p.gemm.gemm_id for p in c.parts]] for c in family.candidates]]
        for family in expansion.families
    )
    text = json.dumps([families, timing], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
