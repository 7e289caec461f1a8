"""A ranking on the screen: inside 80 columns, and never markup from a device's or a user's text."""

import io
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from rich.console import Console

from orchestrator.fleet import DeviceSummary, Fleet
from orchestrator.ranking import rank
from orchestrator.store import RunStore, shard_table
from orchestrator.tables import family_tables
from orchestrator.terminal import footer, markdown, show
from tasks.settings import Timing
from tests.builders import as_bundle, measurement, mlp_family, parts_at, per_flop, ranking_of


def printed(ranking: pa.Table, *, top: int = 5, run: str = "results/run", terminal: bool = False) -> str:
    out = io.StringIO()
    show(Path(run), ranking, top, console=Console(file=out, width=80, force_terminal=terminal))
    return out.getvalue()


def test_the_widest_table_fits_80_columns() -> None:
    wide = {
        "parts": parts_at(1234.5, 1234.5),
        "d_ff": 1_048_576,
        "mlp_params": 123_456_789_012,
        "align_local": 131_072,
        "tie_group": 128,
        "relative_low": 1.0,
        "relative_high": 1.3,
    }
    lines = printed(ranking_of({**wide, "baseline": True}, wide)).splitlines()
    assert max(map(len, lines[:-2])) <= 80
    assert "…" not in "".join(lines)
    assert any("123.457B" in line and "131072" in line and "15.00%" in line for line in lines)


@pytest.mark.parametrize(("width", "columns"), [(80, 9), (60, 7), (40, 5), (20, 3)])
def test_a_narrow_terminal_loses_the_last_columns_and_never_a_cell(width: int, columns: int) -> None:
    out = io.StringIO()
    ranking = ranking_of({"parts": parts_at(650.0, 640.0)})
    show(Path("results/run"), ranking, 5, console=Console(file=out, width=width))
    header = next(line for line in out.getvalue().splitlines() if "d_ff" in line)
    assert len(header.replace("vs baseline", "vs_baseline").split()) == columns
    assert "…" not in header


def test_families_are_separate_tables_in_the_rankings_order() -> None:
    text = printed(ranking_of({}, {"family_id": "x", "h": 4096}, {"gpu": "AMD MI300X"}))
    titles = [line for line in text.splitlines() if line.startswith("mlp h=")]
    assert [title.split(",")[0].split()[1] for title in titles] == ["h=8192", "h=4096", "h=8192"]


def test_text_from_outside_is_never_markup() -> None:
    hostile = {"gpu": "[red]GPU[/red] <script>|", "rank": None, "status": "oom", "message": "[/] *a* | <b>"}
    assert "[red]GPU[/red] <script>|" in printed(ranking_of(hostile))
    text = markdown(Path("run"), ranking_of(hostile), 5)
    assert "<script>" not in text.replace("\\<", "")
    assert r"\[/\] \*a\* \| \<b\>" in text


