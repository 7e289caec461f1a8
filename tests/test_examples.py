"""The committed examples: each ranks again from its Shards, and its README says how it was measured."""

import re
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from orchestrator.tables import family_tables

ROOT = Path(__file__).parents[1] / "results" / "examples"
RUNS = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


@pytest.mark.parametrize("name", RUNS)
def test_an_example_ranks_as_it_did_when_it_was_measured(name: str) -> None:
    store = RunStore.open(ROOT / name)
    ranking = rank(store)
    assert ranking.problems == ()
    assert set(ranking.table["status"].to_pylist()) == {"ok"}
    assert set(ranking.table["gpu"].to_pylist()) == {"NVIDIA H200"}
    written = (ROOT / name / "ranking.md").read_text()
    for table in family_tables(ranking.table, top=5):
        assert table.rows[0][0] in written
    manifest = store.manifest()
    assert manifest["status"] == "finished"
    assert manifest["plan_hash"]


@pytest.mark.parametrize("name", RUNS)
def test_the_readme_has_the_command_of_every_example(name: str) -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"run.name={name}" in text


def test_the_examples_are_small() -> None:
    assert sum(path.stat().st_size for path in ROOT.rglob("*") if path.is_file()) < 2_500_000


@pytest.mark.parametrize(
    ("words", "gemms", "milliseconds"),
    [(["mode=prefill"], 5, "2.450"), (["mode=training"], 15, "7.289"), (["mode=decode", "b=64"], 5, "0.067")],
)
def test_a_models_gemms_are_all_among_what_was_measured(
    words: list[str], gemms: int, milliseconds: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = ROOT / "h200-llama-3-70b-tp8"
    assert cli.main(["capacity", "model=llama-3-70b", "tp=8", f"results={run}", *words]) == 0
    text = capsys.readouterr().out
    assert f"all {gemms} GEMMs were measured at exactly these shapes" in text
    assert re.search(rf"GEMMs of a layer, ms\s+{milliseconds}\n", text)
