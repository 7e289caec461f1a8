"""A budget of parameters: how it is written, and the numbers that name shapes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.budget import parse_budget
from orchestrator.errors import InvalidValueError
from orchestrator.shape_code import MOST, code, dimensions, parse, value_name


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("7e9±2%", 6_860_000_000, 7_140_000_000),
        ("7e9+-2%", 6_860_000_000, 7_140_000_000),
        ("7B +/- 2 %", 6_860_000_000, 7_140_000_000),
        ("7b", 6_860_000_000, 7_140_000_000),  # 2% unless it says otherwise
        ("1.5e+9±0.5%", 1_492_500_000, 1_507_500_000),
        ("350M±0%", 350_000_000, 350_000_000),
        ("7_000±0.01%", 7_000, 7_000),  # 6,999.3 to 7,000.7
        (7_000_000_000, 6_860_000_000, 7_140_000_000),
        (7e9, 6_860_000_000, 7_140_000_000),
        ("1±99%", 1, 1),
    ],
)
def test_a_budget_is_read_exactly(text: object, low: int, high: int) -> None:
    found = parse_budget(text)
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seven", "'seven' is no number of parameters with a tolerance; write one such as 7e9±2%, 7B"),
        ("7e9±", "is no number of parameters"),
        ("7e9±2", "is no number of parameters"),
        ("-7e9", "is no number of parameters"),
        ("7e9±-2%", "is no number of parameters"),
        ("7e-9", "is no number of parameters"),
        (True, "true .a boolean. is no number of parameters"),
        ([7], "is no number of parameters"),
        ("0", "1 <= parameters <= 1e.15 must hold, but got 0"),
        ("9e99", "1 <= parameters <= 1e.15 must hold, but got 9e99"),
        ("7e9±100%", "7e9±100%: 0% <= tolerance < 100% must hold"),
    ],
)
def test_what_is_no_budget_is_refused_with_what_is_right(text: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        parse_budget(text)


SIZES = {name: st.integers(1, most) for name, most in MOST.items()}


@given(st.fixed_dictionaries(SIZES), st.fixed_dictionaries(SIZES))
def test_a_number_names_one_shape_and_keeps_in_a_double(one: dict[str, int], other: dict[str, int]) -> None:
    number = code(**one)
    assert dimensions(number) == one
    assert int(float(number)) == number
    assert parse(value_name("shape", number)) == number
    assert (number < code(**other)) == ([one[name] for name in MOST] < [other[name] for name in MOST])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4096", "'4096' is no shape; write h/d_ff/a, such as 4096/11008/32"),
        ("4096/x/32", "is no shape"),
        ("4096/11008/", "is no shape"),
        ("4096/11008/10000", "1 <= a <= 9999 must hold, but got 10000"),
        ("0/11008/32", "1 <= h <= 900000 must hold, but got 0"),
    ],
)
def test_what_is_no_shape_is_refused(text: Any, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        parse(text)
