"""Expansion of the search space: Points, their Gemms, Families of Candidates, and Bundles that share Gemms.

A Point is one logical configuration (role, h, tp, batch, seq, dtype, d_ff, …): a Family with one of its Candidates.
Points are columns; a Family and its Candidates are made when somebody asks for them.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import InvalidValueError, SpaceError, shorten
from orchestrator.expression import Where
from orchestrator.schema import Config
from orchestrator.skips import Skip, SkipPart, Skips, reasons

if TYPE_CHECKING:
    from orchestrator.bundles import Bundles
    from orchestrator.families import Families
    from orchestrator.sift import Sifted
    from orchestrator.slates import Slates

__all__ = ["Expansion", "Skip", "expand_space", "plan_hash", "reasons"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Expansion:
    """What a configuration asks for. points: before skips; gemms: distinct ones, each measured once a Bundle."""

    families: "Families"
    bundles: "Bundles"
    points: int
    gemms: int
    skips: Skips


def expand_space(config: Config) -> Expansion:
    """Expand ``config.space``; raise SpaceError, which says why, where nothing is left to measure."""
    # numpy is loaded where there is a space to expand: a wrong argument is answered without it
    from orchestrator.bundles import Bundles
    from orchestrator.families import families_of
    from orchestrator.left_out import SkippedPoints
    from orchestrator.sift import sift
    from orchestrator.slates import slates

    where = Where(config.space.where)
    kept: list[Sifted] = []
    left_out: list[SkipPart] = []
    points = 0
    for each in slates(config):
        points += len(each.values)
        if not _timed(config, each):
            left_out.append(_untimed(each))
            continue
        try:
            kept.append(sift(each, where))
        except InvalidValueError as error:
            raise SpaceError(f"{_condition_from(config)}: space.where: {error}") from error
        left_out.append(SkippedPoints(kept[-1]))
    skips = Skips(left_out)
    families = families_of(kept)
    if families is None:
        raise SpaceError(_empty(config, points, skips))
    bundles = Bundles(families, families.sets)
    return Expansion(families=families, bundles=bundles, points=points, gemms=len(bundles.sets.table), skips=skips)


def _condition_from(config: Config) -> str:
    """Where ``space.where`` was given: the last argument that did, else the sweep."""
    names = [(word.partition("=")[0].strip(), word) for word in config.overrides]
    given = [word for name, word in names if name == "space.where" or (name == "space" and "where" in word)]
    return f"argument '{shorten(given[-1])}'" if given else f"conf={config.conf_name}"


def _timed(config: Config, of: "Slates") -> bool:
    """Whether the protocol times a role in a dtype: the seed's times one in one."""
    return config.timing.protocol != "seed" or (of.role.name, of.dtype, of.passes) == ("seed_bmm", "fp16", "fwd")


def _untimed(of: "Slates") -> SkipPart:
    """Refuse what the seed's protocol does not time."""
    from orchestrator.left_out import SkippedFamilies

    passes = "" if of.passes == "fwd" else f" ({of.passes})"
    reason = f"timing.protocol=seed times role seed_bmm in fp16 only, not {of.role.name} in {of.dtype}{passes}"
    return SkippedFamilies(slates=of, kind="protocol seed times seed_bmm in fp16 only", reason=reason)


def _empty(config: Config, points: int, skips: Skips) -> str:
    why = "; ".join(f"{count} x {kind} (e.g. {_example(skips, kind)})" for kind, count in reasons(skips).items())
    return f"conf={config.conf_name}: nothing is left to measure of {points} points: {why}"


def _example(skips: Skips, kind: str) -> str:
    skip = next(skips.of(kind))
    h = "" if skip.h is None else f" h={skip.h}"
    return f"{skip.role}{h} tp={skip.tp}: {skip.reason}"


def plan_hash(config: Config, expansion: Expansion) -> str:
    """A short hash of what is measured and how: equal for two runs whose samples may be merged."""
    timing = asdict(config.timing)
    if timing["goal"] == "full":  # runs from before there was a choice had this one
        del timing["goal"]
        timing["min_rounds"], timing["max_seconds"] = config.timing.least_rounds, config.timing.most_seconds
    if timing["protocol"] != "sequential":
        del timing["warmup_s"]  # no other has a part for it
    families = sorted(
        [family.family_id, [[c.value, c.baseline, [p.gemm.gemm_id for p in c.parts]] for c in family.candidates]]
        for family in expansion.families
    )
    text = json.dumps([families, timing], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
