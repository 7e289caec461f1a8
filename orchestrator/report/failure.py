"""What was not measured, and why: failures grouped by their message, skips of the plan, Shards that are corrupt."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.report.source import ReportRun
from orchestrator.shape_code import axis_name, value_name

Row = dict[str, Any]

MOST_GROUPS = 200
MOST_EXAMPLES = 5
LONGEST = 10_000
"""Letters of a message that a report keeps; the ranking keeps them all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """Candidates of a run that were not measured for one reason. examples: some of them."""

    run: str
    status: str
    message: str
    count: int
    examples: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip:
    """Points that the plan left out for one reason."""

    run: str
    kind: str
    count: int
    examples: tuple[str, ...]


def failures(runs: Sequence[ReportRun]) -> list[Failure]:
    """Group what failed, in each run the most frequent first; at most MOST_GROUPS."""
    found = [failure for run in runs for failure in _failures(run)]
    return found[:MOST_GROUPS]


def _failures(run: ReportRun) -> Iterator[Failure]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in run.rows:
        if row["rank"] is None:
            groups.setdefault((row["status"], row["message"] or ""), []).append(row)
    for (status, message), rows in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        cut = message if len(message) <= LONGEST else f"{message[: LONGEST - 1]}…"
        examples = tuple(f"{row['family_id']} {_choice(row)}" for row in rows[:MOST_EXAMPLES])
        yield Failure(run=run.name, status=status, message=cut, count=len(rows), examples=examples)


def _choice(row: Row) -> str:
    return f"{axis_name(row['axis'])}={value_name(row['axis'], row['value'])}"


def skips(runs: Sequence[ReportRun]) -> list[Skip]:
    """Return what the plans left out; a manifest without a list of skips says nothing."""
    return [skip for run in runs for skip in _skips(run)]


def _skips(run: ReportRun) -> Iterator[Skip]:
    listed = run.manifest.get("skips")
    for each in listed if isinstance(listed, list) else []:
        if isinstance(each, Mapping) and isinstance(each.get("count"), int):
            examples = each.get("examples")
            shown = tuple(map(str, examples[:MOST_EXAMPLES])) if isinstance(examples, list) else ()
            yield Skip(run=run.name, kind=str(each.get("kind", "")), count=each["count"], examples=shown)


def troubles(runs: Sequence[ReportRun]) -> list[str]:
    """One line for each run that is not whole, corrupt Shard, suspect device and remark of a worker."""
    lines = [
        f"{run.name}: {line}"
        for run in runs
        for line in (*_state(run), *run.ranking.problems, *run.ranking.notes, *_remarks(run.shards))
    ]
    return list(dict.fromkeys(lines))


def _state(run: ReportRun) -> Iterator[str]:
    """Yield what a run's manifest says of how far it came, where that is not to its end."""
    state, left = run.manifest.get("status"), run.manifest.get("bundles_unfinished")
    if state is not None and state != "finished":
        open_ends = f", {left} bundles were not measured" if isinstance(left, int) and left else ""
        yield f"the run is {state}, not finished{open_ends}: what is here is what there was"


def _remarks(shards: Sequence[Row]) -> Iterator[str]:
    for row in shards:
        for note in row["notes"] or ():
            yield f"{row['bundle_id']} on {row['uuid']}: {note}"
