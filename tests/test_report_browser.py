"""Reports as a browser shows them: drawn, silent, without a network, legible, whole on paper."""

import importlib.util
import shutil
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.report.layers import Bar, Component
from orchestrator.report.page import html
from orchestrator.report.source import ReportRun, open_runs
from tests.builders import up_family
from tests.reports import EXAMPLES, HOSTILE, candidates, made_run, many, written_run

if TYPE_CHECKING:
    from tests.browsing import Browser

pytestmark = [pytest.mark.browser, pytest.mark.slow]
pytest.importorskip("selenium", reason="make test-browser")

BEGIN = datetime(2026, 11, 29, 10, tzinfo=UTC)
TELEMETRY = ("sm_clock_mean_mhz", "sm_clock_min_mhz", "temperature_max_c", "power_mean_w", "window_energy_j")
NAMES = ("committed", "generations", "failures", "many", "hostile", "empty")
FAILED: dict[str, Any] = {"rank": None, "tie_group": None, "parts": []}


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    from tests.browsing import browser

    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in programs:
        pytest.skip("chromium and chromedriver are not on the PATH: make test-browser")
    chromium, chromedriver = map(str, programs)
    with browser(tmp_path_factory.mktemp("profile"), chromium, chromedriver) as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    found = importlib.util.find_spec(
        "axe_playwright_python"
    )  # only its file: the package itself wants a browser's driver
    if found is None or not found.submodule_search_locations:
        pytest.skip("axe-core is not installed: make test-browser")
    return Path(found.submodule_search_locations[0], "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The pages by name."""
    root = tmp_path_factory.mktemp("pages")
    (committed,) = open_runs(["examples/h200-seed-and-mlp"], str(EXAMPLES.parent))
    family = up_family([64, 96, 128], baseline=64)
    failed = {family.gemms[1].gemm_id: ("oom", f"needs {HOSTILE}")}
    store = written_run(root / "runs", [family, up_family([64, 96], tp=2)], failed=failed)
    contents = {
        "committed": html([committed], [_bar("h=4096")]),
        "generations": html(_generations()),
        "failures": html(open_runs([str(store.path)], "")),
        "many": html([many(1000, 5)]),
        "hostile": html([_hostile()], [_bar(HOSTILE)]),
        "empty": html([made_run([], shards=[{**dict.fromkeys(TELEMETRY), "started_utc": BEGIN}])]),
    }
    for name, content in contents.items():
        (root / f"{name}.html").write_bytes(content)
    return {name: root / f"{name}.html" for name in contents}


def _generations() -> list[ReportRun]:
    old = [row for place in range(3) for row in candidates(place, 9, gpu="NVIDIA H100 80GB HBM3", speed=0.7)]
    new = [row for place in range(3) for row in candidates(place, 9)]
    times = [
        {"started_utc": BEGIN + timedelta(minutes=i), "uuid": f"GPU-{i % 2}", "bundle_id": f"b{i}"} for i in range(8)
    ]
    h100 = {"gpu": "NVIDIA H100 80GB HBM3", "memory_bytes": 80 << 30}
    return [
        made_run(old, name="h100", shards=[{**each, **h100} for each in times]),
        made_run(new, name="h200", shards=times),
    ]


def _bar(title: str) -> Bar:
    parts = [("mlp_gate_up", "gemm", 0.5), ("sdpa_flash", "attention", 0.2), ("rms_norm", "other", 0.3)]
    components = tuple(
        Component(name=name, kind=kind, share=share, seconds=1e-4, times=1) for name, kind, share in parts
    )
    return Bar(title=title, gpu="NVIDIA H200", seconds=2e-4, gemm_share=0.5, components=components)


def _hostile() -> ReportRun:
    rows = [{**row, "role": HOSTILE, "family_id": HOSTILE, "launch": HOSTILE} for row in candidates(0, 4)]
    rows += candidates(1, 3)
    rows.append({**rows[-1], **FAILED, "d_ff": 9, "status": HOSTILE, "message": (HOSTILE * 200)[:10_000]})
    shards: list[dict[str, Any]] = [{"uuid": HOSTILE, "host": HOSTILE, "started_utc": BEGIN}, {"started_utc": BEGIN}]
    return made_run(rows, name=HOSTILE, shards=shards, conf=HOSTILE)


def draw_all(window: "Browser", most: int = 40) -> None:
    """Bring each plot into view and wait until it is drawn, or says why it is not."""
    for plot in window.plots()[:most]:
        window.run("window.plot = arguments[0]; plot.scrollIntoView({block: 'center'})", plot)
        window.until("plot.querySelector('.main-svg') !== null || plot.classList.contains('note')")


@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("name", NAMES)
def test_a_report_is_drawn_in_silence_and_asks_for_nothing(
    window: "Browser", pages: dict[str, Path], name: str, width: int
) -> None:
    window.complaints(), window.requests()  # of the page before
    window.open(pages[name], width=width)
    draw_all(window)
    assert window.complaints() == []
    assert set(window.requests()) == {pages[name].as_uri()}
    assert window.run("return document.getElementById('trouble').hidden")
    assert window.run("return document.documentElement.scrollWidth") <= width
    assert window.run("return document.querySelectorAll('main script, main img').length") == 0
    texts = window.run("return [...document.querySelectorAll('.plot text')].map((text) => text.textContent)")
    assert not {"null", "undefined", "NaN"}.intersection(texts)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", NAMES)
def test_every_text_can_be_read(window: "Browser", pages: dict[str, Path], axe: str, name: str, dark: bool) -> None:
    window.open(pages[name], dark=dark)
    window.write("#filter", "tp=4 batch=7" if name == "many" else "")  # a thousand alike take axe minutes
    draw_all(window, 8)
    assert window.low_contrast(axe) == []


@pytest.mark.parametrize("name", NAMES)
def test_no_plot_is_cut_on_paper(window: "Browser", pages: dict[str, Path], name: str) -> None:
    window.open(pages[name], dark=True)
    window.write("#filter", "tp=4 batch=7" if name == "many" else "")
    assert window.on_paper() == []
    assert window.pdf().startswith(b"%PDF")


def test_pointing_at_a_candidate_tells_all_that_is_known(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["committed"])
    window.show('.family[data-id="mlp-h4096-tp8-b4-s2048-fp16"] .plot')
    told = window.point_at('.family[data-id="mlp-h4096-tp8-b4-s2048-fp16"] .scatterlayer .trace:last-of-type .point')
    for fact in ("d_ff: 10920", "TFLOP/s: 185.2", "gate_up", "baseline", "tie group 10", "alignment: 1 of 1365"):
        assert fact in told
    for name in (
        "SM clock",
        "temperature, power",
        "energy of a call",
        "Samples",
        "p5 to p95",
        "parameters: 134,184,960",
    ):
        assert name in told


def test_what_is_told_of_a_candidate_fits_a_phone(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["committed"], width=390, height=844)
    window.show(".family .plot")
    window.point_at(".family .scatterlayer .trace:last-of-type .point")
    box = window.run("return document.getElementById('tip').getBoundingClientRect().toJSON()")
    assert box["left"] >= 0
    assert box["top"] >= 0
    assert box["right"] <= 390
    assert box["bottom"] <= 844


def test_a_hostile_name_is_told_as_text(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["hostile"])
    window.show(".family .plot")
    told = window.point_at(".family .scatterlayer .point")
    assert "<script>alert(1)</script>" in told
    assert "%{x}" in told


def test_cells_of_the_map_tell_their_family(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["committed"])
    window.show("[data-draw=map-tflops]")
    told = window.point_at("[data-draw=map-tflops] .heatmaplayer image")
    assert "mlp · h=" in told
    assert "over the baseline" in told
    shown = "document.querySelector('[data-draw=map-tflops]').data[0].z"
    before = window.run(f"return {shown}")
    window.run("const it = [...document.querySelectorAll('#map-tools select')].at(-1); it.value = 'seed_bmm'; "
               "it.dispatchEvent(new Event('change'))")  # fmt: skip
    window.until(f"JSON.stringify({shown}) !== {str(before).replace(' ', '')!r}")
    assert [round(rate, 1) for rate in window.run(f"return {shown}")[3]] == [700.1, 628.4]


def test_the_filter_leaves_the_families_that_have_every_word(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["committed"])
    window.write("#filter", "MLP tp=8")
    shown = window.run(
        "return [...document.querySelectorAll('.family')].filter((it) => !it.hidden).map((it) => it.dataset.id)"
    )
    assert shown == ["mlp-h4096-tp8-b4-s2048-fp16", "mlp-h8192-tp8-b4-s2048-fp16"]
    assert window.run("return document.getElementById('shown').textContent") == "2 of 16"
    window.write("#filter", "nothing like it")
    assert not window.run("return document.getElementById('none').hidden")


def test_the_downloaded_ranking_is_the_runs(window: "Browser", pages: dict[str, Path], tmp_path: Path) -> None:
    import csv
    import json

    window.open(pages["committed"])
    window.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    window.run("document.querySelector('.download').click()")
    path = tmp_path / "h200-seed-and-mlp.csv"
    until = time.monotonic() + 30
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.1)
    with path.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    (run,) = open_runs(["examples/h200-seed-and-mlp"], str(EXAMPLES.parent))
    assert len(found) == len(run.rows) == 720
    assert list(found[0]) == run.ranking.table.column_names
    for cells, row in zip(found, run.rows, strict=True):
        for name, value in row.items():
            if value is None:
                assert cells[name] == ""
            elif isinstance(value, bool):
                assert cells[name] == str(value).lower()
            elif isinstance(value, float):
                assert float(cells[name]) == pytest.approx(value, rel=1e-8)
            elif isinstance(value, list):
                assert len(json.loads(cells[name])) == len(value)
            else:
                assert cells[name] == str(value)


