"""Whether a run is slower than one before it: by more than a floor, and by more than noise."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.compare_levels import Change, FamilyChange, FamilyKey, Rounds, family_change, rounds_of
from orchestrator.errors import InvalidValueError
from orchestrator.store import RunStore

CONFIDENCE = 0.95
"""That nothing is named of two equal runs: for all Families and Candidates together (Bonferroni)."""

LEVEL_PCT = 1.5
"""What a Family's level may move from run to run though nothing changed: 0.4% was seen on one device, 1.1% between two
(docs/compare.md)."""

EXCESS_PCT = 1.0
"""What a Candidate may move within its Family: 0.5% beyond its interval was seen (docs/compare.md)."""


NOT_TRIED = "skipped"
"""The status of what NEW did not try to measure; everything else without a figure is a failure of NEW."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Slower:
    """What got slower, in percent with its interval. value: None for a whole Family of ``candidates``."""

    gpu: str
    family_id: str
    axis: str
    value: int | None
    candidates: int
    percent: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """A Candidate that BASE measured and that failed in NEW; or a Family that cannot be judged (value None)."""

    gpu: str
    family_id: str
    axis: str
    value: int | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Gate:
    """The verdict. floor_pct: what counts as slower. families, candidates: how many were judged.

    unseen: Families whose interval reaches further than the floor, the worst first, with how far in percent: a
    slowdown of less may be there and not be named.
    """

    floor_pct: float
    families: int
    candidates: int
    slower: tuple[Slower, ...]
    failed: tuple[Lost, ...]
    not_judged: tuple[Lost, ...]
    not_in_new: int
    unseen: tuple[tuple[str, float], ...]

    @property
    def passed(self) -> bool:
        """Whether nothing got slower and nothing fails that was measured before."""
        return not self.slower and not self.failed


def gate(base: RunStore, new: RunStore, floor_pct: float) -> Gate:
    """Judge NEW against BASE.

    Raises:
        InvalidValueError: they have no Family on the same GPU model in common, or no intervals.
    """
    old, now = rounds_of(base), rounds_of(new)
    shared = [key for key in old if key in now]
    if not shared:
        raise InvalidValueError(
            f"--fail-if-slower: {base.path} and {new.path} have no family on the same GPU model in common: "
            f"{_some(old)} and {_some(now)}"
        )
    return judge({key: (old[key], now[key]) for key in shared}, floor_pct, len(old.keys() - now.keys()))


