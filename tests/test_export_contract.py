"""What holds for every exporter: whole or not at all, never over what is there, the same bytes, all accounted for."""

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.export import TARGETS, exporter
from orchestrator.export.contract import Export
from orchestrator.export.request import OPTIONS
from orchestrator.export.selection import Selection
from orchestrator.ranking import rank
from orchestrator.store import RunStore, shard_table
from tasks.settings import Timing
from tests.builders import as_bundle, measurement, mlp_family, per_flop
from tests.commands import called as call
from tests.exports import CASES, EXAMPLE, Case, command, exported, options

Made = tuple[Path, Selection, Export]
"""An export, and the folder of what it copies."""


def name_of(case: Case) -> str:
    return f"{case.target}-{case.run.name}-{case.base}"


whole = pytest.mark.parametrize("case", CASES, ids=name_of)
every_case = pytest.mark.parametrize("case", CASES, ids=name_of, indirect=True)
every_target = pytest.mark.parametrize("target", list(TARGETS))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def anew(case: Case, bases: Path) -> tuple[Selection, Export]:
    """One export from the Shards alone."""
    return exported(case.target, case.run, case.words, options(case, bases), rank(RunStore.open(case.run)))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Path]:
    """A run with the Families of one h and two tp, for what holds however many there are."""

    @functools.cache
    def copy(run: Path) -> Path:
        made = tmp_path_factory.mktemp("few") / run.name
        for tp in (1, 8):
            for path in run.glob(f"shards/*/*/*-h4096-tp{tp}-*.parquet"):
                target = made / path.relative_to(run)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(path, target)
        shutil.copy(run / "manifest.json", made)
        return made

    return copy


@pytest.fixture
def case(request: pytest.FixtureRequest, few: Callable[[Path], Path]) -> Case:
    """A case, with a few of its Families."""
    asked: Case = request.param
    return replace(asked, run=few(asked.run))


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Made]:
    """One export of a case's few Families, made when it is first asked for."""
    made: dict[str, Made] = {}

    def make(case: Case) -> Made:
        if name_of(case) not in made:
            bases = tmp_path_factory.mktemp("bases")
            made[name_of(case)] = bases, *anew(case, bases)
        return made[name_of(case)]

    return make


def test_every_target_has_a_case() -> None:
    assert {case.target for case in CASES} == set(TARGETS)
    for target in TARGETS:
        assert set(exporter(target).options) <= set(OPTIONS)


@every_case
def test_the_same_shards_give_the_same_bytes_and_stay_as_they_are(case: Case, exports: Callable[[Case], Made]) -> None:
    bases, _, first = exports(case)
    before = contents(bases), contents(case.run)
    _, again = anew(case, bases)
    assert dict(first.files) == dict(again.files)
    assert first == again
    assert (contents(bases), contents(case.run)) == before  # neither the run nor what it copies is touched


@whole
def test_every_gemm_is_written_or_counted(case: Case, tmp_path: Path) -> None:
    selection, found = exported(case.target, case.run, case.words, options(case, tmp_path))
    assert found.gemms > 0
    assert found.gemms + sum(found.left_out.values()) == len(selection.entries)


@every_case
def test_it_writes_measured_runs_says_where_and_overwrites_nothing_without_force(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    words = command(case, tmp_path / "bases", out)
    code, told, err = call(capsys, *words)
    assert (code, err) == (0, "")
    made = contents(out)
    assert made
    assert f" Gemms of NVIDIA H200 to {out}: " in told.splitlines()[0]
    assert not [name for name in os.listdir(out) if name.startswith(".")]
    last = sorted(made)[-1]
    for name in made:
        if name != last:
            (out / name).unlink()
    (out / last).write_text("mine")
    (out / "other.txt").write_text("other")
    code, _, err = call(capsys, *words)
    assert code == 2
    assert err == f"not overwritten without --force: {out / last}\n"
    assert contents(out) == {last: b"mine", "other.txt": b"other"}
    assert call(capsys, *words, "--force")[0] == 0
    assert contents(out) == {**made, "other.txt": b"other"}


@every_case
def test_it_is_written_whole_or_not_at_all(
    case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str], exports: Callable[[Case], Made]
) -> None:
    bases, out = tmp_path / "bases", tmp_path / "out"
    last = list(exports(case)[-1].files)[-1]
    (out / last).mkdir(parents=True)
    code, _, err = call(capsys, *command(case, bases, out), "--force")
    assert (code, err) == (2, f"{out / last} is a folder: choose another --out\n")
    assert contents(out) == {}
    (tmp_path / "file").write_text("mine")
    code, _, err = call(capsys, *command(case, bases, tmp_path / "file" / "out"))
    assert code == 2
    assert f"cannot write the export to {tmp_path / 'file' / 'out'}: Not a directory" in err
    assert (tmp_path / "file").read_text() == "mine"


@every_target
def test_an_empty_selection_is_exit_code_2(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "export", str(EXAMPLE), "--to", target, "--out", str(tmp_path / "out"), "h=5120")
    assert (code, out) == (2, "")
    assert err == "nothing was measured with h=5120; there is: 4096, 8192\n"
    assert not (tmp_path / "out").exists()


@every_target
def test_a_run_without_a_sound_gemm_is_exit_code_2(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore.create(tmp_path, "failed", {})
    family = mlp_family([128])
    failed = {gemm.gemm_id: ("oom", "needs 3 GiB") for gemm in family.gemms}
    measured = measurement(family, per_flop({}), status=failed)
    store.write_shard(shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p"))
    code, out, err = call(capsys, "export", str(store.path), "--to", target, "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert err == f"nothing to export of NVIDIA H200 in {store.path}: 1 Points that were not measured: oom\n"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("kept", "message"), [(0, "nothing was measured in "), (1, "nothing was measured with tp=2; there is: 1")]
)
def test_a_corrupt_shard_may_be_why_nothing_is_exported(
    kept: int, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = RunStore.create(tmp_path, "it", {})
    for family in (mlp_family([128]), mlp_family([128], tp=2)):
        measured = measurement(family, per_flop({}))
        table = shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p")
        store.write_shard(table)
    broken = sorted(store.shard_paths())[kept:]
    for path in broken:
        path.write_bytes(b"")
    code, out, err = call(capsys, "export", str(store.path), "--to", "csv", "--out", str(tmp_path / "out"), "tp=2")
    first, *more = err.splitlines()
    assert (code, out, first.startswith(message)) == (2, "", True)
    assert [line.split(" is corrupt")[0] for line in more] == [str(path) for path in broken]
    assert not (tmp_path / "out").exists()


@every_target
def test_a_run_of_a_newer_version_is_refused(target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(EXAMPLE.glob("shards/*/*/*.parquet"))
    newer = tmp_path / "run" / path.relative_to(EXAMPLE)
    newer.parent.mkdir(parents=True)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"schema_version": "99"}), newer)
    code, out, err = call(capsys, "export", str(tmp_path / "run"), "--to", target, "--out", str(tmp_path / "out"))
    assert (code, out) == (2, "")
    assert "has schema_version 99, newer than" in err
    assert not (tmp_path / "out").exists()


@every_target
def test_a_run_that_is_not_there_is_exit_code_2(
    target: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = call(capsys, "export", "nowhere", "--to", target, "--dir", str(tmp_path))
    assert code == 2
    assert "no run 'nowhere'" in err
