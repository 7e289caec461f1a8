"""One number for a whole shape, h, d_ff and a together: what the Candidates of a parameter budget differ in.

The number is ``h·10^10 + d_ff·10^4 + a``: the same shape has the same one in every run, a larger h a larger one, and
its digits can be read. It stays below 2^53, so that programs that know no integers keep it too.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from orchestrator.errors import InvalidValueError, describe

SHAPE = "shape"
"""The axis of a Family whose Candidates are shapes."""
CHOSEN = ("h", "d_ff", "a")
"""What is chosen in it."""
MOST: Mapping[str, int] = MappingProxyType({"h": 900_000, "d_ff": 999_999, "a": 9_999})
"""The largest of each that the number has room for."""

_WIDTHS, _HEADS = 10**6, 10**4


def code(h: Any, d_ff: Any, a: Any) -> Any:
    """The number of a shape, or of many as arrays.

    >>> code(4096, 11008, 32)
    40960110080032
    """
    return (h * _WIDTHS + d_ff) * _HEADS + a


def dimensions(value: Any) -> dict[str, Any]:
    """The h, d_ff and a of a number, or of an array of them.

    >>> dimensions(40960110080032)
    {'h': 4096, 'd_ff': 11008, 'a': 32}
    """
    wide = value // _HEADS
    return {"h": wide // _WIDTHS, "d_ff": wide % _WIDTHS, "a": value % _HEADS}


def axis_name(axis: str) -> str:
    """What is chosen, for reading.

    >>> axis_name("shape"), axis_name("d_ff")
    ('h/d_ff/a', 'd_ff')
    """
    return "/".join(CHOSEN) if axis == SHAPE else axis


def value_name(axis: str | None, value: int) -> str:
    """A value of what is chosen, for reading.

    >>> value_name("shape", 40960110080032), value_name("d_ff", 11008)
    ('4096/11008/32', '11008')
    """
    return "/".join(map(str, dimensions(value).values())) if axis == SHAPE else str(value)


def drawn_over(axis: str) -> str:
    """Over what a Family is drawn: of a shape the one of its dimensions that has the most values."""
    return "d_ff" if axis == SHAPE else axis


def drawn_at(row: Mapping[str, Any]) -> int:
    """Where a ranking's row lies on it."""
    found: int = row["d_ff"] if row["axis"] == SHAPE else row["value"]
    return found


def parse(text: object) -> int:
    """The number of a shape that is written as ``h/d_ff/a``; raise InvalidValueError."""
    parts = str(text).split("/")
    if len(parts) != len(CHOSEN) or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise InvalidValueError(f"{describe(text)} is no shape; write {axis_name(SHAPE)}, such as 4096/11008/32")
    sizes = dict(zip(CHOSEN, map(int, parts), strict=True))
    for name, size in sizes.items():
        if not 1 <= size <= MOST[name]:
            raise InvalidValueError(f"{describe(text)}: 1 <= {name} <= {MOST[name]} must hold, but got {size}")
    return int(code(**sizes))
