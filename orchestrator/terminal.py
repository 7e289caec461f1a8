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

from orchestrator.tables import LEGEND, FamilyTable, family_tables, status_counts

GAP = 2
LEAST_COLUMNS = 2
"""d_ff and TFLOP/s."""
NOTHING = "nothing was measured in this run"


def family_renderables(ranking: pa.Table, top: int, width: int = 80) -> Iterator[RenderableType]:
    """Yield each Family's table; the last columns are left out where they do not fit."""
    for family in family_tables(ranking, top):
        yield _renderable(family, width)


def footer(run: Path, ranking: pa.Table, problems: Sequence[str] = ()) -> Text:
    """Where the run lies, how many Candidates ended how, what could not be read, and the next useful command."""
    lines = [*problems, f"{run}: {_count_line(ranking)}", f"next: python -m orchestrator rank {shlex.quote(str(run))}"]
    return Text("\n".join(lines))


def show(run: Path, ranking: pa.Table, top: int, problems: Sequence[str] = (), console: Console | None = None) -> None:
    """Print the whole ranking; colour only on a terminal, and not under ``NO_COLOR``."""
    console = console or Console()
    for renderable in family_renderables(ranking, top, console.width):
        console.print(renderable)
    if ranking.num_rows:
        console.print(Text(LEGEND, style="dim"))
    # A path must stay in one piece, so that it can be copied.
    console.print(footer(run, ranking, problems), soft_wrap=True)


def markdown(run: Path, ranking: pa.Table, top: int) -> str:
    """Return the tables as Markdown: what ``ranking.md`` holds."""
    blocks = [f"# Ranking of {_escaped(run.resolve().name)}", f"Candidates: {_count_line(ranking)}."]
    for family in family_tables(ranking, top):
        blocks += [f"## {_escaped(family.title)}", *map(_escaped, family.notes)]
        if family.rows:
            blocks.append(_markdown_table(family))
    return "\n\n".join([*blocks, LEGEND] if ranking.num_rows else blocks) + "\n"


def _renderable(family: FamilyTable, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    fitting = _fitting(family, width)
    for name in family.columns[:fitting]:
        table.add_column(name, justify="right", no_wrap=True)
    for i, cells in enumerate(family.rows):
        table.add_row(*map(Text, cells[:fitting]), style="bold" if family.has_baseline and i == 0 else "")
    # Text, not markup: names and messages come from devices and users.
    notes = [Text(note, style="yellow") for note in family.notes]
    return Group(Text(family.title, style="bold cyan"), *notes, *([table] if family.rows else []), Text())


def _fitting(family: FamilyTable, width: int) -> int:
    """How many columns fit, each as wide as its widest cell and two spaces apart; never fewer than LEAST_COLUMNS."""
    ends = accumulate(max(map(len, column)) + GAP for column in zip(family.columns, *family.rows, strict=True))
    return max(LEAST_COLUMNS, sum(end - GAP <= width for end in ends))


def _markdown_table(family: FamilyTable) -> str:
    lines = [family.columns, ("---:",) * len(family.columns), *family.rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _count_line(ranking: pa.Table) -> str:
    counts = status_counts(ranking)
    return ", ".join(f"{count} {status}" for status, count in counts.items()) or NOTHING


def _escaped(text: str) -> str:
    """Keep names and messages from being read as Markdown or HTML."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
