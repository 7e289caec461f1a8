"""``explain``: why a Gemm or the Candidates of a run take their time, and how far that is to be believed."""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from orchestrator.completion import completed, words_of
from orchestrator.errors import StoreError, noted, unknown
from orchestrator.explain_arguments import GEMM_KEYS, RUN_KEYS, GemmWish, RunWish, parse
from orchestrator.explain_tables import DISTRUST, Table, explanation_tables, text
from orchestrator.explanation import Explanation, explain
from orchestrator.forms import CsvTable
from orchestrator.printing import printed_as, width
from orchestrator.shape_code import axis_name, value_name
from orchestrator.verbs.arguments import add_forms, add_places, positive
from orchestrator.words import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.explained_run import MeasuredFamily
    from orchestrator.fit import Fit

EXIT_CODES = "exit codes: 0 explained; 1 a shard could not be read; 2 usage, or no such run or GPU; 130 interrupted"
TOP = 5
LISTED = 20
CANDIDATE = ("family_id", "axis", "value", "baseline", "relative", "part")
CSV_COLUMNS = (
    *("gemm_id", "gpu.name", "gpu.key", "gpu.sms"),
    *(f"gemm.{name}" for name in ("kind", "b", "m", "n", "k", "dtype", "layout")),
    *("measured.seconds", "measured.tflops", "measured.kernel", "estimate_s", "aligned"),
    *(f"roofline.{name}" for name in ("intensity", "ridge", "compute_s", "memory_s", "side")),
    *("choice.tile.m", "choice.tile.n", "choice.tiles", "choice.waves"),
    *("choice.tile_efficiency", "choice.wave_efficiency"),
)
"""Of what is told of a GEMM that of which there is one value."""
NEAR = 6
"""Families and values that an error names."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    words = parser.add_argument(
        "words", nargs="*", metavar="RUN | key=value", help="a run, or one Gemm and a GPU; see below"
    )
    completed(words, words_of(lambda: {**RUN_KEYS, **GEMM_KEYS}, runs=True))
    add_places(parser)
    parser.add_argument("--top", type=positive, default=TOP, help=f"candidates to print per family (default: {TOP})")
    add_forms(parser, as_json="everything that was found out", as_csv="the explained GEMMs")
    parser.epilog = (
        f"one Gemm, without any run:\n{listed(GEMM_KEYS)}\n\n"
        f"a run (RUN: path, URI, name or latest, the default):\n{listed(RUN_KEYS)}\n\n{EXIT_CODES}"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Explain and print; 1 where a shard could not be read."""
    wish = parse(arguments.words)
    if isinstance(wish, RunWish):
        return _run(wish, arguments)
    return _gemm(wish, arguments.form)


def _gemm(wish: GemmWish, form: str) -> int:
    found = explain(wish.gemm, wish.gpu)
    whole = printed_as(
        form,
        tables=lambda: sys.stdout.write(
            text([*explanation_tables(found), Table(title=DISTRUST), *_notes(wish.notes)], width())
        ),
        document=lambda: {"gemms": [explained(found)], "fits": []},
        table=lambda: CsvTable(columns=CSV_COLUMNS, rows=[explained(found)], notes=wish.notes),
    )
    return int(not whole)


def _run(wish: RunWish, arguments: argparse.Namespace) -> int:
    from orchestrator.explained_run import measured_families
    from orchestrator.fit import fits
    from orchestrator.fit_tables import fit_tables
    from orchestrator.ranking import rank
    from orchestrator.runs import find_run

    store = find_run(wish.run, arguments.dir, arguments.spool)
    ranking = rank(store)
    families = measured_families(store, ranking)
    with noted(ranking.problems):
        wanted = _wanted(families, wish, str(store.path))
    found = fits(families)  # of all that was measured: a part of it would say less
    notes = (*ranking.problems, *ranking.notes)

    def report() -> None:
        shown = _detail(wanted) if wish.value is not None else _overview(wanted, arguments.top)
        sys.stdout.write(text([*shown, *fit_tables(_of(found, wanted)), *_notes(notes)], width()))

    whole = printed_as(
        arguments.form,
        tables=report,
        document=lambda: document(wanted, found),
        table=lambda: CsvTable(columns=(*CANDIDATE, *CSV_COLUMNS), rows=_gemms(wanted), notes=notes),
    )
    return int(not whole or bool(ranking.problems))