def test_colour_is_for_terminals_and_not_under_no_color(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[" not in printed(ranking_of({}))
    assert "\x1b[1;36m" in printed(ranking_of({}), terminal=True)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "36m" not in printed(ranking_of({}), terminal=True)


def test_the_end_says_where_the_run_is_what_happened_and_what_to_do_next() -> None:
    run = "results/" + "long-name-" * 10
    table = ranking_of({}, {"rank": None, "status": "oom"})
    assert printed(table, run=run).splitlines()[-2:] == [
        f"{run}: Candidates: 1 ok, 1 oom",
        f"next: python -m orchestrator resume={run} retry=failed",
    ]
    assert footer(Path("a b"), table, ["x is corrupt"], "unfinished").plain.splitlines() == [
        "x is corrupt",
        "a b: Candidates: 1 ok, 1 oom",
        "next: python -m orchestrator resume='a b'",
    ]


@pytest.mark.parametrize("run", ["a", "results/a", "/srv/my runs/a"])
def test_markdown_names_a_files_path_within_the_run_and_leaves_names_that_end_alike(run: str) -> None:
    inside = "shards/gpu=h200/device=GPU-1a/x.parquet"  # whose device ends as the run is called
    problem = "{0}/{1} is corrupt and was left out: cannot open '{0}/{1}'"
    text = markdown(Path(run), ranking_of(), 5, problems=[problem.format(run, inside)])
    assert f"{inside} is corrupt and was left out: cannot open '{inside}'" in text


def test_an_empty_ranking_says_so() -> None:
    assert printed(ranking_of()).splitlines()[0] == "results/run: nothing was measured in this run"
    assert "nothing was measured in this run" in markdown(Path("run"), ranking_of(), 5)


def test_markdown_holds_the_same_cells_as_the_terminal() -> None:
    table = ranking_of({"baseline": True, "d_ff": 21845}, {"d_ff": 22016, "parts": parts_at(700.0, 560.0)})
    lines = markdown(Path("results/my_run"), table, 5).splitlines()
    assert lines[0] == r"# Ranking of my\_run"
    found = [tuple(line.strip("| ").split(" | ")) for line in lines if line.startswith("| ")]
    (family,) = family_tables(table, 5)
    assert found == [family.columns, ("---:",) * 9, *family.rows]


def test_a_measured_run_prints_its_ranking(tmp_path: Path) -> None:
    store, family = RunStore.create(tmp_path, "run", {}), mlp_family([128, 256, 512], baseline=256)
    measured = measurement(family, per_flop({512: 2.0, 256: 1.5}))
    bundle = as_bundle(family)
    store.write_shard(shard_table(bundle, measured, Timing(), attempt=0, code_version="1", plan_hash="a"))
    text = printed(rank(store).table)
    cells = [line.split() for line in text.splitlines() if line[:7].strip().isdigit()]
    # Seconds per TFLOP by d_ff: gate_up (n = 2·d_ff) 1.5, 2.0, 1.0 and down (k = d_ff) 1.0, 1.5, 2.0. gate_up has
    # twice the FLOPs: in all 4/3, 5.5/3 and 4/3, so that 128 and 512 tie, 37.5% faster than the baseline.
    assert cells == [
        ["256", "0.545", "0.00%", "baseline", "2", "49,152", "256", "0.500", "0.667"],
        ["128", "0.750", "best", "+37.5%", "1", "24,576", "128", "0.667", "1.00"],
        ["512", "0.750", "best", "+37.5%", "1", "98,304", "512", "1.00", "0.500"],
    ]


# Several devices

DEVICE = DeviceSummary(
    uuid="GPU-8f14e45f-ceea",
    host="ip-10-0-12-123",
    families=1234,
    canary=0.1,
    time=0.1,
    worst=0.3,
    worst_family="mlp-h64",
    sm_clock_mean_mhz=1980.0,
    temperature_max_c=61.0,
    power_mean_w=1000.0,
    throttled=True,
)
FLEET = Fleet(gpu="NVIDIA H200", devices=(DEVICE, replace(DEVICE, uuid="GPU-9f14e45f-ceea", host="b|<c>")))


def test_the_devices_come_after_the_families_and_fit_80_columns() -> None:
    out = io.StringIO()
    notes = ["suspect: GPU-1 took 20.0% longer"]
    show(Path("r"), ranking_of({}), 5, console=Console(file=out, width=80), notes=notes, fleets=[FLEET])
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    first, header, row = (
        next(i for i, line in enumerate(lines) if line.startswith(start))
        for start in ("NVIDIA H200: 2 devices", "  device ", "8f14e45f ")
    )
    assert first < header < row
    assert any(line.startswith("mlp h=8192") for line in lines[:first])
    assert lines[header].split() == ["device", "host", "state", "families", "canary", "time", "worst", "MHz", "°C", "W"]
    assert lines[row].split()[2:] == ["throttled", "1234", "+10.0%", "+10.0%", "+30.0%", "1980", "61", "1000"]
    assert lines[-3:-1] == [*notes, "r: Candidates: 1 ok"]


def test_markdown_has_the_devices_too_all_of_them_and_the_notes_at_its_head() -> None:
    many = Fleet(gpu="NVIDIA H200", devices=tuple(replace(DEVICE, uuid=f"GPU-{i:08d}") for i in range(64)))
    text = markdown(Path("run"), ranking_of({}), 5, notes=["suspect: GPU-1"], fleets=[FLEET, many])
    assert text.index("suspect: GPU-1") < text.index("## mlp") < text.index("## NVIDIA H200: 2 devices")
    assert all(f"| {i:08d} |" in text for i in range(64))
    assert r"| b\|\<c> |" in text


def test_a_run_on_one_device_says_nothing_of_a_fleet() -> None:
    assert "devices" not in printed(ranking_of({}))
    assert "devices" not in markdown(Path("run"), ranking_of({}), 5)
