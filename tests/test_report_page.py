"""The report's page: whole, without a network, and its texts are never markup."""

import base64
import gzip
import re
import string
from html.parser import HTMLParser
from typing import Any

import pytest

from orchestrator.report.layers import Bar, Component
from orchestrator.report.page import html
from orchestrator.report.payload import unpacked
from orchestrator.report.source import ReportRun, open_runs
from tests.reports import EXAMPLES, HOSTILE, candidates, made_run, many

LOADS = ("src", "href", "srcset", "data", "action", "poster", "formaction", "background")
"""Attributes by which a page asks for something."""


class Page(HTMLParser):
    """Elements with their attributes, and the text of each."""

    def __init__(self, content: bytes) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.blocks: dict[str, str] = {}
        self._block = ""
        self.feed(content.decode())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.text += " " if tag in ("td", "th", "dd", "dt", "a") else ""
        self._block = f"{tag}#{dict(attrs).get('id')}" if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._block = ""

    def handle_data(self, data: str) -> None:
        if self._block:
            self.blocks[self._block] = self.blocks.get(self._block, "") + data
        else:
            self.text += data

    @property
    def data(self) -> dict[str, Any]:
        found: dict[str, Any] = unpacked(self.blocks["script#data"])
        return found

    @property
    def shown(self) -> str:
        return " ".join(self.text.split())


@pytest.fixture(scope="module")
def example() -> ReportRun:
    return open_runs(["examples/h200-seed-and-mlp"], str(EXAMPLES.parent))[0]


@pytest.fixture(scope="module")
def content(example: ReportRun) -> bytes:
    return html([example])


@pytest.fixture(scope="module")
def page(content: bytes) -> Page:
    return Page(content)


def test_the_committed_run_is_whole(page: Page) -> None:
    assert "Families 16 Candidates measured 720 median gain over the baseline +211.0%" in page.shown
    assert "1 × NVIDIA H200" in page.shown
    assert "d_ff 11008 is best at 615.4 TFLOP/s, +231.2% over the baseline 10920." in page.shown
    assert "at its power limit in 16 of 16 Shards" in page.shown
    assert "tp does not divide d_ff" in page.shown
    assert "580.159.04" in page.shown
    families = [attributes for tag, attributes in page.elements if attributes.get("class") == "family"]
    assert len(families) == 16


