"""A run's ranking as ``check`` needs it: the Families that tell of a Case, and what to say where there are none."""

import math
from dataclasses import dataclass, replace
from typing import Any

from orchestrator import catalogue
from orchestrator.check_case import Case
from orchestrator.check_measured import ROLES, MeasuredFamily, families
from orchestrator.check_parameters import dense_layers
from orchestrator.errors import StoreError

STEP = 64
SIDE = 12
"""Values on each side of the present d_ff that the proposed sweep measures, at least."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """A Case with the Families of a run, and what a reader must know of them."""

    case: Case
    notes: tuple[str, ...]


def with_results(case: Case, run: str, directory: str) -> Evidence:
    """Look a Case up in a run; raise StoreError where there is no such run, or it is of several GPU models."""
    from orchestrator.ranking import rank
    from orchestrator.runs import find_run

    ranking = rank(find_run(run, directory))
    return look_up(case, ranking.table.to_pylist(), run, notes=(*ranking.problems, *ranking.notes))


def look_up(case: Case, rows: list[dict[str, Any]], run: str, notes: tuple[str, ...] = ()) -> Evidence:
    """Look a Case up in the rows of a run's ranking."""
    if not dense_layers(case.model):
        return Evidence(case=case, notes=(*notes, f"results={run} tells of dense layers, which this model has none of"))
    found = families(rows, case.model.mlp)
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
        f"python -m orchestrator{gpu} space.roles={ROLES[case.model.mlp][0]} space.h={case.model.h} "
        f"space.tp={case.tp} space.batch={case.b} space.seq={case.s} space.dtype={case.dtype} "
        f"'space.d_ff={{start: {start}, stop: {case.model.d_ff + side}, step: {step}}}'"
    )


def _is_on(family: MeasuredFamily, gpu: str) -> bool:
    spec = catalogue.match(family.gpu)
    return spec is not None and spec.family == gpu


def _notes(case: Case, run: str) -> list[str]:
    family, model = case.family, case.model
    where = "" if case.gpu is None else f" on {case.gpu.family}"
    if family is None:
        roles = " or ".join(ROLES[model.mlp])
        return [f"results={run} has no {roles} of h={model.h} at tp={case.tp}{where}; to measure it: {_command(case)}"]
    at = f"batch={family.batch}" + ("" if family.seq is None else f" seq={family.seq}")
    notes = [f"gains are per FLOP, measured as {family.role} {at} {family.dtype} on {family.gpu} (results={run})"]
    if family.find(model.d_ff) is None:
        notes.append(f"d_ff {model.d_ff} was not measured there; to measure it: {_command(case)}")
    return notes


def _command(case: Case) -> str:
    if case.model.d_ff % case.tp:
        return f"tp={case.tp} must divide d_ff first"
    return sweep_command(case)
