"""What rich draws: tables that lose their last columns where they do not fit, and no blanks that only fill up cells."""

import re
from collections.abc import Callable, Collection, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.printing import fitting
from orchestrator.printing import width as columns_of_output

GAP = 2
LEAST_COLUMNS = 2
HEIGHT = 25
FOLDED = 12
"""A column that folds is as narrow as this, if need be."""


def write(draw: Callable[[Console], None], console: Console | None = None) -> None:
    """Print what ``draw`` prints, to standard output; without blanks at the ends of lines where it is no terminal.

    Colour only on a terminal, and not under ``NO_COLOR``.
    """
    # A height is given as well, or rich takes a dumb terminal for one of 80 columns.
    console = console or Console(width=columns_of_output(), height=HEIGHT)
    with console.capture() as drawn:
        draw(console)
    text = drawn.get()
    console.file.write(text if console.is_terminal else re.sub(" +$", "", text, flags=re.MULTILINE))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    left: int = 0,
    folding: Collection[str] = (),
    leads: bool = False,
) -> Table:
    """Return a table of plain text within ``width``: what does not fit are the last columns, never a part of a cell.

    left: how many columns stand to the left, the others to the right. folding: columns of names, which take several
    lines where they are long. leads: whether the first row is one to compare with.
    """
    drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    fitting = _fitting(columns, rows, width, folding)
    for i, name in enumerate(columns[:fitting]):
        drawn.add_column(name, justify="left" if i < left else "right", no_wrap=name not in folding, overflow="fold")
    for i, cells in enumerate(rows):
        # Text, not markup: names and messages come from devices and users.
        drawn.add_row(*map(Text, cells[:fitting]), style="bold" if leads and i == 0 else "")
    return drawn


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, folding: Collection[str]) -> int:
    """How many columns fit, each as wide as its widest cell and two spaces apart; never fewer than LEAST_COLUMNS."""
    widest = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    needed = [min(most, FOLDED) if name in folding else most for name, most in zip(columns, widest, strict=True)]
    return max(LEAST_COLUMNS, fitting(needed, width, GAP))
