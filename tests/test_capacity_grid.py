"""Interpolation between measured shapes: power laws are met exactly, and nothing is taken from outside."""

import math

import pytest

from orchestrator.capacity_grid import Grid
from orchestrator.compare_side import Shape


def shape(m: int, n: int = 1024, k: int = 1024, *, b: int = 1, dtype: str = "bf16") -> Shape:
    return Shape("mm" if b == 1 else "bmm", b, m, n, k, dtype)


def law(each: Shape) -> float:
    return 1e-9 * math.exp(0.9 * math.log(each.m) + 0.5 * math.log(each.n) + 1.1 * math.log(each.k))


CUBE = Grid({each: law(each) for m in (64, 256) for n in (128, 512) for k in (256, 1024) for each in [shape(m, n, k)]})


def test_halfway_in_log_space_is_the_geometric_mean() -> None:
    grid = Grid({shape(64): 1e-6, shape(256): 9e-6})
    found = grid.estimate(shape(128))
    assert found is not None
    assert found.seconds == pytest.approx(3e-6)
    assert found.spans == {"m": (64, 256)}


@pytest.mark.parametrize(
    ("at", "axes"),
    [
        (shape(128, 128, 256), ("m",)),
        (shape(64, 256, 256), ("n",)),
        (shape(64, 128, 512), ("k",)),
        (shape(128, 200, 256), ("m", "n")),
        (shape(128, 200, 512), ("m", "n", "k")),
    ],
)
def test_a_power_law_is_met_along_as_few_axes_as_needed(at: Shape, axes: tuple[str, ...]) -> None:
    found = CUBE.estimate(at)
    assert found is not None
    assert found.axes == axes
    assert found.seconds == pytest.approx(law(at))


@pytest.mark.parametrize(
    "at",
    [
        shape(32, 128, 256),
        shape(512, 128, 256),
        shape(64, 64, 256),
        shape(64, 128, 2048),
        shape(128, 128, 256, dtype="fp16"),
        shape(128, 128, 256, b=2),
        shape(128, 128, 256)._replace(layout="nt"),
    ],
)
def test_there_is_nothing_outside_or_of_another_kind(at: Shape) -> None:
    assert CUBE.estimate(at) is None


def test_neighbours_more_than_four_times_apart_tell_nothing() -> None:
    assert Grid({shape(64): 1e-6, shape(256): 2e-6}).estimate(shape(100)) is not None
    assert Grid({shape(64): 1e-6, shape(264): 2e-6}).estimate(shape(100)) is None


def test_rows_that_are_not_aligned_are_no_neighbours_of_aligned_ones() -> None:
    # 1028 elements of 2 bytes are no multiple of 16 bytes: such a Gemm takes its own, slower path
    grid = Grid({shape(64, 1024): 1e-6, shape(64, 1028): 5e-6, shape(64, 1040): 1.1e-6})
    found = grid.estimate(shape(64, 1032))
    assert found is not None
    assert found.spans == {"n": (1024, 1040)}
    assert grid.estimate(shape(64, 1030)) is None


def test_the_nearest_neighbours_are_taken() -> None:
    grid = Grid({shape(m): m * 1e-9 for m in (64, 128, 256, 512)})
    found = grid.estimate(shape(200))
    assert found is not None
    assert found.spans == {"m": (128, 256)}


def test_of_two_axes_the_one_with_the_closer_neighbours_is_taken() -> None:
    wide = {shape(64, 1024): 1.0, shape(256, 1024): 1.0}
    found = Grid({**wide, shape(128, 1000): 2.0, shape(128, 1056): 2.0}).estimate(shape(128, 1024))
    assert found is not None
    assert found.spans == {"n": (1000, 1056)}
    assert found.seconds == pytest.approx(2.0)


def test_leaving_one_out_by_hand() -> None:
    # halfway between 1 and 4 lies 2, and 2.2 was measured; halfway between 2.2 and 8 lies 4.195, and 4 was measured
    grid = Grid({shape(m): seconds for m, seconds in ((64, 1.0), (128, 2.2), (256, 4.0), (512, 8.0))})
    error = grid.error(("m",), "bf16")
    assert error is not None
    misses = sorted([abs(2 / 2.2 - 1), math.sqrt(2.2 * 8) / 4 - 1])
    assert error.count == 2
    assert error.median == pytest.approx(sum(misses) / 2)
    assert error.p90 == pytest.approx(misses[0] + 0.9 * (misses[1] - misses[0]))


def test_there_is_no_error_where_nothing_lies_between() -> None:
    assert CUBE.error(("m",), "bf16") is None
    assert CUBE.error(("m",), "fp8") is None


def test_of_a_power_law_nothing_is_missed() -> None:
    grid = Grid({each: law(each) for m in (64, 128, 256) for n in (128, 256, 512) for each in [shape(m, n)]})
    error = grid.error(("m", "n"), "bf16")
    assert error is not None
    assert error.count == 1
    assert error.p90 == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("factor", "departs"), [(1.0, False), (1.2, False), (1.5, True), (0.5, True)])
def test_a_figure_departs_where_every_axis_says_so(factor: float, departs: bool) -> None:
    middle = shape(128, 256)
    seconds = {each: law(each) for m in (64, 128, 256) for n in (128, 256, 512) for each in [shape(m, n)]}
    found = Grid({**seconds, middle: factor * law(middle)}).departure(middle)
    assert (found is not None) == departs
    if found is not None:
        assert found == pytest.approx(factor)


def test_one_axis_alone_makes_no_doubt() -> None:
    assert Grid({shape(64): 1.0, shape(128): 9.0, shape(256): 4.0}).departure(shape(128)) is None
