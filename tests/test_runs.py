"""Which run a user means."""

import os
import shutil
import tempfile
from argparse import Namespace
from pathlib import Path

import pytest

from orchestrator.completion import run_names
from orchestrator.config import compose
from orchestrator.errors import StoreError
from orchestrator.runs import find_run, list_runs
from orchestrator.store import RunStore
from tests.access import closed


def test_a_run_is_found_by_name_by_path_and_as_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The names sort the other way round than the times.
    RunStore.create(tmp_path / "results", "b-old", {"started_utc": "2026-11-29T10:00:00+00:00"})
    RunStore.create(tmp_path / "results", "a-new", {"started_utc": "2026-11-29T11:00:00+00:00"})
    (tmp_path / "results" / "examples").mkdir()
    monkeypatch.chdir(tmp_path)
    assert [path.name for path in list_runs("results")] == ["b-old", "a-new"]
    assert find_run("latest", "results").name == "a-new"
    assert find_run("b-old", "results").name == "b-old"
    assert find_run("results/b-old", "results").name == "b-old"
    assert find_run(str(tmp_path / "results" / "a-new"), "elsewhere").name == "a-new"


def test_a_tilde_is_the_users_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # what a shell leaves as it is: run.dir=~/sweeps, --dir=~/sweeps, conf=~/own.yaml
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "own.yaml").write_text("run: {dir: ~/sweeps, spool: ~/spool}")
    run = compose("~/own.yaml").run
    assert (run.dir, run.spool) == (str(tmp_path / "sweeps"), str(tmp_path / "spool"))
    assert compose("cpu", ["run.dir=s3://bucket/~x"]).run.dir == "s3://bucket/~x"
    RunStore.create(tmp_path / "sweeps", "one", {})
    assert find_run("one", "~/sweeps").path == tmp_path / "sweeps" / "one"
    assert find_run("~/sweeps/one", "results").path == tmp_path / "sweeps" / "one"
    assert set(run_names("o", parsed_args=Namespace(dir="~/sweeps"))) == {"latest", "one"}


def test_an_unknown_run_lists_the_runs_there_are(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no run 'latest': there are no runs under"):
        find_run("latest", tmp_path)
    RunStore.create(tmp_path, "cpu-1", {})
    with pytest.raises(StoreError, match=r"unknown run 'cpu-2'; did you mean cpu-1\? there are: cpu-1"):
        find_run("cpu-2", tmp_path)
    (tmp_path / "plain").mkdir()
    with pytest.raises(StoreError, match="is not a run"):
        find_run("plain", tmp_path)


def test_what_may_not_be_looked_into_hides_no_other_run() -> None:
    root = Path(tempfile.mkdtemp())  # which any user may enter
    root.chmod(0o755)
    RunStore.create(root, "mine", {})
    (root / "lost+found").mkdir()
    with closed(root / "lost+found", 0o700 if os.geteuid() == 0 else 0):
        assert [path.name for path in list_runs(root)] == ["mine"]
        assert find_run("latest", root).name == "mine"
        with pytest.raises(StoreError, match=r"run 'lost\+found' under .*: Permission denied"):
            find_run("lost+found", root)
    (root / "examples").mkdir()
    with closed(root / "examples", 0o700 if os.geteuid() == 0 else 0):
        assert find_run("mine", root).name == "mine"
        with pytest.raises(StoreError, match=r"unknown run 'other'; there are: mine"):
            find_run("other", root)
        assert set(run_names("m", parsed_args=Namespace(dir=str(root)))) == {"latest", "mine"}
    shutil.rmtree(root)
