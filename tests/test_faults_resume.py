"""Who may go on with a run, and what is measured then: the whole job as processes, on the CPU."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from orchestrator.store import RunStore
from tests import promise
from tests.jobs import FAMILIES, ROOT, SMALL, begun, bundles, finish, job, journal, resume

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

NO_RAY = {"RAY_ADDRESS": "127.0.0.1:1"}
"""Where no Ray is: whoever connects fails, with exit code 2."""
Change = Callable[[dict[str, Any]], dict[str, Any] | None]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a sweep that names no device: it falls back to the CPU."""
    results = tmp_path_factory.mktemp("once") / "results"
    done = finish(results, *SMALL[1:])
    assert done.code == 0, done.err
    assert "no accelerator in the cluster: conf=cpu" in done.err
    assert json.loads(manifest(results))["conf"] == "cpu"
    promise.check(done.run, status="finished", ended=journal(results, "end"))
    return results


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> Path:
    """A copy of those results, to do with as one likes."""
    shutil.copytree(finished, tmp_path / "results")
    return tmp_path / "results"


def shards(results: Path) -> list[Path]:
    return sorted(results.glob("it/shards/*/*/*.parquet"))


def rewrite(path: Path, change: Change) -> None:
    """Change the rows of a Shard, or leave some out."""
    groups = [pq.ParquetFile(path).read_row_group(index) for index in range(2)]
    schema = groups[0].schema
    changed = [[row for row in map(change, group.to_pylist()) if row is not None] for group in groups]
    with pq.ParquetWriter(path, schema, write_page_checksum=True, write_statistics=["record"]) as writer:
        for rows in changed:
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def failed(gemm_id: str, status: str) -> Change:
    """One Gemm was not measured."""

    def change(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["gemm_id"] != gemm_id:
            return row
        return {**row, "status": status, "message": "made up"} if row["record"] == "facts" else None

    return change


def otherwise(**values: Any) -> Change:
    return lambda row: {**row, **values} if row["record"] == "facts" else row


def manifest(results: Path) -> bytes:
    return (results / "it" / "manifest.json").read_bytes()


def test_a_finished_run_resumes_to_nothing_to_do_without_ray(results: Path) -> None:
    before = {path: path.read_bytes() for path in (results / "it").rglob("*") if path.is_file()}
    done = resume(results, env=NO_RAY)
    assert done.code == 0, done.err
    assert done.err == f"{results / 'it'}: nothing to do: every family has been measured or has failed\n"
    assert "seed_bmm h=" in done.out
    assert {path: path.read_bytes() for path in (results / "it").rglob("*") if path.is_file()} == before


def test_a_run_by_a_fallback_goes_on_by_it(results: Path) -> None:
    lost = shards(results)[:2]
    for path in lost:
        path.unlink()
    done = resume(results)
    assert done.code == 0, done.err
    assert sorted(begun(results)) == sorted(bundles(lost))
    promise.check(done.run.with_name("it"), status="finished")


def test_one_run_has_one_driver(results: Path) -> None:
    shutil.rmtree(results)
    with job(results, *SMALL, pace_s=0.5) as driver:
        driver.under_way()
        second = resume(results, env=NO_RAY)
        assert second.code == 2
        assert f"another driver (process {driver.process.pid} on {os.uname().nodename})" in second.err
        same_name = finish(results, *SMALL, env=NO_RAY)
        assert same_name.code == 2
        go_on = f"exists already: choose another run.name, or go on with it by resume={results / 'it'}"
        assert go_on in same_name.err
        assert driver.end() == 0, driver.err
    assert len(begun(results)) == FAMILIES
    promise.check(driver.run, status="finished", ended=journal(results, "end"))


def test_other_versions_are_refused_unless_told_otherwise(results: Path) -> None:
    gone, *kept = shards(results)
    gone.unlink()
    for path in kept:
        rewrite(path, otherwise(torch="1.2.3", driver="550.1"))
    before = manifest(results)
    refused = resume(results)
    assert refused.code == 2
    assert "driver: 550.1 in the run, None now; torch: 1.2.3 in the run, " in refused.err
    assert "resume_anyway=true" in refused.err
    assert manifest(results) == before
    assert shards(results) == kept
    done = resume(results, "resume_anyway=true")
    assert done.code == 0, done.err
    promise.check(results / "it", status="finished")
    (entry,) = json.loads(manifest(results))["resumed"]
    assert entry["anyway"] is True


def test_another_plan_is_refused_unless_told_otherwise(results: Path) -> None:
    words = ("space.h={start: 32, stop: 96, step: 8}", "timing.max_rounds=4")
    before = manifest(results)
    refused = resume(results, *words, env=NO_RAY)
    assert refused.code == 2
    assert "  space.h.stop: 88 in the run, 96 now\n  timing.max_rounds: 3 in the run, 4 now\n" in refused.err
    assert manifest(results) == before
    done = resume(results, *words, "resume_anyway=true")
    assert done.code == 0, done.err
    assert begun(results) == ["seed_bmm-h96-tp1-b1-fp32"]
    (entry,) = json.loads(manifest(results))["resumed"]
    assert entry["differences"] == [
        "space.h.stop: 88 in the run, 96 now",
        "timing.max_rounds: 3 in the run, 4 now",
    ]


def test_only_failures_of_the_named_kinds_are_measured_again(results: Path) -> None:
    spoilt = dict(zip(("oom", "timeout", "worker_died", "skipped"), shards(results), strict=False))
    for status, path in spoilt.items():
        rewrite(path, failed(pq.read_table(path)["gemm_id"][0].as_py(), status))
    nothing = resume(results, env=NO_RAY)
    assert (nothing.code, "nothing to do" in nothing.err) == (0, True)
    some = resume(results, "retry=oom,timeout")
    assert some.code == 1  # one that was not to be tried again still is a failure
    again = bundles([spoilt["oom"], spoilt["timeout"]])
    assert sorted(begun(results)) == sorted(again)
    others = resume(results, "retry=failed")
    assert others.code == 0, others.err
    again |= bundles([spoilt["worker_died"]])
    assert set(begun(results)) == again
    promise.check(results / "it", status="finished", again=again)
    rows = RunStore.open(results / "it").read_ranking().to_pylist()
    assert sum(row["status"] == "skipped" for row in rows) == 1
    assert {row["status"] for row in rows} == {"ok", "skipped"}


def test_the_shards_alone_are_enough(results: Path) -> None:
    (results / "it" / "manifest.json").unlink()
    gone = shards(results)[0]
    gone.unlink()
    unsaid = resume(results, env=NO_RAY)
    assert unsaid.code == 2
    assert "has no manifest that says what was asked for: add conf=NAME" in unsaid.err
    other = resume(results, *SMALL, "timing.max_rounds=9", env=NO_RAY)
    assert other.code == 2
    assert "the plan: " in other.err
    done = resume(results, *SMALL)
    assert done.code == 0, done.err
    assert begun(results) == list(bundles([gone]))
    promise.check(results / "it", status="finished")
    assert (resume(results, env=NO_RAY).code, json.loads(manifest(results))["conf"]) == (0, "cpu")


def test_a_torn_manifest_says_how_to_go_on(results: Path) -> None:
    path = results / "it" / "manifest.json"
    path.write_bytes(path.read_bytes()[:100])
    refused = resume(results, run="it", env=NO_RAY)
    assert refused.code == 2
    assert "move it away to rank them, or to go on by resume=RUN conf=…" in refused.err
    path.rename(path.with_suffix(".torn"))
    done = resume(results, *SMALL, run="it", env=NO_RAY)
    assert (done.code, "nothing to do" in done.err) == (0, True)
    promise.check(results / "it", status="finished")


def test_latest_is_the_run_that_began_last(results: Path) -> None:
    shutil.copytree(results / "it", results / "earlier")
    facts = json.loads(manifest(results))
    (results / "earlier" / "manifest.json").write_text(
        json.dumps({**facts, "started_utc": "2020-01-01T00:00:00+00:00"})
    )
    assert f"{results / 'it'}: nothing to do" in resume(results, env=NO_RAY).err
    by_path = finish(results, f"resume={results / 'earlier'}", plain=True, env=NO_RAY)
    assert f"{results / 'earlier'}: nothing to do" in by_path.err


def test_a_resume_that_cannot_begin_leaves_the_run_as_it_was(results: Path) -> None:
    shards(results)[0].unlink()
    before = manifest(results)
    done = resume(results, env=NO_RAY)
    assert done.code == 2
    assert "no Ray cluster answers at 127.0.0.1:1" in done.err
    assert manifest(results) == before


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_stream_that_is_closed_from_the_start_changes_no_exit_code(results: Path, closed: str) -> None:
    command = f"exec {shlex.quote(sys.executable)} -m orchestrator rank it --dir {shlex.quote(str(results))} {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=ROOT, timeout=60)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert ("mlp" in done.stdout or "seed_bmm" in done.stdout) == (closed == "2>&-")


def test_the_command_that_goes_on_with_a_name_that_is_taken_works(results: Path) -> None:
    refused = finish(results, *SMALL)
    assert refused.code == 2
    assert refused.err.strip().endswith(f"go on with it by resume={results / 'it'}")
