"""What rich draws: tables that lose their last columns where they do not fit, and no blanks that only fill up cells.

Thousands of tables are most of a ranking's time where rich measures and wraps each cell several times. So what is plain
text and fits is laid out here, to the same output, and rich does the rest.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from orchestrator.errors import printable
from orchestrator.printing import fitting, harmless
from orchestrator.printing import width as columns_of_output

GAP = 2
LEAST_COLUMNS = 2
HEIGHT = 25
FOLDED = 12
"""A column that folds is as narrow as this, if need be."""
PLAIN = re.compile(r"[ -~°±…]*")
"""Text without line breaks or tabs, each letter of which takes one column of the terminal."""
BOLD = Style(bold=True)
RULE = "─"


def write(draw: Callable[[Console], None], console: Console | None = None) -> None:
    """Print what ``draw`` prints, to standard output; without blanks at the ends of lines where it is no terminal.

    Colour only on a terminal, and not under ``NO_COLOR``.
    """
    # A height is given as well, or rich takes a dumb terminal for one of 80 columns.
    console = console or Console(width=columns_of_output(), height=HEIGHT)
    with console.capture() as drawn:
        draw(console)
    text = drawn.get()
    console.file.write(harmless(text) if console.is_terminal else _bare(text))


def _bare(text: str) -> str:
    """Without the blanks that fill lines up, and without colours: there are none where there is no terminal."""
    return printable("\n".join(line.rstrip(" ") for line in text.split("\n")))


@dataclass(frozen=True, slots=True)
class Line:
    """A text of its own line, or of several where it does not fit."""

    text: str
    style: str = ""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        """Draw it."""
        if len(self.text) > options.max_width or not PLAIN.fullmatch(self.text):
            yield Text(self.text, style=self.style)
            return
        yield Segment(self.text, console.get_style(self.style))
        yield Segment.line()


@dataclass(frozen=True, kw_only=True, slots=True)
class Drawn:
    """A table without what does not fit. Its fields are as ``table`` takes them."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int
    folding: Collection[str]
    leads: bool

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType | Segment]:
        """Draw it."""
        cells = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        whole = sum(widths) + GAP * (len(widths) - 1)
        plain = PLAIN.fullmatch("".join(map("".join, cells))) is not None
        if whole > options.max_width or not plain or not all(widths) or options.ascii_only:
            yield self.by_rich()
            return
        header, *lines = (self._justified(row, widths) for row in cells)
        yield from _bold(header)
        yield Segment(RULE * whole + "\n")
        for i, line in enumerate(lines):
            if self.leads and i == 0:
                yield from _bold(line)
            else:
                yield Segment((" " * GAP).join(line) + "\n")

    def _justified(self, row: Sequence[str], widths: Sequence[int]) -> list[str]:
        padded = zip(row, widths, strict=True)
        return [
            cell.rstrip().ljust(width) if i < self.left else cell.rstrip().rjust(width)
            for i, (cell, width) in enumerate(padded)
        ]

    def by_rich(self) -> Table:
        """Return the table that rich draws alike, whatever is in the cells."""
        drawn = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
        # Text, not markup: names and messages come from devices and users.
        for i, name in enumerate(self.columns):
            justify: Literal["left", "right"] = "left" if i < self.left else "right"
            drawn.add_column(Text(name), justify=justify, no_wrap=name not in self.folding, overflow="fold")
        for i, cells in enumerate(self.rows):
            drawn.add_row(*map(Text, cells), style="bold" if self.leads and i == 0 else "")
        return drawn


def _bold(cells: Sequence[str]) -> Iterator[Segment]:
    """A line in which the cells stand out, and the blank that belongs to each, as rich pads them."""
    for cell in cells[:-1]:
        yield Segment(cell, BOLD)
        yield Segment(" ", BOLD)
        yield Segment(" " * (GAP - 1))
    yield Segment(cells[-1], BOLD)
    yield Segment.line()


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    left: int = 0,
    folding: Collection[str] = (),
    leads: bool = False,
) -> Drawn:
    """Return a table of plain text within ``width``: what does not fit are the last columns, never a part of a cell.

    left: how many columns stand to the left, the others to the right. folding: columns of names, which take several
    lines where they are long. leads: whether the first row is one to compare with.
    """
    kept = _fitting(columns, rows, width, folding)
    return Drawn(columns=columns[:kept], rows=[cells[:kept] for cells in rows], left=left, folding=folding, leads=leads)


def _fitting(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int, folding: Collection[str]) -> int:
    """How many columns fit, each as wide as its widest cell and two spaces apart; never fewer than LEAST_COLUMNS."""
    widest = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    needed = [min(most, FOLDED) if name in folding else most for name, most in zip(columns, widest, strict=True)]
    return max(LEAST_COLUMNS, fitting(needed, width, GAP))
