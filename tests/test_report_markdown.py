"""The report as Markdown."""

from typing import Any

from orchestrator.report.markdown import markdown
from orchestrator.report.source import open_runs
from tests.reports import EXAMPLES, HOSTILE, candidates, made_run

FAILED: dict[str, Any] = {"rank": None, "tie_group": None, "parts": []}


def test_the_committed_run_is_told_from_summary_to_environment() -> None:
    text = markdown(open_runs(["examples/h200-gpt-3-2.7b"], str(EXAMPLES.parent)))
    assert text.startswith("# Report of h200-gpt-3-2.7b\n\nThe best of a Family is +30.2% (attn ·")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Report of h200-gpt-3-2.7b",
        "## What was swept",
        "## Verdicts",
        "# Rankings",
        "## attention h=2560 tp=1 batch=4 seq=2048 fp16, NVIDIA H200, 29 rounds",
        "## attn h=2560 tp=1 batch=4 seq=2048 fp16, NVIDIA H200, 29 rounds",
        "## Devices of h200-gpt-3-2.7b",
        "## Environment",
    ]
    assert "| driver | 580.159.04 |" in text


def test_several_runs_stand_in_columns() -> None:
    text = markdown([made_run(candidates(0, 2), name="old"), made_run(candidates(0, 2, speed=2.0), name="new")])
    assert "|  | old | new |" in text
    assert "seq=2048 · bf16**, new: d\\_ff 6464 is best at 1200 TFLOP/s, +1.0% over the baseline 6400." in text


def test_a_hostile_run_is_text() -> None:
    rows = [row | {**FAILED, "status": "oom", "message": f"a\\|b\n# c [x](y) {HOSTILE}"} for row in candidates(0, 1)]
    text = markdown([made_run(rows, name=HOSTILE, shards=[{"host": HOSTILE, "notes": [HOSTILE]}], conf=HOSTILE)])
    unescaped = text.replace("\\<", "")
    assert "<" not in unescaped
    table = next(line for line in text.splitlines() if "| oom | a" in line)
    assert table.replace("\\\\", "").replace("\\|", "").count("|") == 6  # five cells
    assert "\n# c" not in text


def test_nothing_measured_is_said() -> None:
    assert "Nothing was measured." in markdown([made_run([])])