def test_generations_share_one_plot(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["generations"])
    window.show(".family .plot")
    names = window.run(
        "return [...document.querySelectorAll('.family .legendtext')].slice(0, 2).map((it) => it.textContent)"
    )
    assert names == ["h100, NVIDIA H100 80GB HBM3", "h200, NVIDIA H200"]


def test_only_what_is_near_the_best_fills_the_plot_where_it_is_asked_for(
    window: "Browser", pages: dict[str, Path]
) -> None:
    window.open(pages["committed"])
    window.show(".family .plot")
    low = "document.querySelector('.family .plot')._fullLayout.yaxis.range[0]"
    assert window.run(f"return {low}") < 250
    window.run("document.getElementById('near').click()")
    window.until(f"{low} > 600")
    assert "tie group" in window.point_at(".family .scatterlayer .trace:nth-last-of-type(2) .point")


def test_of_a_thousand_families_only_what_is_in_view_is_drawn(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["many"])
    window.run("document.getElementById('open').click()")
    window.show(".family .plot")
    assert window.run("return document.querySelectorAll('.family .main-svg').length") < 60
    window.run("[...document.querySelectorAll('.family')].at(-1).scrollIntoView()")
    window.until("[...document.querySelectorAll('.family')].at(-1).querySelector('.main-svg') !== null")
    window.write("#filter", "h=25600 tp=8 batch=10")
    assert window.run("return document.getElementById('shown').textContent") == "1 of 1000"


def test_candidates_are_listed_when_they_are_asked_for(window: "Browser", pages: dict[str, Path]) -> None:
    window.open(pages["failures"])
    window.run("document.querySelector('.family .rows').open = true")
    window.until("document.querySelector('.family .rows table') !== null")
    text = window.run("return document.querySelector('.family .rows table').textContent")
    assert "oom" in text
    assert "<script>alert(1)</script>" in text
