"""The interval of a median: order statistics worked out by the binomial distribution."""

import pytest

from tasks.interval import Interval, median_interval


@pytest.mark.parametrize(
    ("count", "cut"),
    [
        (1, 0),
        (5, 0),  # 2/32 of the chance lies outside even of the whole range
        (6, 0),  # 2/64 = 3.1% outside; one more value a side would be 22%
        (9, 1),  # 2 * (1 + 9) / 512 = 3.9%
        (10, 1),  # 2 * (1 + 10) / 1024 = 2.1%; with the next 10.9%
        (20, 5),  # 2 * 21700 / 2**20 = 4.1%; with the next 11.5%
    ],
)
def test_the_interval_leaves_at_most_five_percent_outside(count: int, cut: int) -> None:
    values = [float(i) for i in range(count)]
    found = median_interval(list(reversed(values)))
    assert found == Interval(median=(count - 1) / 2, low=values[cut], high=values[count - 1 - cut])


def test_less_confidence_narrows_it() -> None:
    values = [float(i) for i in range(10)]
    assert median_interval(values, 0.5).low > median_interval(values, 0.95).low
