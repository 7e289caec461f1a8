"""Writing to standard output where the exit code has more to tell than whether somebody read it."""

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable
from itertools import accumulate

from orchestrator.errors import printable
from orchestrator.forms import CSV, JSON, CsvTable, write_csv, write_json

NARROWEST = 20
PIPED = 80
"""Columns where there is no terminal and ``COLUMNS`` is not set."""
LABEL = 10
"""Columns of what a line begins with that says what the line is about."""
COMMANDS = re.compile(r"\x1b(?!\[[\d;]*m)|[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]")
"""What would command a terminal, but for colours."""


def harmless(text: str) -> str:
    r"""Write what would command a terminal as it is in Python (``\x07``): what a Shard names may come from anywhere.

    >>> harmless("a\x1b[2Jb\x1b[1mc")
    'a\\x1b[2Jb\x1b[1mc'
    """
    return COMMANDS.sub(lambda found: repr(found[0])[1:-1], text)


def width() -> int:
    """Return how many columns there are to print in: those of ``COLUMNS``, else the terminal's, else 80."""
    return max(NARROWEST, shutil.get_terminal_size((PIPED, 24)).columns)


def wrapped(text: str, width: int, first: str = "") -> list[str]:
    """Fill lines of ``width`` between words, which stay whole; the others are indented as far as ``first`` reaches."""
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def fitting(widths: Iterable[int], width: int, gap: int) -> int:
    """Return how many columns of these widths, from the first on and ``gap`` apart, fit into ``width``."""
    return sum(end - gap <= width for end in accumulate(each + gap for each in widths))


def printed_as(
    form: str, *, tables: Callable[[], object], document: Callable[[], object], table: Callable[[], CsvTable]
) -> bool:
    """Print in the form that is asked for; tell whether it could be written. tables: prints what a person reads."""
    if form == JSON:
        return printed(lambda: write_json(document(), sys.stdout))
    if form == CSV:
        found = table()
        sys.stderr.writelines(f"{printable(note)}\n" for note in found.notes)
        return printed(lambda: write_csv(found, sys.stdout))
    return printed(tables)


def printed(show: Callable[[], object]) -> bool:
    """Print by ``show``; tell whether it could be written.

    What was found is told by the exit code, also where nobody reads the tables any more.
    """
    try:
        show()
        sys.stdout.flush()
    except BrokenPipeError:
        _nowhere()  # the reader has seen enough
    except OSError as error:
        _nowhere()
        sys.stderr.write(f"cannot write the output: {error.strerror or error}\n")
        return False
    return True


def _nowhere() -> None:
    """Point standard output elsewhere, or closing it fails again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
