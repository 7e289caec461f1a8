"""Data inside a page: compact JSON, compressed and in base64, so that no text of a run can be taken for markup."""

import base64
import gzip
import json
import math
from typing import Any

import pyarrow as pa

DIGITS = 9
"""Significant digits of a figure: a timer has fewer, and the page is a third smaller than with all seventeen."""


def packed(value: object) -> str:
    """Return a value as gzipped JSON in base64; figures are rounded, those that are not finite become null.

    >>> packed([1])[:4]
    'H4sI'
    """
    text = json.dumps(_rounded(value), separators=(",", ":"), allow_nan=False)
    return packed_text(text)


def packed_text(text: str) -> str:
    """Return a text gzipped and in base64; the same text gives the same letters."""
    return base64.b64encode(gzip.compress(text.encode("utf-8", "replace"), 6, mtime=0)).decode()


def unpacked(text: str) -> Any:
    """Return what ``packed`` was given."""
    return json.loads(gzip.decompress(base64.b64decode(text)))


def columns(table: pa.Table) -> dict[str, Any]:
    """Return a ranking (RANKING_SCHEMA) column by column; a column of one value throughout is ``{"all": value}``."""
    return {name: _column(table[name].to_pylist()) for name in table.column_names}


def _column(values: list[Any]) -> Any:
    first = values[0] if values else None
    same = bool(values) and not isinstance(first, list) and all(value == first for value in values)
    return {"all": first, "count": len(values)} if same else values


def _rounded(value: object) -> object:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    if isinstance(value, dict):  # not Mapping: there are millions of values, and that question is slow
        return {str(name): _rounded(each) for name, each in value.items()}
    return value
