import math
import time
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from orchestrator.axis import MAX_VALUES, count, d_ff_count, d_ff_values, expand, seed_d_ff_values
from orchestrator.errors import InvalidValueError

SEED = {"ratio": "8/3", "distance": 100, "step": 4}


def test_a_number_is_an_axis_of_one_value() -> None:
    assert expand(8) == (8,)


def test_a_list_keeps_its_order_and_drops_repeats() -> None:
    assert expand([4, 1, 4, 2]) == (4, 1, 2)


def test_a_range_includes_both_ends() -> None:
    assert expand({"start": 4096, "stop": 8192, "step": 2048}) == (4096, 6144, 8192)


def test_a_range_stops_at_the_last_step_that_fits() -> None:
    assert expand({"start": 1, "stop": 10, "step": 4}) == (1, 5, 9)


def test_a_range_counts_by_one_without_a_step() -> None:
    assert expand({"start": 3, "stop": 5}) == (3, 4, 5)


@given(st.integers(1, 10**6), st.integers(0, 2000), st.integers(1, 500))
def test_a_range_holds_exactly_the_numbers_of_its_grid(start: int, length: int, step: int) -> None:
    axis = {"start": start, "stop": start + length, "step": step}
    expected = tuple(n for n in range(start, start + length + 1) if (n - start) % step == 0)
    assert expand(axis) == expected
    assert count(axis) == len(expected)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60))
def test_count_agrees_with_expand(values: list[int]) -> None:
    assert count(values) == len(expand(values)) == len(set(values))


def test_the_seed_space_of_h_4096() -> None:
    values, baseline = d_ff_values(SEED, 4096)
    # 10922 - 100 = 10822 -> 10820, ..., 10922 + 100 = 11022 -> 11020: 51 multiples of 4, and the baseline itself
    assert baseline == 10922
    assert values == tuple(sorted([*range(10820, 11021, 4), 10922]))


def test_a_baseline_on_the_grid_appears_once() -> None:
    values, baseline = d_ff_values({"ratio": 4, "distance": 8, "step": 4}, 1024)
    assert (values, baseline) == ((4088, 4092, 4096, 4100, 4104), 4096)


def test_distance_zero_rounds_down_and_keeps_the_baseline() -> None:
    assert d_ff_values({"ratio": "8/3", "distance": 0, "step": 4}, 4096) == ((10920, 10922), 10922)


@pytest.mark.parametrize(
    ("ratio", "h", "baseline"), [("8/3", 8192, 21845), (2.7, 10, 27), (0.29, 100, 29), (4, 64, 256)]
)
def test_the_ratio_is_exact(ratio: str | float, h: int, baseline: int) -> None:
    assert d_ff_values({"ratio": ratio, "distance": 0, "step": 1}, h)[1] == baseline


def test_values_below_one_are_left_out() -> None:
    values, _ = d_ff_values(SEED, 16)
    assert min(values) == 4


def test_a_span_is_a_share_of_the_ratios_d_ff() -> None:
    # 8/3·4096 = 10922.67, 25% of it to either side: 8192 to 13653.33, in steps of 4 up to 13652
    values, baseline = d_ff_values({"ratio": "8/3", "span": 0.25, "step": 4}, 4096)
    assert (values, baseline) == (tuple(sorted([*range(8192, 13653, 4), 10922])), 10922)
    assert len(values) == 1367
    # 35% to either side: 7099.73 to 14745.6, on the multiples of 8 from 7104 to 14744
    values, _ = d_ff_values({"ratio": "8/3", "span": "7/20", "step": 8}, 4096)
    assert (values[0], values[-1], len(values)) == (7104, 14744, 957)


@given(
    st.integers(1, 900),
    st.fractions(Fraction(1, 2), 4, max_denominator=1000),
    st.fractions(Fraction(1, 100), Fraction(9, 10), max_denominator=100),
    st.integers(1, 64),
)
@settings(deadline=None)
def test_the_law_of_a_span(h: int, ratio: Fraction, span: Fraction, step: int) -> None:
    spec = {"ratio": str(ratio), "span": str(span), "step": step}
    assume(math.floor(ratio * h) >= 1)
    values, baseline = d_ff_values(spec, h)
    assert baseline == math.floor(ratio * h)
    within = [v for v in range(0, 2 * math.ceil(ratio * h) + 1, step) if abs(v - ratio * h) <= span * ratio * h and v]
    assert list(values) == sorted({*within, baseline})
    assert len(values) <= d_ff_count(spec, h)
    assert seed_d_ff_values(spec, h) == (values, baseline)


def test_lists_and_ranges_have_no_baseline() -> None:
    assert d_ff_values([11008, 10944], 4096) == ((10944, 11008), None)
    assert d_ff_values({"start": 64, "stop": 192, "step": 64}, 4096) == ((64, 128, 192), None)


