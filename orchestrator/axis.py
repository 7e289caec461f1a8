"""An axis of the search space: one number, a list, or a range that includes both of its ends.

A range, or a list written as ``{values: [...], baseline: n}``, may name the value that the others are compared with.

The choice of d_ff may also follow h: ``{ratio: 8/3, distance: 100, step: 4}`` is the seed's neighbourhood of 8/3·h, and
``{ratio: 8/3, span: 0.35, step: 8}`` reaches 35% of it to either side.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from orchestrator.errors import InvalidValueError, describe, unknown_part

Axis = Any
"""Values of one dimension as a configuration writes them: a number, a list, a range, or a list with a baseline."""
DffChoice = Any
"""Values of d_ff as a configuration writes them: an Axis, or a ratio to h with a distance or a span, and a step."""

MAX_DIMENSION = 2**31 - 1
"""BLAS libraries count matrix dimensions in 32-bit integers."""
MAX_VALUES = 1_000_000
"""More values than this on one axis are a slip, not a plan."""
RANGE_KEYS = ("start", "stop", "step", "baseline")
LIST_KEYS = ("values", "baseline")
RATIO_KEYS = ("ratio", "distance", "span", "step")
DISTANCE_KEYS = ("ratio", "distance", "step")
SPAN_KEYS = ("ratio", "span", "step")
MAX_RATIO = 1000


def expand(axis: object) -> tuple[int, ...]:
    """Return the values of an Axis in the order written, each once.

    A range counts from ``start`` by ``step`` (default 1) and includes ``stop`` when the steps reach it.
    Raises InvalidValueError for anything that is not a usable Axis.

    >>> expand({"start": 4096, "stop": 8192, "step": 1024})
    (4096, 5120, 6144, 7168, 8192)
    >>> expand([2, 1, 2]), expand(8)
    ((2, 1), (8,))
    """
    return tuple(dict.fromkeys(_values(axis)))


def count(axis: object) -> int:
    """Return how many values an Axis has, without building a range."""
    values = _values(axis)
    return len(values) if isinstance(values, range) else len(set(values))


def choice(axis: object) -> tuple[tuple[int, ...], int | None]:
    """Return the values of an Axis that is chosen from, in increasing order, and the baseline among them or None.

    >>> choice({"values": [20, 40], "baseline": 32})
    ((20, 32, 40), 32)
    """
    baseline = axis.get("baseline") if isinstance(axis, Mapping) else None
    values = set(_values(axis))
    if baseline is None:
        return tuple(sorted(values)), None
    found = _dimension("baseline: ", baseline)
    return tuple(sorted(values | {found})), found


def d_ff_values(spec: object, h: int) -> tuple[tuple[int, ...], int | None]:
    """Return the d_ff values for one h, and the baseline among them (None where no ratio is given).

    With a ratio: the baseline is ``floor(ratio * h)`` exactly; around it every ``baseline + d`` for d from -distance
    to +distance in steps, rounded down to a multiple of ``step`` as the seed's script does: the first may lie less than
    a step below -distance, and the last less than two below +distance.
    With a span: the multiples of ``step`` from ``(1 - span) * ratio * h`` to ``(1 + span) * ratio * h``, both included.
    Values below 1 are left out. The result is in increasing order.

    >>> d_ff_values({"ratio": "8/3", "distance": 8, "step": 4}, 4096)
    ((10912, 10916, 10920, 10922, 10924, 10928), 10922)
    >>> d_ff_values({"ratio": "8/3", "span": 0.25, "step": 2048}, 4096)
    ((8192, 10240, 10922, 12288), 10922)
    """
    if not is_ratio(spec):
        return choice(spec)
    parts = _ratio_parts(spec)
    baseline = _floor(parts.ratio, h)
    if parts.span is not None:
        values = {*_bounded(_spanned(parts, h)), baseline}
    else:
        around = (baseline + offset for offset in range(-parts.distance, parts.distance + 1, parts.step))
        values = {value - value % parts.step for value in around} | {baseline}
    return tuple(sorted(value for value in values if value >= 1)), baseline


def is_ratio(spec: object) -> bool:
    """Whether a choice of d_ff follows h, or is meant to: ``{ratio:8/3}`` without a space is one name to YAML."""
    if not isinstance(spec, Mapping):
        return False
    names = {re.split("[:=]", str(key))[0] for key in spec}
    return not {"start", "stop", "values"} & names and bool({"ratio", "distance", "span"} & names)


def by_ratio(spec: object, h: int) -> int:
    """``floor(ratio * h)`` of a choice of d_ff that follows h."""
    return by_ratios(spec, (h,))[0]


def by_ratios(spec: object, sizes: Iterable[int]) -> list[int]:
    """``floor(ratio * h)`` for each h of several."""
    ratio = _ratio_parts(spec).ratio
    return [_floor(ratio, h) for h in sizes]


def _floor(ratio: Fraction, h: int) -> int:
    baseline = ratio.numerator * h // ratio.denominator
    if baseline < 1:
        raise InvalidValueError(f"ratio {ratio} of h={h} is less than 1")
    return baseline


def seed_d_ff_values(spec: object, h: int) -> tuple[tuple[int, ...], int | None]:
    """Return what swiglu-maf-bench visits: the upper end is left out and each value rounded down to a multiple of 4.

    A choice without a distance is the same as for ``d_ff_values``.

    >>> seed_d_ff_values({"ratio": "8/3", "distance": 8, "step": 4}, 4096)
    ((10912, 10916, 10920, 10922, 10924), 10922)
    """
    if not is_ratio(spec) or (parts := _ratio_parts(spec)).span is not None:
        return d_ff_values(spec, h)
    baseline = math.floor(parts.ratio * h)
    around = (baseline + offset for offset in range(-parts.distance, parts.distance, parts.step))
    values = {value - value % 4 for value in around} | {baseline}
    return tuple(sorted(value for value in values if value >= 1)), baseline


def d_ff_count(spec: object, h: int = 1) -> int:
    """Return the largest number of d_ff values that an h up to this one can have; it counts where there is a span."""
    if not is_ratio(spec):
        return count(spec)
    parts = _ratio_parts(spec)
    if parts.span is not None:
        return math.floor(2 * parts.span * parts.ratio * h / parts.step) + 2
    return len(range(-parts.distance, parts.distance + 1, parts.step)) + 1


def check_span(spec: object, h: int) -> None:
    """Raise InvalidValueError where a choice of d_ff with a span has more values for this h than fit on an axis."""
    parts = _ratio_parts(spec)
    if parts.span is not None:
        _bounded(_spanned(parts, h))


def _values(axis: object) -> Sequence[int]:
    if isinstance(axis, Mapping) and "values" in axis:
        _check_keys(axis, LIST_KEYS, required=LIST_KEYS[:1])
        _check_baseline(axis)
        return _values(axis["values"])
    if isinstance(axis, Mapping):
        return _range(axis)
    if not isinstance(axis, (list, tuple)):
        return (_dimension("", axis),)
    if not axis:
        raise InvalidValueError("an empty list; give at least one value")
    if len(axis) > MAX_VALUES:
        raise InvalidValueError(f"{len(axis)} values; at most {MAX_VALUES} fit on one axis")
    return [_dimension("", value) for value in axis]


def _range(axis: Mapping[object, object]) -> range:
    _check_keys(axis, RANGE_KEYS, required=RANGE_KEYS[:2])
    start, stop, step = (_dimension(f"{key}: ", axis.get(key, 1)) for key in RANGE_KEYS[:3])
    _check_baseline(axis)
    if start > stop:
        raise InvalidValueError(f"start <= stop must hold, but got start={start}, stop={stop}")
    return _bounded(range(start, stop + 1, step))


def _check_baseline(axis: Mapping[object, object]) -> None:
    if axis.get("baseline") is not None:
        _dimension("baseline: ", axis["baseline"])


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parts:
    """A choice of d_ff that follows h: with a distance, or with a span (else None)."""

    ratio: Fraction
    step: int
    distance: int = 0
    span: Fraction | None = None


def _ratio_parts(spec: object) -> _Parts:
    assert isinstance(spec, Mapping)
    _check_keys(spec, RATIO_KEYS, required=())
    if {"span", "distance"} <= set(spec):
        raise InvalidValueError("both a distance and a span; give {ratio, distance, step} or {ratio, span, step}")
    known = SPAN_KEYS if "span" in spec else DISTANCE_KEYS
    _check_keys(spec, known, required=known)
    step = _dimension("step: ", spec["step"])
    if "span" in spec:
        return _Parts(ratio=_ratio(spec["ratio"]), step=step, span=_span(spec["span"]))
    distance = whole("distance: ", spec["distance"], low=0, high=MAX_DIMENSION)
    _bounded(range(-distance, distance + 1, step))
    return _Parts(ratio=_ratio(spec["ratio"]), step=step, distance=distance)


def _spanned(parts: _Parts, h: int) -> range:
    """The multiples of the step within the span."""
    assert parts.span is not None
    low, high = ((1 + sign * parts.span) * parts.ratio * h / parts.step for sign in (-1, 1))
    return range(math.ceil(low) * parts.step, math.floor(high) * parts.step + 1, parts.step)


def _ratio(value: object) -> Fraction:
    ratio = _fraction("ratio: ", value, "8/3, or 2.6667")
    if not 0 < ratio <= MAX_RATIO:
        raise InvalidValueError(f"ratio: 0 < ratio <= {MAX_RATIO} must hold, but got {value}")
    return ratio


def _span(value: object) -> Fraction:
    span = _fraction("span: ", value, "1/4, or 0.25")
    if not 0 < span < 1:
        raise InvalidValueError(f"span: 0 < span < 1 must hold, but got {value}")
    return span


def _fraction(where: str, value: object, example: str) -> Fraction:
    """Read ``8/3`` or a decimal number exactly, as it is written."""
    text = str(value).replace(" ", "")
    # no exponents: Fraction("1e999999999") would compute for ever
    if isinstance(value, bool) or not re.fullmatch(r"[-+]?(\d{1,9}(/\d{1,9})?|\d{0,9}\.\d{1,18})", text):
        raise InvalidValueError(f"{where}{describe(value)} is no number; write a fraction such as {example}")
    try:
        return Fraction(text)
    except ZeroDivisionError:
        raise InvalidValueError(f"{where}{describe(value)} divides by zero") from None


def _check_keys(mapping: Mapping[object, object], known: Sequence[str], required: Sequence[str]) -> None:
    for key in mapping:
        if key not in known:
            raise InvalidValueError(unknown_part(str(key), known))
    missing = [key for key in required if key not in mapping]
    if missing:
        raise InvalidValueError(f"{{{', '.join(known)}}} lacks {' and '.join(missing)}")


def _bounded(values: range) -> range:
    size = (values.stop - values.start - 1) // values.step + 1
    if size > MAX_VALUES:
        raise InvalidValueError(f"{size} values; at most {MAX_VALUES} fit on one axis: use a larger step")
    return values


def _dimension(where: str, value: object) -> int:
    return whole(where, value, low=1, high=MAX_DIMENSION)


def whole(where: str, value: object, *, low: int | None = None, high: int | None = None) -> int:
    """Return ``value`` if it is a whole number within its bounds, else raise; ``where`` opens the message."""
    if isinstance(value, bool) or not isinstance(value, int):
        hint = f"; write {int(value)}" if isinstance(value, float) and value.is_integer() else ""
        raise InvalidValueError(f"{where}{describe(value)} is not a whole number{hint}")
    if low is not None and value < low:
        raise InvalidValueError(f"{where}{describe(value)} is too small; it must be >= {low}")
    if high is not None and value > high:
        raise InvalidValueError(f"{where}{describe(value)} is too large; it must be <= {high}")
    return value
