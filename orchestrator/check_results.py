"""A run's ranking as ``check`` needs it: the Families that tell of a Case, and what to say where there are none."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from orchestrator import catalogue
from orchestrator.check_case import Case
from orchestrator.check_measured import D_FF, MLP_ROLES, MeasuredFamily, families
from orchestrator.check_parameters import dense_layers
from orchestrator.errors import StoreError
from orchestrator.reshape import DIMENSIONS

STEP = 64
SIDE = 12
"""Values on each side of the present d_ff that the proposed sweep measures, at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A Case with the Families of a run, and what a reader must know of them. problems: what could not be read."""

    case: Case
    notes: tuple[str, ...]
    problems: tuple[str, ...] = ()


def with_results(case: Case, run: str, directory: str, spool: str | None = None) -> Evidence:
    """Look a Case up in a run; raise StoreError where there is no such run, or it is of several GPU models."""
    from orchestrator.ranking import rank
    from orchestrator.runs import find_run

    ranking = rank(find_run(run, directory, spool))
    found = look_up(case, ranking.table.to_pylist(), run, notes=(*ranking.problems, *ranking.notes))
    return replace(found, problems=tuple(ranking.problems))


def look_up(case: Case, rows: list[dict[str, Any]], run: str, notes: tuple[str, ...] = ()) -> Evidence:
    """Look a Case up in the rows of a run's ranking."""
    found = families(rows, case.model.mlp)
    if not dense_layers(case.model):
        found = tuple(family for family in found if family.dimension != D_FF)
    if case.gpu is not None:
        found = tuple(family for family in found if _is_on(family, case.gpu.family))
    if len(gpus := sorted({family.gpu for family in found})) > 1:
        raise StoreError(f"argument 'results={run}': it is of {', '.join(gpus)}: name one by gpu=")
    known = replace(case, families=found)
    return Evidence(case=known, notes=(*notes, *_notes(known, run)))


def sweep_command(case: Case) -> str:
    """Return the command that would measure d_ff around the present one for this h and tp.

    Every value is a multiple of 64 away, so that the present one is among them; the next fully aligned ones are too.
    """
    step = math.lcm(STEP, case.tp)
    side = max(SIDE, case.tp * case.full // step) * step
    start = case.model.d_ff - min(side, (case.model.d_ff - 1) // step * step)
    gpu = "" if case.gpu is None else f" cluster.gpu={case.gpu.key}"
    return (
        f"python -m orchestrator{gpu} space.roles={MLP_ROLES[case.model.mlp][0]} space.h={case.model.h} "
        f"space.tp={case.tp} space.batch={case.b} space.seq={case.s} space.dtype={case.dtype} "
        f"'space.d_ff={{start: {start}, stop: {case.model.d_ff + side}, step: {step}}}'"
    )


def _is_on(family: MeasuredFamily, gpu: str) -> bool:
    spec = catalogue.match(family.gpu)
    return spec is not None and spec.family == gpu


def _notes(case: Case, run: str) -> Iterator[str]:
    found = [family for dimension in DIMENSIONS if (family := case.family(dimension)) is not None]
    for family in found:
        at = f"batch={family.batch}" + ("" if family.seq is None else f" seq={family.seq}")
        yield (
            f"what {family.dimension} gains is per FLOP, measured as {family.role} {at} {family.dtype} on {family.gpu} "
            f"(results={run})"
        )
    if not dense_layers(case.model):
        if not found:
            yield f"results={run} has nothing of this model at tp={case.tp}"
        return
    own = case.family(D_FF)
    if own is None:
        roles, where = " or ".join(MLP_ROLES[case.model.mlp]), "" if case.gpu is None else f" on {case.gpu.family}"
        yield f"results={run} has no {roles} of h={case.model.h} at tp={case.tp}{where}; {_to_measure(case)}"
    elif own.find(case.model) is None:
        yield f"d_ff {case.model.d_ff} was not measured there; {_to_measure(case)}"


def _to_measure(case: Case) -> str:
    if case.model.d_ff % case.tp:
        return f"tp={case.tp} must divide d_ff before it can be measured"
    return f"to measure it: {sweep_command(case)}"