def test_nothing_is_loaded_from_anywhere(page: Page, content: bytes) -> None:
    asked = [attributes.get(name) for _, attributes in page.elements for name in LOADS if attributes.get(name)]
    assert {each[:1] if each.startswith("#") else each for each in asked if each} == {"#", "data:,"}
    (policy,) = (a["content"] for _, a in page.elements if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    assert "http" not in policy
    assert not re.search(r"@import|url\(", page.blocks["style#None"])
    code = page.blocks["script#None"].replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|fetch\(|XMLHttpRequest|import\(", code)


def test_the_library_is_there_once_and_whole(page: Page) -> None:
    from plotly.offline import get_plotlyjs

    assert gzip.decompress(base64.b64decode(page.blocks["script#plotly"])).decode() == get_plotlyjs()


def test_the_data_are_the_very_ranking(page: Page, example: ReportRun) -> None:
    ranking = page.data["runs"][0]["ranking"]
    assert list(ranking) == example.ranking.table.column_names
    for i, row in enumerate(example.ranking.table.to_pylist()):
        for name, value in row.items():
            column = ranking[name]
            found = column["all"] if isinstance(column, dict) else column[i]
            if name == "parts":
                assert [p["gemm_id"] for p in found] == [p["gemm_id"] for p in value]
                assert [p["seconds"] for p in found] == pytest.approx([p["seconds"] for p in value], rel=1e-8)
            elif isinstance(value, float):
                assert found == pytest.approx(value, rel=1e-8)
            else:
                assert found == value


def test_every_series_points_at_its_rows(page: Page, example: ReportRun) -> None:
    for family in page.data["families"]:
        for run, gpu, start, count, _ in family["series"]:
            rows = example.rows[start : start + count]
            assert run == 0
            assert {(row["gpu"], row["family_id"]) for row in rows} == {(gpu, family["id"])}
    assert sum(series[3] for family in page.data["families"] for series in family["series"]) == len(example.rows)


def hostile() -> ReportRun:
    failed: dict[str, Any] = {
        "rank": None,
        "tie_group": None,
        "tflops": None,
        "seconds": None,
        "relative": None,
        "parts": [],
    }
    rows = candidates(0, 3)
    long = {**rows[0], **failed, "d_ff": 99, "status": HOSTILE, "message": (HOSTILE * 200)[:10_000]}
    rows += [long, {**long, "family_id": HOSTILE, "role": HOSTILE, "gpu": HOSTILE, "stop_reason": HOSTILE}]
    return made_run(
        rows,
        name=f"run{HOSTILE}",
        shards=[{}, {"uuid": HOSTILE, "host": HOSTILE, "gpu": HOSTILE, "driver": HOSTILE, "notes": [HOSTILE]}],
        config={"space": {HOSTILE: [HOSTILE]}},
        skips=[{"kind": HOSTILE, "count": 1, "examples": [HOSTILE]}],
        conf=HOSTILE,
        status=HOSTILE,
        started_utc=HOSTILE,
    )


def test_hostile_texts_stay_texts() -> None:
    component = Component(name=HOSTILE, kind=HOSTILE, share=1.0, seconds=1.0, times=1)
    bar = Bar(title=HOSTILE, gpu=HOSTILE, seconds=1.0, gemm_share=None, components=(component,))
    found, clean = Page(html([hostile()], [bar])), Page(html([made_run(candidates(0, 3))]))
    assert {tag for tag, _ in found.elements} - {tag for tag, _ in clean.elements} <= {"ul", "li", "pre", "h3", "code"}
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert [tag for tag, _ in found.elements].count("script") == 3
    assert found.shown.count("<script>alert(1)</script>") > 20
    assert "{{7*7}}" in found.shown
    assert "49" not in {word.strip(string.punctuation) for word in found.shown.split()}
    assert found.data["families"][-1]["id"] == HOSTILE


def test_a_message_of_ten_thousand_letters_is_there_whole_and_cut_in_its_row() -> None:
    found = Page(html([hostile()]))
    assert (HOSTILE * 200)[:10_000] in found.text
    assert any(tag == "pre" for tag, _ in found.elements)


def test_more_reasons_than_a_page_lists_are_counted() -> None:
    failed: dict[str, Any] = {"rank": None, "tie_group": None, "parts": [], "status": "oom"}
    rows = [{**row, **failed, "message": f"needs {i} GiB"} for i, row in enumerate(candidates(0, 203))]
    assert "3 more failed for other reasons" in Page(html([made_run(rows)])).shown


def test_a_text_that_is_no_unicode_does_not_stop_a_report() -> None:
    assert b"<h1>?x</h1>" in html([made_run([], name="\ud800x")])


def test_a_run_without_measurements_says_so() -> None:
    found = Page(html([made_run([])]))
    assert "Nothing was measured in this run." in found.shown
    assert found.data["families"] == []


def test_one_family_and_a_thousand_are_listed() -> None:
    assert sum(a.get("class") == "family" for _, a in Page(html([many(1, 1)])).elements) == 1
    content = html([many(1000, 5)])
    assert len(content) < 10_000_000
    found = Page(content)
    cards = [attributes for _, attributes in found.elements if attributes.get("class") == "family"]
    assert len(cards) == 1000
    assert sum("open" in card for card in cards) == 2


def test_two_runs_stand_side_by_side() -> None:
    old = made_run(candidates(0, 3, gpu="NVIDIA H100", speed=0.5), name="old", shards=[{"gpu": "NVIDIA H100"}])
    found = Page(html([old, made_run(candidates(0, 3), name="new")]))
    assert [each["series"] for each in found.data["families"]] == [
        [[0, "NVIDIA H100", 0, 3, "old, NVIDIA H100"], [1, "NVIDIA H200", 0, 3, "new, NVIDIA H200"]]
    ]
    assert "old, NVIDIA H100: d_ff 6528 is best at 300.0 TFLOP/s" in found.shown
    assert sum(attributes.get("class") == "differs" for _, attributes in found.elements) >= 1
    assert sum(attributes.get("class") == "download" for _, attributes in found.elements) == 2


def test_a_layer_is_a_row_with_its_share() -> None:
    component = Component(name="qkv", kind="gemm", share=0.75, seconds=3e-6, times=1)
    bar = Bar(title="tiny h=64", gpu="NVIDIA H200", seconds=4e-6, gemm_share=0.75, components=(component,))
    found = Page(html([made_run(candidates(0, 2))], [bar]))
    assert "tiny h=64 NVIDIA H200 4.0 µs 75.0%" in found.shown
    assert found.data["layers"][0]["components"][0]["name"] == "qkv"


def test_the_same_runs_give_the_same_bytes(example: ReportRun, content: bytes) -> None:
    assert html([example]) == content


def test_the_summary_is_whole_sentences() -> None:
    text = " ".join(Page(html(open_runs([str(EXAMPLES / "h200-seed-and-mlp")], "results"), [])).text.split())
    assert (
        "In 7 of 16 rankings one Candidate is faster than all others; in 9 several tie at the top. "
        "6 ended before the order was resolved." in text
    )