def judge(
    families: Mapping[FamilyKey, tuple[Rounds, Rounds]],
    floor_pct: float,
    families_not_in_new: int = 0,
    *,
    level_pct: float = LEVEL_PCT,
    excess_pct: float = EXCESS_PCT,
) -> Gate:
    """Judge the Families of two runs, each as it is in BASE and in NEW."""
    changes = {key: family_change(old, now) for key, (old, now) in families.items()}
    candidates = sum(len(change.excess) for change in changes.values())
    judged = sum(change.level is not None for change in changes.values())
    limits = _Limits(
        floor=math.log1p(floor_pct / 100),
        level=math.log1p(level_pct / 100),
        excess=math.log1p(excess_pct / 100),
        family_alpha=(1 - CONFIDENCE) / max(1, judged),
        candidate_alpha=(1 - CONFIDENCE) / max(1, candidates),
    )
    return Gate(
        floor_pct=floor_pct,
        families=judged,
        candidates=candidates,
        slower=tuple(each for key, change in changes.items() for each in _slower(key, change, limits)),
        failed=tuple(each for key, (old, now) in families.items() for each in _failed(key, old, now)),
        not_judged=tuple(
            each
            for key, pair in families.items()
            for each in (*_untried(key, *pair), *_not_judged(key, changes[key], limits))
        ),
        not_in_new=families_not_in_new,
        unseen=_unseen(changes, limits),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Limits:
    """Logarithms: the floor, and what levels and excesses move from run to run; and the error of each interval.

    Half of the error goes to Families, half to Candidates; only what is slower counts, so an interval of both sides may
    have twice its share.
    """

    floor: float
    level: float
    excess: float
    family_alpha: float
    candidate_alpha: float

    def of_level(self, change: Change) -> float:
        """How far the truth may be from a level's change: both errors are independent of each other."""
        return math.hypot(change.half(self.family_alpha), self.level)

    def of_excess(self, change: Change) -> float:
        """How far the truth may be from an excess's change."""
        return math.hypot(change.half(self.candidate_alpha), self.excess)


def _slower(key: FamilyKey, change: FamilyChange, limits: _Limits) -> Iterator[Slower]:
    """The Family where its level rose; and each Candidate that is slower for more than that reason."""
    if change.level is None:
        return
    level, half = change.level.estimate, limits.of_level(change.level)
    whole = level >= limits.floor and level > half
    if whole:
        yield _named(key, change, None, level, half)
    for value, excess in change.excess.items():
        own = limits.of_excess(excess)
        total, reach = level + excess.estimate, math.hypot(half, own)
        beyond = excess.estimate > own and (excess.estimate >= limits.floor or not whole)
        if beyond and total >= limits.floor and total > reach:
            yield _named(key, change, value, total, reach)


def _named(key: FamilyKey, change: FamilyChange, value: int | None, estimate: float, half: float) -> Slower:
    percent, low, high = (math.expm1(each) * 100 for each in (estimate, estimate - half, estimate + half))
    return Slower(
        gpu=key[0],
        family_id=key[1],
        axis=change.axis,
        value=value,
        candidates=len(change.excess) if value is None else 1,
        percent=percent,
        low=low,
        high=high,
    )


def _failed(key: FamilyKey, old: Rounds, now: Rounds) -> Iterator[Lost]:
    """What BASE measured and NEW could not. ``unsupported`` too: here it was supported before."""
    for value, result in zip(now.values, now.results, strict=True):
        if value in old.measured and result["rank"] is None and result["status"] != NOT_TRIED:
            why = f"{result['status']}: {result['message']}"
            yield Lost(gpu=key[0], family_id=key[1], axis=old.axis, value=value, why=why)


def _untried(key: FamilyKey, old: Rounds, now: Rounds) -> Iterator[Lost]:
    """What BASE measured and NEW did not try."""
    found = dict(zip(now.values, now.results, strict=True))
    for value in sorted(old.measured):
        if value not in found:
            yield Lost(gpu=key[0], family_id=key[1], axis=old.axis, value=value, why="it is not in the second run")
        elif found[value]["rank"] is None and found[value]["status"] == NOT_TRIED:
            why = f"{NOT_TRIED}: {found[value]['message']}"
            yield Lost(gpu=key[0], family_id=key[1], axis=old.axis, value=value, why=why)


def _not_judged(key: FamilyKey, change: FamilyChange, limits: _Limits) -> Iterator[Lost]:
    """What has no interval: a whole Family, or a Candidate that seems slower."""

    def lost(value: int | None, why: str) -> Lost:
        return Lost(gpu=key[0], family_id=key[1], axis=change.axis, value=value, why=why)

    if change.level is None:
        yield lost(None, "no candidate was in all rounds of both runs, or no round had all of them")
        return
    if math.isinf(limits.of_level(change.level)):
        yield lost(None, "too few rounds for an interval")
        return
    for value, excess in change.excess.items():
        if math.isinf(limits.of_excess(excess)) and change.level.estimate + excess.estimate >= limits.floor:
            percent = math.expm1(change.level.estimate + excess.estimate) * 100
            yield lost(value, f"{percent:+.1f}%, but too few rounds for an interval")


def _unseen(changes: Mapping[FamilyKey, FamilyChange], limits: _Limits) -> tuple[tuple[str, float], ...]:
    reaches = {key[1]: limits.of_level(change.level) for key, change in changes.items() if change.level is not None}
    found = [(name, math.expm1(reach) * 100) for name, reach in reaches.items() if limits.floor < reach < math.inf]
    return tuple(sorted(found, key=lambda each: -each[1]))


def _some(found: Mapping[FamilyKey, Rounds]) -> str:
    return next((f"{family} on {gpu}" for gpu, family in found), "nothing")
