"""What is planned on: a side for each published table, and one for all runs of a GPU model."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.compare_environment import differences
from orchestrator.compare_side import Side


def joined_runs(sides: Sequence[Side]) -> list[Side]:
    """Join the runs of one GPU model, for one sweep rarely holds every Gemm of a model.

    A shape that several have counts as the first one measured it. Tables stay apart: no two are timed alike.
    """
    groups: dict[object, list[Side]] = {}
    for side in sides:
        groups.setdefault((side.path if side.imported else None, side.gpu), []).append(side)
    return [_joined(each) for each in groups.values()]


def _joined(sides: Sequence[Side]) -> Side:
    first = sides[0]
    if len(sides) == 1:
        return first
    return replace(
        first,
        name=" + ".join(side.name for side in sides),
        timings={shape: timing for side in reversed(sides) for shape, timing in side.timings.items()},
        families={},
        notes=tuple(dict.fromkeys((*_differ(sides), *(note for side in sides for note in side.notes)))),
        problems=tuple(problem for side in sides for problem in side.problems),
    )


def _differ(sides: Sequence[Side]) -> list[str]:
    """Say where the environments of joined runs differ, as far as that moves a level."""
    found = [f"{each.name} ({'; '.join(each.values)})" for each in differences(sides) if "clock MHz" not in each.name]
    return [f"the runs of {sides[0].gpu} that are joined differ in {', '.join(found)}"] if found else []
