"""Single plots."""

import re
from html import unescape

import pytest

from orchestrator.errors import InvalidValueError, StoreError
from orchestrator.report import PLOTS
from orchestrator.report.picture import picture
from orchestrator.report.source import ReportRun, open_runs
from tests.reports import EXAMPLES, HOSTILE, candidates, made_run


@pytest.fixture(scope="module")
def example() -> ReportRun:
    return open_runs(["examples/h200-gpt-3-2.7b"], str(EXAMPLES.parent))[0]


def texts(svg: bytes) -> str:
    """The drawn letters are paths; what they were stands beside them in comments."""
    return "\n".join(unescape(each) for each in re.findall(r"<!-- (.*?) -->", svg.decode()))


def test_a_family_is_drawn_with_its_verdict(example: ReportRun) -> None:
    found = texts(picture([example], "svg", "family", "attn-"))
    assert "attn · h=2560 · tp=1 · batch=4 · seq=2048 · fp16" in found
    assert "a 10 is best at 567.0 TFLOP/s" in found
    assert "aligned to 64 and more" in found


@pytest.mark.parametrize("plot", [plot for plot in PLOTS if plot != "family"])
def test_every_plot_is_drawn_of_the_committed_run(example: ReportRun, plot: str) -> None:
    assert picture([example], "png", plot)[:8] == b"\x89PNG\r\n\x1a\n"


def test_runs_share_one_plot() -> None:
    runs = [made_run(candidates(0, 4), name="old"), made_run(candidates(0, 4, speed=1.3), name="new")]
    found = texts(picture(runs, "svg", "family"))
    assert "old" in found.split()
    assert "new" in found.split()


def test_the_same_run_gives_the_same_bytes(example: ReportRun) -> None:
    assert picture([example], "svg", "roofline") == picture([example], "svg", "roofline")


def test_a_name_is_neither_markup_nor_mathematics() -> None:
    run = made_run([{**row, "role": f"$x^$ {HOSTILE}"} for row in candidates(0, 2)], name=HOSTILE)
    assert f"$x^$ {HOSTILE}"[:20] in texts(picture([run], "svg", "family"))


def test_an_unknown_family_and_nothing_to_draw_are_told() -> None:
    with pytest.raises(StoreError, match=r"unknown family 'x'; .*mlp-h1024"):
        picture([made_run(candidates(0, 2))], "png", "family", "x")
    for plot in PLOTS:
        with pytest.raises(InvalidValueError, match="to draw"):
            picture([made_run([])], "png", plot)
