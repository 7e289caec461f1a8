"""Which Shards were measured while their device was not what its model is, and what is said of them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.canary import Reading, geometric_mean, is_canary
from orchestrator.verdict import Verdict
from orchestrator.visits import ShardKey, Visits, shard_key

Row = dict[str, Any]

STATUS = "suspect"
"""Status in a ranking of a Candidate that was measured on suspect devices alone."""
TAKE_IN = "rank --include-suspects takes them in"


def split(facts: Iterable[Row]) -> tuple[list[Row], list[Row]]:
    """Part the facts rows of canaries from those of the sweep: (canaries, sweep)."""
    canaries: list[Row] = []
    sweep: list[Row] = []
    for row in facts:
        (canaries if is_canary(row["bundle_id"]) else sweep).append(row)
    return canaries, sweep


def readings(canaries: Iterable[Row], visits: Mapping[ShardKey, Visits]) -> list[Reading]:
    """Read each canary's Shard; one that lacks a Gemm says nothing."""
    gemms: dict[ShardKey, dict[str, str]] = {}
    for row in canaries:
        gemms.setdefault(shard_key(row), {})[row["gemm_id"]] = row["gpu"]
    found: list[Reading] = []
    for key, models in gemms.items():
        if key not in visits or not models.keys() <= visits[key].columns.keys():
            continue
        medians = np.nanmedian(visits[key].of(models), axis=0).tolist()
        seconds = geometric_mean(medians)
        if seconds is not None:
            model = next(iter(models.values()))
            found.append(Reading(model=model, uuid=key.uuid, number=key.attempt, seconds=seconds))
    return found


def suspect_shards(sweep: Iterable[Row], verdict: Verdict) -> frozenset[ShardKey]:
    """Name the Shards that ``verdict`` casts doubt on."""
    canaries = {shard_key(row): row["canary"] for row in sweep}
    return frozenset(key for key, canary in canaries.items() if verdict.suspect(key.uuid, canary))


def without(rows: Sequence[Row], suspects: frozenset[ShardKey], good: Mapping[ShardKey, Visits]) -> Sequence[Row]:
    """Leave a Family's suspect Shards out where another has samples; where none has, they are all there is to tell."""
    doubtful = [row for row in rows if shard_key(row) in suspects]
    if not doubtful:
        return rows
    sound = [row for row in rows if shard_key(row) not in suspects]
    return sound if any(shard_key(row) in good for row in sound) else doubtful


def held_back(rows: Sequence[Row], suspects: frozenset[ShardKey], verdict: Verdict) -> Row:
    """Status and message of a Candidate that went well on suspect devices alone; nothing for any other."""
    if any(shard_key(row) not in suspects or row["status"] != "ok" for row in rows):
        return {}
    why = dict.fromkeys(f"{row['uuid']} {verdict.reasons[row['uuid']]}" for row in rows)
    return {"status": STATUS, "message": "; ".join(why)}


def notes(
    sweep: Sequence[Row], suspects: frozenset[ShardKey], good: Container[ShardKey], verdict: Verdict
) -> tuple[str, ...]:
    """One line per bad device: what is wrong with it and what that means here.

    good: the Shards that are ranked; suspect ones among them where they were asked for.
    """
    if not verdict.reasons:
        return ()
    families: dict[str, set[str]] = {}
    doubtful: dict[str, set[str]] = {}
    sound: set[str] = set()
    for row in sweep:
        key = shard_key(row)
        families.setdefault(key.uuid, set()).add(row["family_id"])
        if key in suspects:
            doubtful.setdefault(key.uuid, set()).add(row["family_id"])
        elif key in good:
            sound.add(row["family_id"])
    included = any(key in good for key in suspects)
    return tuple(
        f"suspect: {uuid} {reason}; "
        + _meaning(doubtful.get(uuid, set()), len(families.get(uuid, ())), sound, included=included)
        for uuid, reason in sorted(verdict.reasons.items())
    )


def _meaning(doubtful: set[str], families: int, sound: set[str], *, included: bool) -> str:
    if not doubtful:
        return "none of its families was measured then"
    what = f"{len(doubtful)} of its {families} families"
    if included:
        return f"{what} are ranked all the same"
    alone = len(doubtful - sound)
    again = "all measured on others too" if not alone else f"{alone} of them measured nowhere else"
    return f"{what} left out, {again}: {TAKE_IN}"
