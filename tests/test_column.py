"""Columns calculate as whole numbers do, or refuse."""

import math
import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.column import Column, InexactError
from orchestrator.errors import InvalidValueError
from orchestrator.expression import NAMES, Where
from tests.test_expression import condition

INTEGERS = (operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod)
COMPARISONS = (operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge)

whole = st.integers(-(2**40), 2**40) | st.integers(-9, 9)
rows = st.lists(st.tuples(whole, whole), min_size=1, max_size=4)


def column(values: list[int], *, exact: bool = False) -> Column:
    return Column.of(np.array(values, dtype=np.int64), exact=exact)


def plain(apply: Any, pairs: list[tuple[int, Any]]) -> list[Any] | None:
    try:
        return [apply(left, right) for left, right in pairs]
    except ZeroDivisionError:
        return None


@given(st.sampled_from((*INTEGERS, operator.truediv)), rows)
def test_an_operation_on_columns_is_pythons_on_each_row_or_is_refused(apply: Any, pairs: list[tuple[int, int]]) -> None:
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    expected = plain(apply, pairs)
    try:
        found = apply(column(left), column(right)).values.tolist()
    except InexactError:
        largest = max(map(abs, expected), default=0) if expected is not None else None
        assert largest is None or max(map(abs, left)) * max(map(abs, right)) >= 2**53
        return
    assert found == expected


@given(st.sampled_from(INTEGERS), rows)
def test_exact_columns_refuse_nothing_but_a_division_by_zero(apply: Any, pairs: list[tuple[int, int]]) -> None:
    large = [(left << 80, right) for left, right in pairs]
    expected = plain(apply, large)
    left = column([pair[0] for pair in pairs], exact=True) * 2**80
    right = column([pair[1] for pair in pairs], exact=True)
    if expected is None:
        with pytest.raises(InexactError):
            apply(left, right)
    else:
        assert apply(left, right).values.tolist() == expected


@given(st.sampled_from((*INTEGERS, *COMPARISONS)), st.lists(whole, min_size=1, max_size=4), whole | st.just(2**70))
def test_a_number_on_either_side_counts_for_every_row(apply: Any, values: list[int], number: int) -> None:
    sides: tuple[tuple[list[tuple[int, int]], Any, Any], ...] = (
        ([(value, number) for value in values], column(values), number),
        ([(number, value) for value in values], number, column(values)),
    )
    for pairs, left, right in sides:
        try:
            made = apply(left, right)
        except InexactError:
            continue
        found = made.values if isinstance(made, Column) else made
        assert found.tolist() == plain(apply, pairs)


def test_what_could_overflow_or_be_rounded_is_refused() -> None:
    large = column([2**40])
    assert (large * 2**21).values.tolist() == [2**61]
    refused: tuple[tuple[Any, Any, Any], ...] = (
        (operator.mul, large, 2**22),
        (operator.pow, large, 2),
        (operator.pow, large, column([2])),
        (operator.pow, 2, large),
        (operator.truediv, large * 2**14, 3),
        (operator.mul, large * 2**14, 0.5),
        (operator.floordiv, large / 3.0, 1),
        (operator.mod, large, 0),
    )
    for apply, left, right in refused:
        with pytest.raises(InexactError):
            apply(left, right)
    assert (large**1).values.tolist() == [2**40]


@pytest.mark.parametrize("apply", [operator.mul, operator.truediv])
def test_what_is_infinite_is_so_without_a_warning(apply: Any) -> None:
    small = column([1, 2]) / 1e200  # warnings are errors here
    assert (
        apply(1e200, small if apply is operator.truediv else column([1, 2]) * 1e200).values.tolist() == [math.inf] * 2
    )


@given(condition, st.lists(st.fixed_dictionaries(dict.fromkeys(NAMES, st.integers(1, 60))), min_size=1, max_size=4))
def test_a_condition_on_columns_holds_where_it_holds_for_the_point(text: str, points: list[dict[str, int]]) -> None:
    where = Where(text)
    columns: dict[str, Any] = {name: column([point[name] for point in points]) for name in NAMES}
    try:
        found = where.evaluate(**columns)
    except (InexactError, InvalidValueError):
        return  # then it is asked Point by Point
    assert np.broadcast_to(found, len(points)).tolist() == [where.evaluate(**point) for point in points]
