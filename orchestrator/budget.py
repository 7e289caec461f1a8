"""A budget of parameters: how many a model may have, and how far from it."""

import math
import re
from dataclasses import dataclass
from fractions import Fraction

from orchestrator.errors import InvalidValueError, describe

TOLERANCE = Fraction(2)
"""Percent to either side where a budget names none."""
MOST_PARAMETERS = 10**15
UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
EXAMPLES = "such as 7e9±2%, 7B+-0.5% or 350M"

_NUMBER = r"\d[\d_]{0,18}(?:\.\d{1,18})?"
_BUDGET = re.compile(rf"({_NUMBER})(?:[eE]\+?(\d{{1,2}}))?([KMBTkmbt]?)(?:(?:±|\+-|\+/-)(\d{{1,3}}(?:\.\d{{1,9}})?)%)?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """Parameters from ``low`` to ``high``, both included."""

    low: int
    high: int

    def __str__(self) -> str:
        """Both ends, for reading."""
        return f"{self.low:,} to {self.high:,} parameters"


def parse_budget(text: object) -> Budget:
    """Read a number of parameters with a tolerance in percent (2 where none is given); raise InvalidValueError.

    >>> parse_budget("7e9±2%"), parse_budget("1.5B+-0%")
    (Budget(low=6860000000, high=7140000000), Budget(low=1500000000, high=1500000000))
    >>> parse_budget(350_000_000).low
    343000000
    """
    written = str(text).replace(" ", "")
    if isinstance(text, bool) or (found := _BUDGET.fullmatch(written)) is None:
        raise InvalidValueError(f"{describe(text)} is no number of parameters with a tolerance; write one {EXAMPLES}")
    number, exponent, unit, percent = found.groups()
    count = Fraction(number.replace("_", "")) * 10 ** int(exponent or 0) * UNITS[unit.upper()]
    tolerance = (TOLERANCE if percent is None else Fraction(percent)) / 100
    if not 1 <= count <= MOST_PARAMETERS:
        raise InvalidValueError(f"1 <= parameters <= {MOST_PARAMETERS:.0e} must hold, but got {written}")
    if tolerance >= 1:
        raise InvalidValueError(f"{written}: 0% <= tolerance < 100% must hold")
    low, high = math.ceil(count * (1 - tolerance)), math.floor(count * (1 + tolerance))
    return Budget(low=max(low, 1), high=high)
