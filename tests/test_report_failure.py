"""What was not measured, and why."""

from typing import Any

from orchestrator.ranking import Ranking
from orchestrator.report.failure import LONGEST, failures, skips, troubles
from tests.reports import candidates, made_run

FAILED: dict[str, Any] = {"rank": None, "tie_group": None, "parts": []}


def test_failures_are_grouped_by_their_reason_the_most_frequent_first() -> None:
    rows = candidates(0, 8)
    for row in rows[:6]:
        row |= {**FAILED, "status": "oom", "message": "up: too big"}
    rows[6] |= {**FAILED, "status": "wrong_result", "message": "off by 3"}
    first, second = failures([made_run(rows)])
    assert (first.status, first.message, first.count, len(first.examples)) == ("oom", "up: too big", 6, 5)
    assert second.examples == ("mlp-h1024-tp1-b1-s2048-bf16 d_ff=6464",)


def test_a_long_message_is_cut_where_a_page_would_drown() -> None:
    rows = [row | {**FAILED, "status": "oom", "message": "m" * 50_000} for row in candidates(0, 1)]
    (found,) = failures([made_run(rows)])
    assert len(found.message) == LONGEST
    assert found.message.endswith("…")


def test_skips_are_those_of_the_manifest_and_a_strange_one_says_nothing() -> None:
    told = [{"kind": "tp does not divide d_ff", "count": 112, "examples": ["tp=4"]}, {"kind": "x"}, "y"]
    (found,) = skips([made_run([], skips=told)])
    assert (found.kind, found.count, found.examples) == ("tp does not divide d_ff", 112, ("tp=4",))
    assert skips([made_run([], skips={"a": 1}), made_run([])]) == []


def test_corrupt_shards_suspects_and_remarks_are_told_once() -> None:
    table = made_run([]).ranking.table
    ranking = Ranking(table=table, problems=("x.parquet is corrupt",), notes=("suspect: GPU-1",))
    run = made_run([], shards=[{"notes": ["capture failed"]}, {"notes": ["capture failed"]}], ranking=ranking)
    assert troubles([run]) == [
        "made: x.parquet is corrupt",
        "made: suspect: GPU-1",
        "made: b on GPU-0: capture failed",
    ]


def test_a_run_that_did_not_come_to_its_end_says_so() -> None:
    (line,) = troubles([made_run([], status="interrupted", bundles_unfinished=3)])
    assert line.startswith("made: the run is interrupted, not finished, 3 bundles were not measured")
    assert troubles([made_run([], status="finished", bundles_unfinished=0)]) == []
