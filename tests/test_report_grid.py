"""The best of each Family over two dimensions."""

import pytest

from orchestrator.errors import InvalidValueError
from orchestrator.report.family import families
from orchestrator.report.grid import Grid, grid
from tests.reports import candidates, made_run


def crossed(*places: int, gain: bool = False) -> Grid:
    run = made_run([row for place in places for row in candidates(place, 3)])
    return grid([run], families([run]), gain=gain)


def test_families_are_crossed_by_h_and_tp() -> None:
    # The 0th and the 1st differ in h, the 25th has the h of the 0th and tp=2.
    found = crossed(0, 1, 25)
    assert (found.x, found.across, found.y, found.down) == ("h", ("1024", "2048"), "tp", ("1", "2"))
    assert found.values[0][0] == 600.0
    assert found.values[1][1] is None


def test_of_a_third_dimension_the_first_value_is_kept() -> None:
    found = crossed(0, 25, 1, 100)
    assert found.kept == "batch=1"
    assert found.values[0][0] == 600.0


def test_gains_are_in_percent() -> None:
    assert crossed(0, 1, gain=True).values[0] == pytest.approx((2.0, 2.0))


def test_runs_are_a_dimension_too() -> None:
    runs = [made_run(candidates(0, 3), name="old"), made_run(candidates(0, 3, speed=2.0), name="new")]
    found = grid(runs, families(runs), gain=False)
    assert (found.x, found.across, found.values) == ("run", ("new", "old"), ((1200.0, 600.0),))


def test_one_family_has_no_heatmap() -> None:
    with pytest.raises(InvalidValueError, match="do not differ"):
        crossed(0)


def test_without_a_baseline_there_is_no_gain() -> None:
    rows = [{**row, "baseline": False, "speedup": None} for place in (0, 1) for row in candidates(place, 3)]
    run = made_run(rows)
    with pytest.raises(InvalidValueError, match="no Family has a measured baseline"):
        grid([run], families([run]), gain=True)
