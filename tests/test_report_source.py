"""A run as a report reads it."""

from pathlib import Path

import pytest

from orchestrator.errors import InvalidValueError
from orchestrator.report.source import open_runs
from tests.builders import mlp_family, up_family
from tests.reports import EXAMPLES, written_run


def test_the_rows_are_those_that_the_verb_rank_writes() -> None:
    (run,) = open_runs(["examples/h200-gpt-3-2.7b"], str(EXAMPLES.parent))
    assert run.rows == run.ranking.table.to_pylist()
    assert len(run.rows) == 16


def test_each_shard_is_there_once_with_its_device(tmp_path: Path) -> None:
    written_run(tmp_path, [up_family([64, 96, 128]), mlp_family([64, 96])])
    (run,) = open_runs(["it"], str(tmp_path))
    assert [shard["bundle_id"][:4] for shard in run.shards] == ["mlp-", "mlp_"]
    assert run.families_of == {"GPU-0": 2}
    assert run.gpus == ("NVIDIA H200",)


def test_a_run_of_schema_version_1_is_read() -> None:
    (run,) = open_runs([str(EXAMPLES / "h200-seed-and-mlp")], "results")
    assert run.manifest["schema_version"] == 1
    assert {row["axis"] for row in run.rows} == {"d_ff"}


def test_one_run_twice_is_refused_and_equal_names_become_paths(tmp_path: Path) -> None:
    stores = [written_run(tmp_path / place, [up_family([64, 96])]) for place in ("a", "b")]
    with pytest.raises(InvalidValueError, match="are the same run"):
        open_runs([str(stores[0].path), str(stores[0].path)], str(tmp_path))
    runs = open_runs([str(store.path) for store in stores], str(tmp_path))
    assert [run.name for run in runs] == [str(store.path) for store in stores]
