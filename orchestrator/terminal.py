"""A ranking in the terminal and in Markdown: the same tables, once drawn by rich, once as text."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.fleet import Fleet
from orchestrator.fleet_tables import FLEET_LEGEND, fleet_tables
from orchestrator.output import Output
from orchestrator.tables import LEGEND, TextTable, family_tables, status_counts

GAP = 2
LEAST_COLUMNS = 2
"""d_ff and TFLOP/s."""
MOST_DEVICES = 20
"""Devices of a model that the terminal shows."""
NOTHING = "nothing was measured in this run"


def family_renderables(ranking: pa.Table, top: int, width: int = 80) -> Iterator[RenderableType]:
    """Yield each Family's table; the last columns are left out where they do not fit."""
    for family in family_tables(ranking, top):
        yield _renderable(family, width)


def footer(run: Path, ranking: pa.Table, problems: Sequence[str] = ()) -> Text:
    """Where the run lies, how many Candidates ended how, what could not be read, and the next useful command."""
    lines = [*problems, f"{run}: {_count_line(ranking)}", f"next: python -m orchestrator rank {shlex.quote(str(run))}"]
    return Text("\n".join(lines))


def show(
    run: Path,
    ranking: pa.Table,
    top: int,
    problems: Sequence[str] = (),
    console: Console | None = None,
    *,
    notes: Sequence[str] = (),
    fleets: Sequence[Fleet] = (),
) -> None:
    """Print the whole ranking, then the devices; colour only on a terminal, and not under ``NO_COLOR``."""
    console = console or Output()
    for renderable in family_renderables(ranking, top, console.width):
        console.print(renderable)
    if ranking.num_rows:
        console.print(Text(LEGEND, style="dim"))
    for table in fleet_tables(fleets, MOST_DEVICES):
        console.print(Text())
        console.print(_renderable(table, console.width), end="")
    if fleets:
        console.print(Text(FLEET_LEGEND, style="dim"))
    for note in notes:
        console.print(Text(note, style="yellow"))
    # A path must stay in one piece, so that it can be copied.
    console.print(footer(run, ranking, problems), soft_wrap=True)


def markdown(run: Path, ranking: pa.Table, top: int, *, notes: Sequence[str] = (), fleets: Sequence[Fleet] = ()) -> str:
    """Return the tables as Markdown: what ``ranking.md`` holds."""
    blocks = [f"# Ranking of {escaped(run.resolve().name)}", f"Candidates: {_count_line(ranking)}."]
    blocks += map(escaped, notes)
    for family in family_tables(ranking, top):
        blocks += markdown_blocks(family)
    blocks += [LEGEND] if ranking.num_rows else []
    for table in fleet_tables(fleets):
        blocks += markdown_blocks(table)
    return "\n\n".join([*blocks, FLEET_LEGEND] if fleets else blocks) + "\n"


def _renderable(table: TextTable, width: int) -> RenderableType:
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    fitting = _fitting(table, width)
    for name in table.columns[:fitting]:
        drawn.add_column(name, justify="right", no_wrap=True)
    for i, cells in enumerate(table.rows):
        drawn.add_row(*map(Text, cells[:fitting]), style="bold" if table.leads and i == 0 else "")
    # Text, not markup: names and messages come from devices and users.
    notes = [Text(note, style="yellow") for note in table.notes]
    return Group(Text(table.title, style="bold cyan"), *notes, *([drawn] if table.rows else []), Text())


def _fitting(table: TextTable, width: int) -> int:
    """How many columns fit, each as wide as its widest cell and two spaces apart; never fewer than LEAST_COLUMNS."""
    ends = accumulate(max(map(len, column)) + GAP for column in zip(table.columns, *table.rows, strict=True))
    return max(LEAST_COLUMNS, sum(end - GAP <= width for end in ends))


def markdown_blocks(table: TextTable) -> list[str]:
    """Return a table as blocks of Markdown: its title, its notes, its rows."""
    blocks = [f"## {escaped(table.title)}", *map(escaped, table.notes)]
    return [*blocks, _markdown_table(table)] if table.rows else blocks


def _markdown_table(table: TextTable) -> str:
    lines = [table.columns, ("---:",) * len(table.columns), *table.rows]
    safe = [[re.sub(r"([|<])", r"\\\1", cell) for cell in cells] for cells in lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in safe)


def _count_line(ranking: pa.Table) -> str:
    counts = status_counts(ranking)
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or NOTHING


def escaped(text: str) -> str:
    """Keep names and messages from being read as Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
