"""The whole job on the CPU through Ray, as a user runs it."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.columns import RANKING_SCHEMA
from orchestrator.config import compose
from orchestrator.errors import StoreError
from orchestrator.laps import PARTS
from orchestrator.ranking import rank
from orchestrator.results import LocalResults
from orchestrator.space import expand_space
from orchestrator.store import RunStore, shard_table
from orchestrator.verbs.run import broken_off, create, fallback, run_name
from tasks.settings import Timing
from tests.builders import as_bundle, measurement, per_flop, read_ranking, up_family

pytestmark = pytest.mark.ray

SMALL = (
    "conf=cpu",
    "space.h=64",
    "space.tp=1,2",
    "space.seq=16",
    "space.d_ff={ratio: 8/3, distance: 8, step: 4}",
    "timing.max_seconds=0.2",
)


def command(results: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", *words, f"run.dir={results}", "run.name=it"]


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*words], capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """One sweep, run from a folder that is not the project's."""
    folder = tmp_path_factory.mktemp("elsewhere")
    return folder, run(*command(Path("out"), *SMALL), cwd=folder)


def test_fp8_and_int8_run_to_a_ranking(tmp_path: Path) -> None:
    words = (
        "conf=cpu",
        *SMALL[1:],
        "space.roles=mlp_gate_up",
        "space.tp=1",
        "space.seq=4",  # a CPU takes a long time for a product of fp8
        "space.dtype=fp8,fp8_rowwise,int8",
        "--json",
    )
    done = run(*command(Path("out"), *words), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ranking = rank(RunStore.open(tmp_path / "out" / "it")).table.to_pylist()
    found = Counter((row["dtype"], row["status"]) for row in ranking)
    # d_ff 160 to 176 in steps of 4, and the baseline 170
    assert found == {("fp8", "ok"): 6, ("fp8_rowwise", "ok"): 6, ("int8", "ok"): 6}
    kinds = {part["gemm_id"].split("-")[0] for row in ranking for part in row["parts"]}
    assert kinds == {"scaled_mm", "int_mm"}
    printed = json.loads(done.stdout)  # nothing else is on standard output
    assert (printed["run"], printed["state"], printed["rows"]) == ("it", "finished", ranking)
    assert done.stderr.splitlines()[-1] == "next: python -m orchestrator report out/it"


def test_it_ends_well_and_prints_every_family(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    _, done = finished
    assert done.returncode == 0, done.stderr
    titles = [line for line in done.stdout.splitlines() if line.startswith(("mlp ", "seed_bmm "))]
    assert [title.split(", ")[0] for title in titles] == [
        "mlp h=64 tp=1 batch=2 seq=16 fp32",
        "mlp h=64 tp=2 batch=2 seq=16 fp32",
        "seed_bmm h=64 tp=1 batch=2 fp32",
        "seed_bmm h=64 tp=2 batch=2 fp32",
    ]
    assert "next: python -m orchestrator report out/it" in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert "4/4 families" in done.stderr
    assert re.search(
        r"^\d+\.\d s: plan .*, Ray .*, device .*, prepare .*, measure .*, end .*, rank ", done.stderr, re.M
    )


def test_every_gemm_is_measured_once_and_every_sample_is_on_disk(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    store = RunStore.open(finished[0] / "out" / "it")
    assert len(store.shard_paths()) == 4
    samples = store.reader().samples().table.to_pylist()
    visits = Counter((row["bundle_id"], row["gemm_id"], row["round"]) for row in samples)
    assert set(visits.values()) == {1}
    facts = store.reader().facts().table.to_pylist()
    # d_ff 160 to 176 in steps of 4 around int(8/3*64) = 170, and 170 itself: six, all even
    assert Counter(row["role"] for row in facts) == {"seed_bmm": 12, "mlp": 24}
    assert {row["status"] for row in facts} == {"ok"}
    assert all(row["seconds"] > 0 for row in samples)


def test_the_ranking_is_whole_and_the_manifest_says_how_it_came_to_be(
    finished: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    path = finished[0] / "out" / "it"
    store = RunStore.open(path)
    table = read_ranking(store)
    assert table.schema.names == RANKING_SCHEMA.names
    rows = table.to_pylist()
    assert len(rows) == 24
    assert sum(row["baseline"] for row in rows) == 4
    assert all(row["tie_group"] >= 1 and row["tflops"] > 0 for row in rows)
    assert rank(store).table.equals(table)
    manifest = json.loads((path / "manifest.json").read_text())
    assert (manifest["status"], manifest["conf"], manifest["bundles"]) == ("finished", "cpu", 4)
    assert manifest["overrides"][:2] == ["space.h=64", "space.tp=1,2"]
    assert manifest["config"]["space"]["h"] == 64
    assert "| d_ff |" in (path / "ranking.md").read_text()
    seconds = manifest["seconds"]
    assert set(seconds) == set(PARTS)
    assert all(seconds[name] > 0 for name in ("plan", "ray", "device", "prepare", "measure", "end", "rank"))


def test_rank_and_status_need_the_shards_alone(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, done = finished
    (folder / "out" / "it" / "ranking.parquet").unlink()
    again = run(sys.executable, "-m", "orchestrator", "rank", "it", "--dir", "out", cwd=folder)
    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout == done.stdout
    status = run(sys.executable, "-m", "orchestrator", "status", "latest", "--dir", "out", cwd=folder)
    assert status.returncode == 0
    assert "4 of 4 have a shard" in status.stdout


def test_a_run_is_never_overwritten(finished: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = finished
    before = sorted(path.name for path in (folder / "out" / "it").rglob("*"))
    again = run(*command(Path("out"), *SMALL), cwd=folder)
    assert again.returncode == 2
    assert "exists already: choose another run.name" in again.stderr
    assert sorted(path.name for path in (folder / "out" / "it").rglob("*")) == before


def test_a_model_that_is_not_there_leaves_no_run_behind(tmp_path: Path) -> None:
    start = time.monotonic()
    done = run(*command(tmp_path, "conf=a100"), cwd=tmp_path)
    assert done.returncode == 2
    assert "the cluster has no GPU that is 'a100'" in done.stderr
    assert not (tmp_path / "it").exists()
    assert time.monotonic() - start < 60  # it ends at once: well before any start deadline


def test_a_run_without_any_measurement_is_no_success(tmp_path: Path) -> None:
    words = ("conf=cpu", "space.roles=mlp_up", "space.tp=1", "space.seq=4096", "space.batch=64", "space.h=60000")
    done = run(*command(tmp_path, *words, "space.d_ff=200000"), cwd=tmp_path)
    assert done.returncode == 1
    assert "1 skipped" in done.stdout
    assert "GiB free" in " ".join(done.stdout.split()) or "needs" in done.stdout


def test_a_name_that_is_taken_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "it").mkdir()
    done = run(*command(tmp_path, *SMALL), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "exists already: choose another run.name" in done.stderr
    assert list((tmp_path / "it").iterdir()) == []


def test_two_runs_of_one_second_have_two_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.verbs.run.run_name", lambda config: "cpu-20300101-000000")
    config = compose("cpu", [f"run.dir={tmp_path}"])
    stores = [create(config, expand_space(config), LocalResults(config.run.dir)) for _ in range(3)]
    assert [store.name for store in stores] == [f"cpu-20300101-000000{end}" for end in ("", "-2", "-3")]


def test_a_name_that_another_run_took_meanwhile_is_refused(tmp_path: Path) -> None:
    config = compose("cpu", [f"run.dir={tmp_path}", "run.name=it"])
    create(config, expand_space(config), LocalResults(config.run.dir))
    with pytest.raises(StoreError, match="exists already: choose another"):
        create(config, expand_space(config), LocalResults(config.run.dir))


FILE = """
cluster: {gpu: auto, fallback: cpu, address: "localhost:6379", keep_s: 60, start_timeout_s: 9}
run: {name: mine, dir: there, spool: here}
rank: {top: 1}
space: {h: 128, roles: [seed_bmm]}
timing: {max_seconds: 0.2}
"""


def test_a_fallback_measures_something_else_and_puts_it_where_it_was_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my.yaml").write_text(FILE)
    words = ["space.tp=4", "run.max_failure_share=1"]
    asked, plain = compose(str(tmp_path / "my.yaml"), words), compose("cpu", words)
    found = fallback(asked)
    assert (found.space, found.timing, found.conf_name) == (plain.space, plain.timing, "cpu")
    assert (found.run, found.rank) == (asked.run, asked.rank)
    assert (found.run.dir, found.run.name, found.run.max_failure_share, found.rank.top) == ("there", "mine", 1, 1)
    assert found.cluster == replace(plain.cluster, address="localhost:6379", keep_s=60, start_timeout_s=9)
    assert capsys.readouterr().err == (
        "no accelerator in the cluster: conf=cpu; of the sweep 'my' only run, rank, cluster.address, "
        "cluster.start_timeout_s and cluster.keep_s hold\n"
    )


def test_the_fallback_of_the_default_has_nothing_to_explain(capsys: pytest.CaptureFixture[str]) -> None:
    fallback(compose("auto", ["space.h=64", "run.name=it"]))
    assert capsys.readouterr().err == "no accelerator in the cluster: conf=cpu\n"


def test_a_sweeps_file_may_have_any_name(tmp_path: Path) -> None:
    assert run_name(replace(compose("cpu"), conf_name="my conf é")).startswith("my-conf-2")
    for name, start in (("+x y", "x-y-2"), ("y" * 245, "y" * 80 + "-2"), ("é", "sweep-2"), ("_x", "_x-2")):
        config = replace(compose("cpu"), conf_name=name)
        store = create(config, expand_space(config), LocalResults(str(tmp_path)))
        assert store.name.startswith(start)


def test_a_run_that_breaks_off_shows_what_was_measured_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    family = up_family([128, 256])
    store = RunStore.create(tmp_path, "it", {"status": "running"})
    measured = measurement(family, per_flop({128: 1.0, 256: 2.0}), rounds=12)
    bundle = as_bundle(family)
    store.write_shard(shard_table(bundle, measured, Timing(), attempt=1, code_version="1", plan_hash="x"))
    with pytest.raises(StoreError, match="disk full"), broken_off(compose("cpu"), store):
        raise StoreError("disk full")
    assert "mlp_up h=64" in capsys.readouterr().out
    assert store.manifest()["status"] == "failed"


def test_a_resume_that_breaks_off_before_it_adds_anything_leaves_the_manifest_as_it_was(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "it", {"status": "interrupted", "pid": 1})
    before = store.manifest()

    def press() -> None:
        store.update_manifest(status="running", pid=2)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), broken_off(compose("cpu"), store, before):
        press()
    assert store.manifest() == before


def test_a_run_that_breaks_off_before_anything_was_measured_is_not_kept(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "it", {"status": "running"})
    with pytest.raises(StoreError), broken_off(compose("cpu"), store):
        raise StoreError("disk full")
    assert not store.path.exists()


def test_an_interruption_keeps_and_ranks_what_was_measured(tmp_path: Path) -> None:
    # ranked in batches, as a run of millions of rows is
    large = "from orchestrator import cli, large_ranking; large_ranking.LARGE = 0; cli.entry()"
    # from a pseudo-terminal, as a user presses Ctrl-C: the whole foreground group gets it
    space = ("conf=cpu", "space.h={start: 128, stop: 320, step: 8}", "space.tp=1", "space.roles=seed_bmm")
    # Families of a second and a half: one is in flight when the first is on disk.
    words = (*space, "timing.goal=full", "timing.max_seconds=1.5", "timing.max_rounds=100000", "timing.tie_pct=0")
    master, slave = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", large, *command(tmp_path, *words)[3:]],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=slave,
        start_new_session=True,
        text=True,
    ) as process:
        os.close(slave)
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("it/shards/*/*/[!.]*.parquet")) and time.monotonic() < deadline:
            time.sleep(0.1)
            os.set_blocking(master, False)
            try:
                os.read(master, 65536)
            except (BlockingIOError, OSError):
                continue
        os.killpg(process.pid, signal.SIGINT)
        out = process.communicate(timeout=60)[0]
    os.close(master)
    assert process.returncode == 130
    store = RunStore.open(tmp_path / "it")
    assert store.manifest()["status"] == "interrupted"
    assert 2 <= len(store.shard_paths()) < 25
    reasons = {row["stop_reason"] for row in store.reader().facts().table.to_pylist()}
    assert "interrupted" in reasons  # the Family in flight is kept too
    assert "bundles were not measured" in out
    assert rank(store).problems == ()
    assert read_ranking(store).equals(rank(store).table)
    assert {row["status"] for row in read_ranking(store).to_pylist()} == {"ok"}
    assert "next: python -m orchestrator resume=" in out
    assert not list(tmp_path.glob("it/shards/*/*/.*"))
