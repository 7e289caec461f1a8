"""A ranking on standard output: tables for a person, one JSON object, or a CSV row a Candidate."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from orchestrator.columns import RANKING_SCHEMA
from orchestrator.errors import StoreError
from orchestrator.fleet import Fleet
from orchestrator.forms import TABLES, CsvTable
from orchestrator.printing import printed_as
from orchestrator.ranking import Ranking
from orchestrator.run_state import UNKNOWN, state
from orchestrator.store import RunStore
from orchestrator.tables import FamilyTable, status_counts
from orchestrator.terminal import footer, show


def printed_ranking(
    form: str,
    store: RunStore,
    ranking: Ranking,
    top: int,
    problems: Sequence[str] = (),
    families: Callable[[], Sequence[FamilyTable]] | None = None,
) -> bool:
    """Print in the form that is asked for; tell whether it could be written. problems: what there is beside ranking's.

    families: makes ``family_tables`` of it, where they are needed elsewhere too.
    Where that is no table, what is said of the run beside it is on standard error.
    """
    said, known = (*ranking.problems, *problems), state_of(store)
    if form != TABLES:
        sys.stderr.write(f"{footer(store.path, ranking.table, said, known).plain}\n")
    return printed_as(
        form,
        tables=lambda: show(
            store.path,
            ranking.table,
            top,
            said,
            families=families() if families else None,
            notes=ranking.notes,
            fleets=ranking.fleets,
            state=known,
        ),
        document=lambda: document(store, ranking, problems),
        table=lambda: csv_table(ranking),
    )


def state_of(store: RunStore) -> str:
    """Return the run's state, also where its manifest cannot be read: the ranking needs none."""
    try:
        return state(store.manifest())
    except StoreError:
        return UNKNOWN


def document(store: RunStore, ranking: Ranking, problems: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything as plain values; the rows have the columns of RANKING_SCHEMA."""
    return {
        "run": store.name,
        "path": str(store.path),
        "state": state_of(store),
        "counts": status_counts(ranking.table),
        "rows": ranking.table.to_pylist(),
        "fleets": [_fleet(fleet) for fleet in ranking.fleets],
        "notes": list(ranking.notes),
        "problems": [*ranking.problems, *problems],
    }


def csv_table(ranking: Ranking) -> CsvTable:
    """Return the columns of RANKING_SCHEMA, ``parts`` in one cell, then the TFLOP/s of each part by name."""
    rows = ranking.table.to_pylist()
    parts = [{part["part"]: part for part in row["parts"] or ()} for row in rows]
    names = dict.fromkeys(name for each in parts for name in each)
    return CsvTable(
        columns=(*RANKING_SCHEMA.names, *(f"part.{name}.tflops" for name in names)),
        rows=[{**row, "part": {name: own.get(name) for name in names}} for row, own in zip(rows, parts, strict=True)],
        notes=ranking.notes,
    )


def _fleet(fleet: Fleet) -> dict[str, Any]:
    return {**asdict(fleet), "spread": fleet.spread}