@given(
    st.integers(1, 30000),
    st.fractions(Fraction(1, 2), 8, max_denominator=1000),
    st.integers(0, 300),
    st.integers(1, 64),
)
def test_the_neighbourhood_law(h: int, ratio: Fraction, distance: int, step: int) -> None:
    base = math.floor(ratio * h)
    spec = {"ratio": str(ratio), "distance": distance, "step": step}
    if base < 1:
        with pytest.raises(InvalidValueError, match="less than 1"):
            d_ff_values(spec, h)
        return
    values, baseline = d_ff_values(spec, h)
    assert baseline == base
    assert base in values
    assert list(values) == sorted(set(values))
    assert all(v >= 1 and (v % step == 0 or v == base) for v in values)
    assert all(base - distance - step < v <= base + distance for v in values)
    assert len(values) <= d_ff_count(spec)
    on_grid = {v for v in range(step, base + distance + 1, step) if v > base - distance}
    assert on_grid - set(values) <= {max(on_grid, default=0)}  # at most the last one, which no offset may reach


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        ([], "an empty list"),
        (0, "0 is too small; it must be >= 1"),
        ([1, -2], "-2 is too small"),
        (True, r"true \(a boolean\) is not a whole number"),
        ([1, "x"], "'x' is not a whole number"),
        (1e6, "not a whole number; write 1000000"),
        (2.5, r"2.5 \(a decimal number\) is not a whole number$"),
        (None, r"nothing \(null\) is not a whole number"),
        (2**31, "too large; it must be <= 2147483647"),
        ([[1]], r"\[1\] is not a whole number"),
        ({"start": 8, "stop": 4, "step": 1}, "start <= stop must hold, but got start=8, stop=4"),
        ({"start": 1, "stop": 4, "step": 0}, "step: 0 is too small"),
        ({"start": 1, "stop": 4, "step": -1}, "step: -1 is too small"),
        ({"start": 1}, "lacks stop"),
        ({"start": 1, "stop": 4, "stpe": 1}, "unknown part 'stpe'; did you mean stop or step"),
        ({"start:1": None, "stop": 4, "step": 1}, "a space must follow the colon, as in {start: 1}"),
        ({"start": 1.5, "stop": 4}, "start: 1.5"),
        ({"start": 1, "stop": 10**9}, "1000000000 values; at most 1000000 fit on one axis"),
        ({}, "lacks start and stop"),
    ],
)
def test_what_is_no_axis_is_refused(axis: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        expand(axis)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"ratio": "8/0", "distance": 1, "step": 1}, "ratio: '8/0' divides by zero"),
        ({"ratio": "two", "distance": 1, "step": 1}, "write a fraction such as 8/3"),
        ({"ratio": True, "distance": 1, "step": 1}, "ratio: true"),
        ({"ratio": 0, "distance": 1, "step": 1}, "0 < ratio <= 1000 must hold"),
        ({"ratio": float("nan"), "distance": 1, "step": 1}, "is no number"),
        ({"ratio": "1e999999999", "distance": 1, "step": 1}, "is no number"),
        ({"ratio": "8/3", "distance": -1, "step": 1}, "distance: -1 is too small"),
        ({"ratio": "8/3", "distance": 100}, "lacks step"),
        ({"ratio": "8/3", "span": 0.25}, "{ratio, span, step} lacks step"),
        ({"span": 0.25, "step": 4}, "{ratio, span, step} lacks ratio"),
        ({"ratio": "8/3", "step": 4}, "{ratio, distance, step} lacks distance"),
        ({"ratio": "8/3", "span": 0.25, "distance": 100, "step": 4}, "both a distance and a span; give {ratio, distan"),
        ({"ratio": "8/3", "span": 1, "step": 4}, "0 < span < 1 must hold, but got 1"),
        ({"ratio": "8/3", "span": 0, "step": 4}, "0 < span < 1 must hold, but got 0"),
        (
            {"ratio": "8/3", "span": "wide", "step": 4},
            "span: 'wide' is no number; write a fraction such as 1/4, or 0.25",
        ),
        ({"ratio": "8/3", "span": 0.25, "step": 0}, "step: 0 is too small"),
        ({"ratio": "8/3", "spam": 0.25, "step": 4}, "unknown part 'spam'; did you mean span?"),
        ({"distance": 100, "step": 4}, "lacks ratio"),
        ({"ratio": "8/3", "distance": 100, "step": 4, "start": 1}, "unknown part 'ratio'"),
        ({"ratio": "8/3", "distance": 10**9, "step": 1}, "at most 1000000"),
        ({"ratio": "1/9", "distance": 1, "step": 1}, "is less than 1"),
    ],
)
def test_what_is_no_choice_of_d_ff_is_refused(spec: object, message: str) -> None:
    with pytest.raises(InvalidValueError, match=message):
        d_ff_values(spec, 8)


def test_a_huge_range_is_refused_at_once() -> None:
    begin = time.perf_counter()
    with pytest.raises(InvalidValueError, match="at most"):
        expand({"start": 1, "stop": 2**31 - 1})
    assert time.perf_counter() - begin < 0.1
    assert count({"start": 1, "stop": MAX_VALUES}) == MAX_VALUES
