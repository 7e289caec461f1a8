"""What values one configuration key takes: a rule checks a value and says in words what is right."""

import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestrator.axis import RANGE_KEYS, RATIO_KEYS, choice, count, d_ff_count, whole
from orchestrator.errors import InvalidValueError, describe, shorten, unknown

MOST_LISTED = 8
"""More names than these are not listed in a line of help."""

Names = Callable[[], Iterable[str]]
"""A list of names that is looked up only when it is needed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """Base of the rules. ``check`` returns the value to keep or raises InvalidValueError.

    verbatim: an argument's text is the value as it stands, not YAML. listed: ``1,2,4`` in an argument is a list.
    parts: keys of a mapping value that can be set alone (``space.h.step=512``).
    """

    optional: bool = False
    type_text: str = ""
    verbatim: bool = False
    listed: bool = False
    parts: tuple[str, ...] = ()

    def check(self, value: object) -> object:
        """Return the value to keep."""
        if value is None and self.optional:
            return None
        if value is None:
            raise InvalidValueError(f"no value; give {self.type_text}")
        return self._check(value)

    def takes(self) -> str:
        """Say in a few words what the key takes."""
        return f"{self.type_text} or null" if self.optional else self.type_text

    def _check(self, value: object) -> object:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True, slots=True)
class Integer(Rule):
    """A whole number between ``low`` and ``high``, both included."""

    type_text: str = "a whole number"
    low: int = 1
    high: int = 2**31 - 1

    def _check(self, value: object) -> int:
        return whole("", value, low=self.low, high=self.high)


@dataclass(frozen=True, kw_only=True, slots=True)
class Switch(Rule):
    """On or off."""

    type_text: str = "true|false"

    def _check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise InvalidValueError(f"{describe(value)} is neither true nor false")
        return value


def _is_finite(value: float) -> bool:
    """Whether it is a finite number; a whole one of hundreds of digits is none that can be calculated with."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


@dataclass(frozen=True, kw_only=True, slots=True)
class Number(Rule):
    """A finite number; ``above`` and ``below`` are excluded, ``low`` and ``high`` included."""

    type_text: str = "a number"
    above: float = -math.inf
    below: float = math.inf
    low: float = -math.inf
    high: float = math.inf

    def _check(self, value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
            raise InvalidValueError(f"{describe(value)} is not a number")
        if not (self.above < value < self.below and self.low <= value <= self.high):
            raise InvalidValueError(f"{self._bounds()} must hold, but got {value}")
        return float(value)

    def _bounds(self) -> str:
        below = f"{self.above:g} < " if math.isfinite(self.above) else ""
        below = f"{self.low:g} <= " if math.isfinite(self.low) else below
        over = f" < {self.below:g}" if math.isfinite(self.below) else ""
        over = f" <= {self.high:g}" if math.isfinite(self.high) else over
        return f"{below}value{over}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Text(Rule):
    """A text on one line; ``validate`` raises InvalidValueError for one that does not fit.

    place: it is a path, in which ``~`` is the user's home: a shell leaves ``run.dir=~/x`` as it is.
    """

    type_text: str = "a text"
    verbatim: bool = True
    empty: bool = False
    place: bool = False
    validate: Callable[[str], object] | None = None

    def _check(self, value: object) -> str:
        if not isinstance(value, str):
            raise InvalidValueError(f"{describe(value)} is not a text; put it in quotes")
        if not value and not self.empty:
            raise InvalidValueError(f"empty; give {self.type_text}" + (" or null" if self.optional else ""))
        if any(ord(letter) < 32 for letter in value):
            raise InvalidValueError(f"'{shorten(value)}' has a line break or control character")
        if value and self.validate is not None:
            self.validate(value)
        return os.path.expanduser(value) if self.place else value


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice(Rule):
    """One of a set of names."""

    type_text: str = "a name"
    verbatim: bool = True
    what: str = "name"
    names: Names = tuple

    def takes(self) -> str:
        """List the names where they are few."""
        return _listed(self.what, self.names()) + (" or null" if self.optional else "")

    def _check(self, value: object) -> str:
        names = list(self.names())
        if not isinstance(value, str) or value not in names:
            raise InvalidValueError(unknown(self.what, str(value), names))
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Choices(Rule):
    """A list of different names out of a set; a single name stands for a list of one."""

    type_text: str = "a list of names"
    listed: bool = True
    what: str = "name"
    names: Names = tuple

    def takes(self) -> str:
        """List the names where they are few."""
        names = list(self.names())
        return f"a list of {self.what} names" if len(names) > MOST_LISTED else f"a list of {'|'.join(names)}"

    def _check(self, value: object) -> list[str]:
        chosen = [value] if isinstance(value, str) else value
        if not isinstance(chosen, list) or not chosen:
            raise InvalidValueError(f"{describe(value)} is no list of names; there are: {', '.join(self.names())}")
        names = list(self.names())
        wrong = [unknown(self.what, str(name), names) for name in chosen if name not in names]
        if wrong:
            raise InvalidValueError("; ".join(wrong))
        return list(dict.fromkeys(chosen))


def _listed(what: str, names: Iterable[str]) -> str:
    known = list(names)
    return "|".join(known) if len(known) <= MOST_LISTED else f"a {what}"


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisRule(Rule):
    """Values of one dimension: a number, a list or a range."""

    type_text: str = "a whole number, a list such as [1, 2], or {start, stop, step}"
    listed: bool = True
    parts: tuple[str, ...] = RANGE_KEYS
    most: int | None = None

    def _check(self, value: object) -> object:
        count(value)
        if self.most is not None and (largest := max(choice(value)[0])) > self.most:
            raise InvalidValueError(f"{largest} is too large; it must be <= {self.most}")
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class DffRule(Rule):
    """Values of d_ff: as an axis, or {ratio, distance, step} or {ratio, span, step} around ratio·h."""

    type_text: str = "{ratio, distance or span, step}, a whole number, a list, or {start, stop, step}"
    listed: bool = True
    parts: tuple[str, ...] = tuple(dict.fromkeys(RATIO_KEYS + RANGE_KEYS))

    def _check(self, value: object) -> object:
        d_ff_count(value)
        return value
