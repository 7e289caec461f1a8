"""Whole numbers of many Points at once, which calculate as Python's do, or refuse.

What is written for one Point (a role's Gemms, what must divide what, ``space.where``) thereby holds for all of them.
"""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_INTEGER = 2**62
"""Results stay below this in 64-bit columns, so none of them overflows."""
MAX_FLOAT = 2**53
"""Up to this every whole number is a float."""

Array = NDArray[Any]
Mask = NDArray[np.bool_]


class InexactError(Exception):
    """An operation whose result may not be what Python's is: it has to be done Point by Point."""


class Column:
    """One number a Point, with the operators of a number; comparisons give a mask.

    values: int64, or float64 where a quotient or a float has come in, or objects, which are exact however large they
    are. bound: no int64 is further from zero.
    Raises InexactError where a result could overflow, be rounded otherwise than Python's, or divide by zero.
    """

    __slots__ = ("bound", "values")
    __array_ufunc__ = None  # so that an array on the left leaves the operation to this class

    def __init__(self, values: Array, bound: int | None = None) -> None:
        """Take the values; without ``bound`` it is looked up."""
        self.values = values
        self.bound = _bound(values) if bound is None and values.dtype == np.int64 else bound

    def __repr__(self) -> str:
        """Show the values."""
        return f"Column({self.values!r})"

    @classmethod
    def of(cls, values: Array, *, exact: bool = False) -> "Column":
        """Return whole numbers as a Column; ``exact`` ones never overflow, at ten times the cost."""
        return cls(values.astype(object)) if exact else cls(values)

    def take(self, rows: Array) -> "Column":
        """Those of some rows, by their numbers or by a mask."""
        return Column(self.values[rows], self.bound)

    def __neg__(self) -> "Column":
        return Column(-self.values, self.bound)

    def __add__(self, other: object) -> "Column":
        return self._whole(operator.add, other, lambda a, b: a + b)

    def __radd__(self, other: object) -> "Column":
        return self + other

    def __sub__(self, other: object) -> "Column":
        return self._whole(operator.sub, other, lambda a, b: a + b)

    def __rsub__(self, other: object) -> "Column":
        return -self + other

    def __mul__(self, other: object) -> "Column":
        return self._whole(operator.mul, other, lambda a, b: a * b)

    def __rmul__(self, other: object) -> "Column":
        return self * other

    def __floordiv__(self, other: object) -> "Column":
        return self._divided(operator.floordiv, self, _column(other))

    def __rfloordiv__(self, other: object) -> "Column":
        return self._divided(operator.floordiv, _column(other), self)

    def __mod__(self, other: object) -> "Column":
        return self._divided(operator.mod, self, _column(other))

    def __rmod__(self, other: object) -> "Column":
        return self._divided(operator.mod, _column(other), self)

    def __truediv__(self, other: object) -> "Column":
        return _quotient(self, _column(other))

    def __rtruediv__(self, other: object) -> "Column":
        return _quotient(_column(other), self)

    def __pow__(self, other: object) -> "Column":
        if not isinstance(other, int) or not 0 <= other < MAX_INTEGER.bit_length() or self.bound is None:
            raise InexactError
        return Column(self.values**other, _small(max(self.bound, 1) ** other))

    def __rpow__(self, other: object) -> "Column":
        raise InexactError

    def __eq__(self, other: object) -> Mask:  # type: ignore[override]
        return self._compared(operator.eq, other)

    def __ne__(self, other: object) -> Mask:  # type: ignore[override]
        return self._compared(operator.ne, other)

    def __lt__(self, other: object) -> Mask:
        return self._compared(operator.lt, other)

    def __le__(self, other: object) -> Mask:
        return self._compared(operator.le, other)

    def __gt__(self, other: object) -> Mask:
        return self._compared(operator.gt, other)

    def __ge__(self, other: object) -> Mask:
        return self._compared(operator.ge, other)

    __hash__ = None  # type: ignore[assignment]

    def _whole(self, apply: Callable[[Any, Any], Any], other: object, bound: Callable[[int, int], int]) -> "Column":
        right = _column(other)
        if self.bound is not None and right.bound is not None:
            return Column(apply(self.values, right.values), _small(bound(self.bound, right.bound)))
        if self._is_float or right._is_float:
            with np.errstate(all="ignore"):  # as Python, which has infinity without a word
                return Column(apply(self.as_float(), right.as_float()))
        return Column(apply(self.values, right.values))

    @staticmethod
    def _divided(apply: Callable[[Any, Any], Any], left: "Column", right: "Column") -> "Column":
        if left._is_float or right._is_float or not np.all(right.values):
            raise InexactError
        bounds = (left.bound, right.bound)
        known = None if None in bounds else bounds[0] if apply is operator.floordiv else bounds[1]
        return Column(apply(left.values, right.values), known)

    def _compared(self, apply: Callable[[Any, Any], Any], other: object) -> Mask:
        right = _column(other)
        if self._is_float or right._is_float:
            return np.asarray(apply(self.as_float(), right.as_float()), dtype=bool)
        return np.asarray(apply(self.values, right.values), dtype=bool)

    @property
    def _is_float(self) -> bool:
        return self.values.dtype == np.float64

    def as_float(self) -> Array:
        """The values as floats, each the same number."""
        if not self._is_float and (self.bound is None or self.bound > MAX_FLOAT):
            raise InexactError
        return self.values.astype(np.float64, copy=False)


def _column(value: object) -> Column:
    """A number as a Column of one row, which is stretched to that of the others."""
    if isinstance(value, Column):
        return value
    if isinstance(value, np.ndarray):  # a mask counts as Python's True and False do
        return Column(value.astype(np.int64), 1)
    if isinstance(value, float):
        return Column(np.array(value))
    assert isinstance(value, int)
    return Column(np.array(value, dtype=np.int64), abs(value)) if abs(value) < MAX_INTEGER else Column(_object(value))


def _object(value: int) -> Array:
    found = np.empty((), dtype=object)
    found[()] = value
    return found


def _quotient(left: Column, right: Column) -> Column:
    if not np.all(right.values):
        raise InexactError
    with np.errstate(all="ignore"):  # as in ``_whole``
        return Column(left.as_float() / right.as_float())


def _bound(values: Array) -> int:
    return max(abs(int(values.min())), abs(int(values.max()))) if values.size else 0


def _small(bound: int) -> int:
    if bound >= MAX_INTEGER:
        raise InexactError
    return bound
