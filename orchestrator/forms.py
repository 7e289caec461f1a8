"""What a verb found in a form for programs: one strict JSON document, or one CSV table."""

import csv
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from itertools import islice
from typing import IO, Any

TABLES, JSON, CSV = "tables", "json", "csv"
"""How a verb prints."""
FORMULA = "=+-@\t＝＋－＠"
"""What a cell that spreadsheets take for a formula begins with; the last four as East Asian keyboards write them."""
TEXT_MARK = "'"
PIECES = 10_000
"""Of a document that are written at once."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CsvTable:
    """Rows of plain values. columns: where each stands in a row: a name, or names of nested values with a dot between.

    notes: what is to be said of it, for which CSV has no place.
    """

    columns: tuple[str, ...]
    rows: Iterable[Mapping[str, Any]]
    notes: tuple[str, ...] = ()


def write_json(document: object, out: IO[str]) -> None:
    """Write a document of plain values; dates as ISO text, and null for what is no finite number: JSON has no other."""
    pieces = json.JSONEncoder(indent=2, allow_nan=False).iterencode(_plain(document))
    while block := "".join(islice(pieces, PIECES)):  # as one text, those of a large run are larger than the run
        out.write(block)
    out.write("\n")


def write_csv(table: CsvTable, out: IO[str]) -> None:
    """Write a header and the rows, quoted as RFC 4180 has it, a line feed at the end of each."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([cell(_at(row, column)) for column in table.columns] for row in table.rows)


def cell(value: object) -> str:
    """Write one value: nothing for None, numbers unrounded, lists and nested values as JSON.

    A text that a spreadsheet would take for a formula gets an apostrophe before it; numbers are left as they are.

    >>> cell(-0.1), cell("-0.1"), cell(True), cell([1, None]), cell(None)
    ('-0.1', "'-0.1", 'true', '[1, null]', '')
    """
    value = _plain(value)
    if value is None:
        return ""
    if isinstance(value, str):
        return _harmless(re.sub("\r\n?", "\n", value))
    return json.dumps(value, allow_nan=False, ensure_ascii=False)


def _harmless(text: str) -> str:
    """Mark what could be a formula: a sign alone is none."""
    return TEXT_MARK + text if len(text) > 1 and text[0] in FORMULA else text


def _at(row: Mapping[str, Any], column: str) -> object:
    value: Any = row
    for name in column.split("."):
        if value is None:
            return None
        value = value[name]
    return value


def _plain(value: object) -> object:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
