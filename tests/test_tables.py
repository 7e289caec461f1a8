"""What a person reads of a ranking: which rows, which digits, which notes."""

from typing import Any

import pytest

from orchestrator.tables import ONE_ROUND, FamilyTable, family_tables, parameters, status_counts, tflops
from tests.builders import parts_at, ranking_of


def only(*changes: dict[str, Any], top: int = 5) -> FamilyTable:
    (table,) = family_tables(ranking_of(*changes), top)
    return table


# Cells


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1234.5, "1234"),
        (633.42, "633.4"),
        (99.96, "100.0"),
        (45.17, "45.2"),
        (9.999, "10.0"),
        (1.0, "1.00"),
        (0.4318, "0.432"),
        (0.04318, "0.0432"),
        (0.0, "0"),
    ],
)
def test_tflops_have_three_significant_digits_or_four_from_a_hundred_on(value: float, text: str) -> None:
    assert tflops(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(786_432, "786,432"), (1_000_000, "1.00M"), (134_209_536, "134.21M"), (1_409_286_144, "1.409B")],
)
def test_parameters_are_short(count: int, text: str) -> None:
    assert parameters(count) == text


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "+3.2%"),
        ({"speedup": 0.43, "speedup_low": 0.42, "speedup_high": 0.44}, "-57.0%"),
        ({"speedup": 1.001, "speedup_low": 0.999, "speedup_high": 1.003}, "tie"),
        ({"speedup": 1.001, "speedup_low": None, "speedup_high": None}, "+0.1%"),
        ({"speedup": None}, "-"),
        ({"baseline": True}, "baseline"),
        ({"baseline": True, "rank": None, "status": "oom"}, "oom"),
    ],
)
def test_the_comparison_with_the_baseline(change: dict[str, Any], text: str) -> None:
    assert only(change).rows[0][3] == text


@pytest.mark.parametrize(
    ("low", "high", "text"), [(1.0, 1.0, "best"), (1.010, 1.014, "0.20%"), (0.998, 1.004, "0.30%"), (None, None, "-")]
)
def test_the_uncertainty_is_half_the_interval_in_percent(low: float | None, high: float | None, text: str) -> None:
    assert only({"relative_low": low, "relative_high": high}).rows[0][2] == text


# Rows and notes


def test_the_baseline_comes_first_then_the_best_and_is_not_repeated() -> None:
    table = only({"d_ff": 1}, {"d_ff": 2}, {"d_ff": 3, "baseline": True}, {"d_ff": 4}, {"d_ff": 5}, top=3)
    assert [row[0] for row in table.rows] == ["3", "1", "2", "4"]
    assert table.has_baseline


@pytest.mark.parametrize(("rounds", "told"), [(1, True), (2, False)])
def test_a_family_of_one_round_says_that_it_has_no_intervals(rounds: int, told: bool) -> None:
    cut = {"rounds": rounds, "resolved": False, "stop_reason": "interrupted"}
    assert (ONE_ROUND in only({"d_ff": 1, **cut}, {"d_ff": 2, **cut}).notes) == told


def test_the_title_names_the_family_the_gpu_and_the_rounds() -> None:
    assert only({}).title == "mlp h=8192 tp=8 batch=4 seq=2048 bf16, NVIDIA H200, 30 rounds"
    seed = only({"role": "seed_bmm", "seq": None, "rounds": 1})
    assert seed.title == "seed_bmm h=8192 tp=8 batch=4 bf16, NVIDIA H200, 1 round"


def test_parts_of_a_composite_stand_beside_it_and_a_single_part_does_not() -> None:
    table = only({"parts": parts_at(700.0, 560.04)})
    assert table.columns == ("d_ff", "TFLOP/s", "±", "vs baseline", "tie", "mlp_params", "align", "gate_up", "down")
    assert table.rows[0][-2:] == ("700.0", "560.0")
    assert only({"parts": parts_at(700.0, 560.0)[:1]}).columns[-1] == "align"


@pytest.mark.parametrize(
    ("change", "notes"),
    [
        ({}, ()),
        ({"resolved": False, "stop_reason": "max_seconds"}, ("not resolved: max_seconds",)),
        ({"resolved": False, "stop_reason": "max_rounds, resolved"}, ("not resolved: max_rounds",)),
        (
            {"protocol": "seed", "resolved": False, "stop_reason": "fixed, interrupted"},
            ("one figure a shape: no intervals", "not all: interrupted", "protocol seed"),
        ),
        (
            {"protocol": "seed", "resolved": False, "stop_reason": "fixed"},
            ("one figure a shape: no intervals", "protocol seed"),
        ),
        (
            {"protocol": "sequential", "l2": "flush", "resolved": False, "stop_reason": "fixed"},
            (
                "one shape after another: no intervals, and what drifted is part of the figures",
                "protocol sequential, l2 flush",
            ),
        ),
        ({"l2": "hot", "power": "burst"}, ("l2 hot, power burst",)),
        (
            {"throttled": True},
            ("throttled: the device slowed down for heat or power faults while it measured",),
        ),
    ],
)
def test_a_family_says_what_a_reader_must_know(change: dict[str, Any], notes: tuple[str, ...]) -> None:
    assert only(change).notes == notes


def test_failures_are_counted_and_the_first_is_explained() -> None:
    failed = {"rank": None, "tie_group": None, "tflops": None, "status": "oom", "message": "needs\n3 GiB"}
    table = only({}, {**failed, "d_ff": 10}, failed, {**failed, "status": "timeout"})
    assert table.notes == ("not measured: 2 oom, 1 timeout; d_ff 10: needs 3 GiB",)
    assert len(table.rows) == 1
    (note,) = only({**failed, "message": "x" * 10_000}).notes
    assert len(note) < 300


def test_candidates_are_counted_by_status_ok_first() -> None:
    table = ranking_of({"status": "oom"}, {"status": "oom"}, {}, {"status": "timeout"})
    assert list(status_counts(table).items()) == [("ok", 1), ("oom", 2), ("timeout", 1)]