def _wanted(families: "Sequence[MeasuredFamily]", wish: RunWish, run: str) -> "list[MeasuredFamily]":
    """The Families that begin as asked, with the Candidate that is asked for."""
    if not families:
        raise StoreError(f"nothing was measured in {run}")
    named = [each for each in families if each.family_id.startswith(wish.family)]
    if not named:
        ids = list(dict.fromkeys(each.family_id for each in families))
        raise StoreError(f"{run}: {unknown('family', wish.family, ids[:LISTED])}")
    if wish.value is None:
        return named
    chosen = [
        replace(each, candidates=tuple(c for c in each.candidates if c.value == wish.value))
        for each in named
        if wish.axis in (None, each.axis)
    ]
    if not any(each.candidates for each in chosen):
        what = f"{wish.axis or 'value'}={value_name(wish.axis, wish.value)}"
        raise StoreError(f"{run}: no {what} was measured; {_nearest(named, wish)}")
    return [each for each in chosen if each.candidates]


def _nearest(families: "Sequence[MeasuredFamily]", wish: RunWish) -> str:
    known = {c.value for each in families if wish.axis in (None, each.axis) for c in each.candidates}
    if not known:
        return f"what was chosen is {' and '.join(dict.fromkeys(each.axis for each in families))}"
    near = sorted(known, key=lambda value: abs(value - (wish.value or 0)))[:NEAR]
    return f"the nearest are {', '.join(value_name(wish.axis, value) for value in sorted(near))}"


def _of(found: "Sequence[Fit]", wanted: "Sequence[MeasuredFamily]") -> "list[Fit]":
    places = {(each.gpu.name, each.role, each.tp) for each in wanted}
    return [fit for fit in found if (fit.gpu, fit.role, fit.tp) in places]


def _overview(families: "Sequence[MeasuredFamily]", top: int) -> "list[Table]":
    from orchestrator.fit_tables import family_table, legend

    return [*(family_table(family, top) for family in families), legend(families)]


def _detail(families: "Sequence[MeasuredFamily]") -> "list[Table]":
    return [
        table
        for family in families
        for candidate in family.candidates
        for part in candidate.parts
        for table in explanation_tables(
            explain(part.gemm, family.gpu, part.measured),
            title=f"{family.family_id}, {_choice(family.axis, candidate.value)}, {part.name}: ",
        )
    ]


def _choice(axis: str, value: int) -> str:
    return f"{axis_name(axis)}={value_name(axis, value)}"


def _notes(lines: "Sequence[str]") -> "list[Table]":
    return [Table(title=line) for line in lines]


def explained(found: Explanation) -> dict[str, Any]:
    """One Gemm's explanation as plain values; docs/explain.md describes them."""
    values = asdict(replace(found, gpu=replace(found.gpu, spec=None)))
    values["gpu"] = {"name": found.gpu.name, "sms": found.gpu.sms, "key": found.gpu.spec and found.gpu.spec.key}
    return {"gemm_id": found.gemm.gemm_id, **values}


def document(families: "Sequence[MeasuredFamily]", found: "Sequence[Fit]") -> dict[str, Any]:
    """Every Gemm of the Families, explained, and the fits."""
    return {
        "gemms": list(_gemms(families)),
        "fits": [{**asdict(fit), "verdict": fit.verdict} for fit in _of(found, families)],
    }


def _gemms(families: "Sequence[MeasuredFamily]") -> Iterator[dict[str, Any]]:
    return (
        {
            "family_id": family.family_id,
            "axis": family.axis,
            "value": candidate.value,
            "baseline": candidate.baseline,
            "relative": candidate.relative,
            "part": part.name,
            **explained(explain(part.gemm, family.gpu, part.measured)),
        }
        for family in families
        for candidate in family.candidates
        for part in candidate.parts
    )
