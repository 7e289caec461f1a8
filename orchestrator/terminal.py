"""A ranking in the terminal and in Markdown: the same tables, once drawn by rich, once as text."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
from rich.console import Console, Group, RenderableType
from rich.text import Text

from orchestrator import drawing
from orchestrator.errors import printable
from orchestrator.fleet import Fleet
from orchestrator.fleet_tables import FLEET_LEGEND, fleet_tables
from orchestrator.run_state import FINISHED, next_command
from orchestrator.tables import LEGEND, FamilyTable, TextTable, family_tables, status_counts

MOST_DEVICES = 20
"""Devices of a model that the terminal shows."""
NOTHING = "nothing was measured in this run"


def footer(
    run: Path,
    ranking: pa.Table,
    problems: Sequence[str] = (),
    state: str = FINISHED,
    counts: Mapping[str, int] | None = None,
) -> Text:
    """Where the run lies, how many Candidates ended how, what could not be read, and the next useful command.

    counts: Candidates per status, where ``ranking`` has not all of them.
    """
    counts = status_counts(ranking) if counts is None else counts
    following = next_command(run, state, list(counts))
    return Text("\n".join([*problems, f"{run}: {_count_line(counts)}", f"next: {following}"]))


def show(
    run: Path,
    ranking: pa.Table,
    top: int,
    problems: Sequence[str] = (),
    console: Console | None = None,
    *,
    notes: Sequence[str] = (),
    fleets: Sequence[Fleet] = (),
    state: str = FINISHED,
    counts: Mapping[str, int] | None = None,
    families: Sequence[FamilyTable] | None = None,
) -> None:
    """Print the whole ranking, then the devices; colour only on a terminal, and not under ``NO_COLOR``.

    state: of the run, which decides what is useful next. counts: as ``footer`` takes it. families: ``family_tables`` of
    the ranking, where they are made already.
    """
    found = family_tables(ranking, top) if families is None else families

    def draw(console: Console) -> None:
        # All at once: each call takes as long as a table does.
        console.print(Group(*(_renderable(family, console.width) for family in found)))
        if ranking.num_rows:
            console.print(Text(LEGEND, style="dim"))
        for fleet in fleet_tables(fleets, MOST_DEVICES):
            console.print(Text())
            console.print(_renderable(fleet, console.width), end="")
        if fleets:
            console.print(Text(FLEET_LEGEND, style="dim"))
        for note in notes:
            console.print(Text(note, style="yellow"))
        # A path must stay in one piece, so that it can be copied.
        console.print(footer(run, ranking, problems, state, counts), soft_wrap=True)

    drawing.write(draw, console)


def markdown(
    run: Path,
    ranking: pa.Table,
    top: int,
    *,
    notes: Sequence[str] = (),
    problems: Sequence[str] = (),
    fleets: Sequence[Fleet] = (),
    counts: Mapping[str, int] | None = None,
    families: Sequence[FamilyTable] | None = None,
) -> str:
    """Return the tables as Markdown: what ``ranking.md`` holds. counts, families: as ``show`` takes them.

    problems: Shards that could not be read; they are named within the run, wherever it lies.
    """
    counts = status_counts(ranking) if counts is None else counts
    blocks = [f"# Ranking of {escaped(run.resolve().name)}", f"{_count_line(counts)}."]
    blocks += map(escaped, (*notes, *(_within(run, problem) for problem in problems)))
    for family in family_tables(ranking, top) if families is None else families:
        blocks += markdown_blocks(family)
    blocks += [LEGEND] if ranking.num_rows else []
    for table in fleet_tables(fleets):
        blocks += markdown_blocks(table)
    return "\n\n".join([*blocks, FLEET_LEGEND] if fleets else blocks) + "\n"


def _within(run: Path, problem: str) -> str:
    """Name the files of the run by their paths in it; ``a/`` is also how ``device=GPU-1a/`` ends."""
    return re.sub(rf"(?<![^\s'\"]){re.escape(f'{run}/')}", "", problem)


def _renderable(table: TextTable, width: int) -> RenderableType:
    notes = [drawing.Line(note, "yellow") for note in table.notes]
    drawn = [drawing.table(table.columns, table.rows, width, leads=table.leads)] if table.rows else []
    return Group(drawing.Line(table.title, "bold cyan"), *notes, *drawn, drawing.Line(""))


def markdown_blocks(table: TextTable) -> list[str]:
    """Return a table as blocks of Markdown: its title, its notes, its rows."""
    blocks = [f"## {escaped(table.title)}", *map(escaped, table.notes)]
    return [*blocks, _markdown_table(table)] if table.rows else blocks


def _markdown_table(table: TextTable) -> str:
    lines = [table.columns, ("---:",) * len(table.columns), *table.rows]
    safe = [[printable(re.sub(r"([|<])", r"\\\1", cell)) for cell in cells] for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in safe)


def _count_line(counts: Mapping[str, int]) -> str:
    found = ", ".join(f"{count} {status}" for status, count in counts.items())
    return f"Candidates: {found}" if found else NOTHING


def escaped(text: str) -> str:
    """Keep names and messages from being read as Markdown or HTML, or by the terminal that the file is shown on."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", printable(" ".join(text.split())))
