"""The whole job with ``run.dir`` a URI: measured into the spool, sent to the store, read from there."""

import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.address import Address
from orchestrator.cli import verb_parser
from orchestrator.config import compose
from orchestrator.errors import StoreError
from orchestrator.ranking import rank
from orchestrator.remote import Remote
from orchestrator.results import results
from orchestrator.resumption import Wish, choose
from orchestrator.runs import find_run
from orchestrator.schema import Run
from orchestrator.spool import local_sizes
from orchestrator.store import RunStore, shard_table
from orchestrator.terminal import markdown
from orchestrator.transfer import fetch
from orchestrator.verbs import VERBS as ALL_VERBS
from tasks.settings import Timing
from tests.access import closed
from tests.bucket import KEYS, Bucket, environment, free_port
from tests.builders import as_bundle, measurement, per_flop, up_family

SMALL = (
    "conf=cpu",
    "space.h=64",
    "space.tp=1,2",
    "space.seq=16",
    "space.d_ff={ratio: 8/3, distance: 8, step: 4}",
    "timing.max_seconds=0.2",
)
MANY = (
    "conf=cpu",
    "space.h={start: 64, stop: 176, step: 8}",
    "space.tp=1",
    "space.roles=seed_bmm",
    "space.d_ff={ratio: 8/3, distance: 8, step: 4}",
    "timing.max_seconds=0.2",
)


@pytest.fixture(autouse=True)
def _shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (KEYS | {"XDG_STATE_HOME": str(tmp_path / "state")}).items():
        monkeypatch.setenv(name, value)


def words(*more: str) -> list[str]:
    return [sys.executable, "-m", "orchestrator", *more]


def call(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a command in a shell that keeps its state in ``folder``."""
    return subprocess.run(
        words(*more), capture_output=True, text=True, check=False, timeout=120, env=environment(str(folder / "state"))
    )


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(words(*more), stdout=pipe, stderr=pipe, text=True, env=environment(str(folder / "state")))


def spool_of(folder: Path, name: str = "it") -> Path:
    (path,) = (folder / "state" / "gemm-orchestrator").glob(f"*/{name}")
    return path


def shards(folder: Path) -> list[Path]:
    return list(folder.glob("state/gemm-orchestrator/*/it/shards/*/*/[!.]*.parquet"))


def wait_for(condition: Callable[[], bool], process: "subprocess.Popen[str]") -> None:
    deadline = time.monotonic() + 90
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def local(run: Path) -> dict[str, bytes]:
    """The files that belong in the store."""
    hidden = ("remote.json", ".lock")
    files = (path for path in run.rglob("*") if path.is_file() and path.name not in hidden)
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in files}


def once_each(run: Path, bundles: int) -> bool:
    store = RunStore.open(run)
    visits = Counter((r["bundle_id"], r["gemm_id"], r["round"]) for r in store.reader().samples().table.to_pylist())
    return set(visits.values()) == {1} and len(store.shard_paths()) == bundles


@pytest.fixture(scope="module")
def landed(tmp_path_factory: pytest.TempPathFactory, bucket: Bucket) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """Where the state of a whole run is that was measured for the bucket, and what it said."""
    folder = tmp_path_factory.mktemp("landed")
    done = call(folder, *SMALL, f"run.dir={bucket.uri('team/runs')}", "run.name=it")
    assert done.returncode == 0, done.stderr
    return folder, done


@pytest.mark.ray
def test_a_whole_run_lands_in_the_bucket_and_is_ranked_from_there(
    tmp_path: Path, bucket: Bucket, landed: tuple[Path, subprocess.CompletedProcess[str]]
) -> None:
    base, (home, done) = bucket.uri("team/runs"), landed
    assert f"the run is in {bucket.uri('team/runs/it')}" in done.stderr
    there = bucket.contents("team/runs/it")
    assert there == local(spool_of(home))
    assert len([name for name in there if name.startswith("shards/")]) == 4
    assert json.loads(there["manifest.json"])["status"] == "finished"
    assert once_each(spool_of(home), 4)

    other = tmp_path / "another machine"
    status = call(other, "status", bucket.uri("team/runs/it"))
    assert (status.returncode, status.stderr) == (0, "")
    assert "4 of 4 have a shard" in status.stdout
    ranked = call(other, "rank", "latest", "--dir", base)
    assert (ranked.returncode, ranked.stderr) == (0, "")
    tables = [line for line in done.stdout.splitlines() if "state/gemm-orchestrator" not in line]
    assert [line for line in ranked.stdout.splitlines() if "state/gemm-orchestrator" not in line] == tables
    assert bucket.contents("team/runs/it") == there

    taken = call(tmp_path / "a third", *SMALL, f"run.dir={base}", "run.name=it")
    assert (taken.returncode, taken.stdout) == (2, "")
    assert f"{bucket.uri('team/runs/it')} exists already: choose another run.name" in taken.stderr


@pytest.mark.ray
def test_a_store_that_is_down_during_the_sweep_has_everything_at_its_end(tmp_path: Path, bucket: Bucket) -> None:
    with start(tmp_path, *MANY, f"run.dir={bucket.uri('outage')}", "run.name=it") as sweep:
        wait_for(lambda: len(shards(tmp_path)) >= 1, sweep)
        bucket.down()
        down_at = len(shards(tmp_path))
        try:
            wait_for(lambda: len(shards(tmp_path)) >= down_at + 5, sweep)  # it goes on
        finally:
            bucket.up()
        _, err = sweep.communicate(timeout=90)
    assert sweep.returncode == 0, err
    assert err.count("the sweep goes on") == 1
    assert bucket.contents("outage/it") == local(spool_of(tmp_path))
    assert once_each(spool_of(tmp_path), 15)


@pytest.mark.ray
def test_a_store_that_is_gone_for_good_costs_nothing_and_the_printed_command_finishes(
    tmp_path: Path, bucket: Bucket
) -> None:
    place = (f"run.dir={bucket.uri('gone')}", "run.name=it", "run.upload_timeout_s=1")
    with start(tmp_path, *SMALL, *place) as sweep:
        wait_for(lambda: len(shards(tmp_path)) >= 1, sweep)
        bucket.down()
        out, err = sweep.communicate(timeout=90)
    run = spool_of(tmp_path)
    assert sweep.returncode == 1, err
    assert "mlp h=64" in out
    assert once_each(run, 4)
    assert json.loads((run / "manifest.json").read_text())["status"] == "finished"
    assert f"missing in {bucket.uri('gone/it')}; all of it is kept in {run}" in err
    (command,) = (line.partition(": ")[2] for line in err.splitlines() if line.startswith("finish the upload by: "))
    program, *arguments = shlex.split(command)
    assert (program, arguments[:2]) == ("python", ["-m", "orchestrator"])
    still = call(tmp_path, *arguments[2:])
    assert (still.returncode, still.stdout) == (1, "")
    assert "it does not answer" in still.stderr
    bucket.up()
    done = call(tmp_path, *arguments[2:])
    assert (done.returncode, done.stderr) == (0, "")
    assert bucket.contents("gone/it") == local(run)
    again = call(tmp_path, *arguments[2:])
    assert (again.returncode, again.stdout) == (0, f"{bucket.uri('gone/it')}: 0 files sent, 7 were there\n")


@pytest.mark.ray
def test_a_run_in_which_nothing_could_be_measured_is_taken_back(tmp_path: Path, bucket: Bucket) -> None:
    # the model is missed before the run is made; here the run is made, and discarded
    with results(Run(dir=bucket.uri("nothing"))) as place:
        store = place.create("it", {"status": "running"})
        deadline = time.monotonic() + 10
        while not bucket.contents("nothing/it") and time.monotonic() < deadline:
            time.sleep(0.02)
        assert set(bucket.contents("nothing/it")) == {"manifest.json"}
        store.discard()
        assert place.finish() == []
    assert bucket.contents("nothing/it") == {}
    assert Remote(Address.parse(bucket.uri("nothing"))).directories() == []
    assert not store.path.exists()


@pytest.mark.parametrize("goes_on", [False, True])
def test_the_store_keeps_what_it_has_of_a_run_that_was_moved_while_its_sweep_writes(
    tmp_path: Path, goes_on: bool
) -> None:
    """It is no run that was discarded: nothing of it is taken back, and what it lacks is sent from the new place."""
    uri = f"file://{tmp_path}/there"
    if goes_on:
        make(uri)
    with results(Run(dir=uri)) as place:
        store = place.open(f"{uri}/it") if goes_on else place.create("it", {"status": "running"})
        measured(store, attempt=2)
        deadline = time.monotonic() + 10
        while not list((tmp_path / "there").rglob("*.2.parquet")) and time.monotonic() < deadline:
            time.sleep(0.02)
        sent = local(tmp_path / "there" / "it")
        moved = store.path.rename(tmp_path / "moved")
        with pytest.raises(StoreError, match="no longer there"):
            measured(store, attempt=3)
        assert [f"{uri}/it keeps what was sent" in problem for problem in place.finish()] == [True]
    assert local(tmp_path / "there" / "it") == sent
    assert len([name for name in sent if name.startswith("shards/")]) == 1 + goes_on
    measured(RunStore.open(moved), attempt=4)
    assert code("upload", str(moved)) == 0
    assert local(tmp_path / "there" / "it") == local(moved)


VERBS = ("rank", "status", "upload")


def measured(store: RunStore, *, attempt: int = 1) -> Path:
    family = up_family([128, 256])
    values = measurement(family, per_flop({128: 1.0, 256: 2.0}), rounds=12)
    return store.write_shard(
        shard_table(as_bundle(family), values, Timing(), attempt=attempt, code_version="1", plan_hash="x")
    )


def make(uri: str, name: str = "it", spool: str | None = None, **manifest: str) -> Path:
    """A small run in a store; returns where it was spooled."""
    with results(Run(dir=uri, spool=spool)) as place:
        store = place.create(name, {"status": "finished", **manifest})
        measured(store)
        ranking = rank(store)
        store.write_ranking(ranking.table, markdown(store.path, ranking.table, 5))
        assert place.finish() == []
    return store.path


def code(*more: str) -> int:
    try:
        return cli.main(more)
    except SystemExit as exit:
        return int(exit.code or 0)


@pytest.mark.parametrize("kind", ["file", "memory"])
def test_other_stores_take_a_run_too(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = f"file://{tmp_path}/share/runs" if kind == "file" else "memory://spooled/runs"
    run = make(uri)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    found = find_run(f"{uri}/it", "results")
    assert found.path != run
    assert local(found.path) == local(run)
    assert code("rank", "it", "--dir", uri) == 0
    assert code("status", "latest", "--dir", uri) == 0
    if kind == "file":
        assert local(tmp_path / "share" / "runs" / "it") == local(run)


def test_the_latest_of_a_store_is_the_one_that_began_last(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    uri = bucket.uri("several")
    make(uri, "b", started_utc="2026-11-29T10:00:00+00:00")
    make(uri, "a", started_utc="2026-11-29T11:00:00+00:00")
    bucket.put("several/notes/readme.txt", b"not a run")
    assert find_run("latest", uri).name == "a"
    monkeypatch.setenv("XDG_STATE_HOME", str(Path.cwd() / "no such"))
    with pytest.raises(StoreError, match=r"c\?.* is not a run: .*; unknown run 'c'; there are: a, b, notes"):
        find_run("c", uri)
    with pytest.raises(StoreError, match=r"several\?.* is not a run|no run 'x/y'"):
        find_run("x/y", uri)
    with pytest.raises(StoreError, match="no run 'latest': there are no runs under"):
        find_run("latest", bucket.uri("empty"))


def test_what_the_spool_lacks_is_fetched_and_what_it_has_is_not(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = bucket.uri("fetched")
    run = make(uri)
    (shard,) = RunStore(run).shard_paths()
    whole = shard.read_bytes()
    shard.write_bytes(whole[:100])
    (run / "ranking.md").unlink()
    assert find_run("it", uri).path == run
    assert shard.read_bytes() == whole
    assert (run / "ranking.md").exists()
    assert local(run) == bucket.contents("fetched/it")
    read: list[str] = []
    monkeypatch.setattr("orchestrator.transfer._fetch_once_written", lambda remote, run, name: read.append(name))
    find_run("it", uri)
    assert read == []


def test_a_torn_shard_in_the_store_does_not_replace_a_sound_one(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    uri = bucket.uri("torn")
    run = make(uri)
    (shard,) = RunStore(run).shard_paths()
    whole = shard.read_bytes()
    bucket.put(f"torn/it/{shard.relative_to(run).as_posix()}", whole[:100])
    find_run("it", uri)
    assert shard.read_bytes() == whole
    assert "is torn: the local file is kept" in caplog.text
    assert code("upload", str(run)) == 0
    assert bucket.contents("torn/it") == local(run)


def test_a_manifest_that_changed_here_is_kept_and_one_that_changed_there_is_fetched(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = bucket.uri("manifests")
    here = RunStore(make(uri))
    here.update_manifest(status="aborted!")  # as long as "finished": no size tells them apart
    assert find_run("it", uri).manifest()["status"] == "aborted!"
    assert json.loads(bucket.contents("manifests/it")["manifest.json"])["status"] == "finished"
    assert code("upload", str(here.path)) == 0
    assert json.loads(bucket.contents("manifests/it")["manifest.json"])["status"] == "aborted!"
    bucket.put("manifests/it/manifest.json", here.manifest_path.read_bytes().replace(b"aborted!", b"resumed!"))
    assert find_run("it", uri).manifest()["status"] == "resumed!"


def test_a_ranking_made_from_the_spool_goes_to_the_store(bucket: Bucket) -> None:
    run = make(bucket.uri("ranked"))
    measured(RunStore(run), attempt=2)  # as if another had been spooled and not sent
    (run / "ranking.md").write_text("old")
    assert code("rank", str(run)) == 0
    there = bucket.contents("ranked/it")
    assert there == local(run)
    assert there["ranking.md"] != b"old"


def test_a_run_that_goes_on_sends_only_what_is_new(tmp_path: Path, bucket: Bucket) -> None:
    uri = bucket.uri("resumed")
    run = make(uri)
    with results(Run(dir=uri, upload_timeout_s=10)) as place:
        store = place.open("latest")
        measured(store, attempt=2)
        store.update_manifest(status="resumed")
        assert place.finish() == []
    assert store.path == run
    assert bucket.contents("resumed/it") == local(run)
    assert len(RunStore(run).shard_paths()) == 2


def test_a_body_that_breaks_off_is_sent_all_the_same(bucket: Bucket) -> None:
    found: list[RunStore] = []

    def body() -> None:
        with results(Run(dir=bucket.uri("broken"))) as place:
            found.append(place.create("it", {"status": "running"}))
            measured(found[0])
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        body()
    assert bucket.contents("broken/it") == local(found[0].path)


def test_a_store_that_does_not_answer_leaves_the_spooled_copy_readable(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    uri = bucket.uri("offline")
    make(uri)
    bucket.down()
    try:
        assert code("status", "it", "--dir", uri) == 0
        assert "which may lack what others have written" in caplog.text
        assert code("status", "latest", "--dir", uri) == 0
        assert code("status", "other", "--dir", uri) == 2
        assert "it does not answer" in capsys.readouterr().err
    finally:
        bucket.up()


WRONG = [
    ("{nowhere}", "run.dir: s3://nowhere/runs?", "there is no bucket 'nowhere'"),
    ("zz://bucket/runs", "run.dir: zz://bucket/runs: ", "unknown scheme 'zz'"),
    ("{refused}", "run.dir: s3://sweeps/runs?", "it does not answer"),
    ("s3://k:secret@sweeps/runs", "no credentials in a URI", "environment"),
    ("file://{file}/runs", "run.dir=", "is not a directory"),
]


@pytest.mark.parametrize(("place", "start", "end"), WRONG, ids=["bucket", "scheme", "refused", "password", "file"])
def test_a_place_that_cannot_take_the_run_is_refused_before_anything_starts(
    tmp_path: Path,
    bucket: Bucket,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    start: str,
    end: str,
) -> None:
    monkeypatch.setattr("orchestrator.cluster.connect", None)
    (tmp_path / "file").write_text("")
    refused = f"s3://sweeps/runs?endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    uri = place.format(nowhere=bucket.uri("runs", "nowhere"), refused=refused, file=tmp_path / "file")
    began = time.monotonic()
    assert code("run", "conf=cpu", f"run.dir={uri}") == 2
    assert time.monotonic() - began < 10
    err = capsys.readouterr().err
    assert start in err
    assert end in err
    assert err.count("\n") == 1
    assert not (tmp_path / "state").exists()


@pytest.mark.slow
def test_a_store_that_takes_the_call_and_never_answers_is_refused_within_seconds(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"s3://sweeps/runs?endpoint_override=127.0.0.1:{silent.getsockname()[1]}&scheme=http&region=us-east-1"
        began = time.monotonic()
        done = call(tmp_path, "conf=cpu", f"run.dir={uri}")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"run.dir: {uri}: it does not answer within 8 s\n"
    assert time.monotonic() - began < 20


WAITING = """
import sys
from orchestrator.results import results
from orchestrator.schema import Run
with results(Run(dir=sys.argv[1], upload_timeout_s=600)) as place:
    store = place.create("it", {})
    print(store.path, flush=True)
    place.finish()
"""


def test_ctrl_c_ends_the_wait_for_the_store_and_tells_how_to_go_on(tmp_path: Path) -> None:
    uri = f"s3://sweeps/runs?endpoint_override=127.0.0.1:{free_port()}&scheme=http&region=us-east-1"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [sys.executable, "-c", WAITING, uri], stdout=pipe, stderr=pipe, text=True, env=environment(str(tmp_path))
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stderr is not None
        run = waiting.stdout.readline().strip()
        while "Ctrl-C leaves them in the spool" not in waiting.stderr.readline():
            assert waiting.poll() is None
        waiting.send_signal(signal.SIGINT)
        err = waiting.communicate(timeout=20)[1]
    assert f"python -m orchestrator upload {run}" in err
    assert err.rstrip().endswith("KeyboardInterrupt")


def test_a_name_that_waits_in_the_spool_is_refused_with_what_to_do(
    bucket: Bucket, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.cluster.connect", None)
    uri = bucket.uri("waiting")
    run = make(uri)
    assert code("run", "conf=cpu", f"run.dir={uri}", "run.name=it") == 2
    # in both: the store says so first; in the spool alone: what to do
    assert f"{bucket.uri('waiting/it')} exists already: choose another run.name" in capsys.readouterr().err
    for name in bucket.contents("waiting/it"):
        Remote(Address.parse(bucket.uri("waiting/it"))).remove(name)
    assert code("run", "conf=cpu", f"run.dir={uri}", "run.name=it") == 2
    assert f"python -m orchestrator upload {run}" in capsys.readouterr().err


def test_files_that_may_not_be_looked_at_are_told_and_not_left_out() -> None:
    run = Path(tempfile.mkdtemp())  # which any user may enter
    run.chmod(0o755)
    (run / "shards").mkdir()
    (run / "shards" / "a.parquet").write_bytes(b"abc")
    assert local_sizes(run) == {"shards/a.parquet": 3}
    with (
        closed(run / "shards", 0),
        pytest.raises(StoreError, match=f"cannot look into {run}/shards: Permission denied"),
    ):
        local_sizes(run)
    shutil.rmtree(run)
    assert local_sizes(run) == {}


def test_upload_wants_a_run_that_belongs_in_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.create(tmp_path / "results", "it", {})
    assert code("upload", str(store.path)) == 2
    assert "has no remote.json: it was not measured for a store" in capsys.readouterr().err


@pytest.mark.parametrize("more", [(), ("--debug",)])
def test_upload_to_a_store_that_refuses_is_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    run = make(f"file://{tmp_path}/a")
    shutil.rmtree(tmp_path / "a")
    (tmp_path / "a").write_text("no directory")
    capsys.readouterr()
    assert code("upload", str(run), *more) == 1
    out, err = capsys.readouterr()
    assert (out, f"python -m orchestrator upload {run}" in err) == ("", True)
    assert ("Traceback" in err) == bool(more)


def test_upload_by_uri_takes_the_spooled_run(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    uri = bucket.uri("by-uri")
    run = make(uri)
    measured(RunStore(run), attempt=2)
    assert code("upload", bucket.uri("by-uri/it")) == 0
    assert capsys.readouterr().out == f"{bucket.uri('by-uri/it')}: 1 files sent, 4 were there\n"
    assert code("upload", "other", "--dir", uri) == 2
    assert "no run 'other'" in capsys.readouterr().err


def test_the_spool_may_be_chosen(tmp_path: Path, bucket: Bucket) -> None:
    run = compose("cpu", [f"run.spool={tmp_path}/mine", f"run.dir={bucket.uri('chosen')}"]).run
    with results(run) as place:
        place.check("it")
        store = place.create("it", {})
        assert place.finish() == []
    (root,) = (tmp_path / "mine").iterdir()
    assert store.path == root / "it"


READERS = (
    *("rank {run}", "status {run}", "explain {run}", "report {run} --out {here}/page.html"),
    *("export {run} --to csv --out {here}/csv", "compare {run} {run}"),
    *("check model=llama-2-7b results={run}", "capacity model=llama-2-7b results={run} tokens_per_s=1"),
)


@pytest.mark.parametrize("line", READERS)
def test_every_verb_that_reads_runs_brings_them_into_the_spool_that_it_is_given(tmp_path: Path, line: str) -> None:
    run, spool = make(f"file://{tmp_path}/a"), tmp_path / "mine"
    code(*line.format(run=f"file://{tmp_path}/a/it", here=tmp_path).split(), "--spool", str(spool))
    (found,) = spool.rglob("manifest.json")
    assert local(found.parent) == local(run)


def test_what_takes_a_directory_of_runs_takes_a_spool_too() -> None:
    options = {
        verb: {word for each in verb_parser(verb)._actions for word in each.option_strings} for verb in ALL_VERBS
    }
    with_dir = {verb for verb, found in options.items() if "--dir" in found}
    assert with_dir - {verb for verb, found in options.items() if "--spool" in found} == {"compact"}  # local runs alone
    assert {line.split()[0] for line in READERS} == with_dir - {"compact", "upload"}  # which asks no store for runs


def test_two_stores_share_a_spool_and_their_runs_of_one_name_stay_apart(tmp_path: Path) -> None:
    spool, stores = tmp_path / "sp", [f"file://{tmp_path}/{name}" for name in ("a", "b")]
    runs = [make(uri, spool=str(spool)) for uri in stores]
    assert len(set(runs)) == 2
    measured(RunStore(runs[1]), attempt=2)
    assert code("upload", "it", "--dir", stores[1], "--spool", str(spool)) == 0
    words = (*SMALL, f"run.dir={stores[1]}", f"run.spool={spool}")
    found = choose(Wish(run="it", anyway=True, retry=frozenset(), words=words))
    assert (found.config.run.dir, found.config.run.name) == (stores[1], "it")
    assert [len(find_run("it", uri, str(spool)).shard_paths()) for uri in stores] == [1, 2]
    assert [len(local(tmp_path / name / "it")) for name in ("a", "b")] == [4, 5]


def test_a_spooled_run_of_another_store_is_never_mixed_with_this_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = (make(f"file://{tmp_path}/{name}") for name in ("a", "b"))
    shutil.rmtree(there)
    here.rename(there)  # as if somebody had put it there
    before = local(there)
    assert code("rank", "it", "--dir", f"file://{tmp_path}/b") == 2
    assert f"{there} belongs in file://{tmp_path}/a/it, not in file://{tmp_path}/b/it" in capsys.readouterr().err
    with pytest.raises(StoreError, match="the two are not mixed"):
        fetch(Address.parse(f"file://{tmp_path}/b/it"), there)
    assert local(there) == before


def test_a_run_directly_under_the_spool_is_taken_where_it_belongs(tmp_path: Path) -> None:
    spool, uri = tmp_path / "sp", f"file://{tmp_path}/a"
    run = make(uri, spool=str(spool)).rename(spool / "it")
    assert find_run("it", uri, str(spool)).path == run
    assert find_run("latest", uri, str(spool)).path == run
    make(f"file://{tmp_path}/b", spool=str(spool))
    assert find_run("it", f"file://{tmp_path}/b", str(spool)).path != run
    with results(Run(dir=uri, spool=str(spool))) as place:
        assert place.open("it").path == run


def test_what_the_chosen_spool_has_is_found_while_the_store_is_away(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool, uri = tmp_path / "sp", f"file://{tmp_path}/a"
    run = make(uri, spool=str(spool))
    (tmp_path / "a").rename(tmp_path / "away")
    words = (*SMALL, f"run.dir={uri}", f"run.spool={spool}")
    chosen = choose(Wish(run="it", anyway=True, retry=frozenset(), words=words))
    assert (chosen.name, chosen.config.run.dir, chosen.config.run.spool) == ("it", uri, str(spool))
    assert [code(verb, "it", "--dir", uri) for verb in VERBS] == [2, 2, 2]
    assert "if it was measured with another run.spool, give that" in capsys.readouterr().err
    assert [code(verb, f"{uri}/it", "--spool", str(spool)) for verb in VERBS] == [0, 0, 0]
    assert local(tmp_path / "a" / "it") == local(run)


def test_a_spooled_run_that_is_damaged_hides_no_other(tmp_path: Path) -> None:
    uri = f"file://{tmp_path}/a"
    make(uri, "it", started_utc="2026-11-29T10:00:00+00:00")
    manifest, record = (make(uri, name) for name in ("manifest", "record"))
    (manifest / "manifest.json").write_text("{")
    (record / "remote.json").write_text("{")
    assert code("upload", "it", "--dir", uri) == 0
    assert code("upload", "record", "--dir", uri) == 2
    assert code("status", "record", "--dir", uri) == 2
    assert code("status", "latest", "--dir", uri) == 0
    assert code("upload", "latest", "--dir", uri) == 0


def test_a_spool_that_is_no_directory_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("no directory")
    for run in ("it", "latest"):
        assert code("rank", run, "--dir", f"file://{tmp_path}/a", "--spool", f"{tmp_path}/mine") == 2
        assert f"run.spool: {tmp_path}/mine is not a directory" in capsys.readouterr().err


def test_what_cannot_name_a_run_is_said_and_no_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long, uri = "n" * 300, f"file://{tmp_path}/a"
    for verb in VERBS:
        assert code(verb, f"{uri}/{long}") == 2
        assert code(verb, "latest", "--dir", uri, "--spool", long) == 2
        assert code(verb, "s3://") == 2
        assert code(verb, "s3://[/runs/it") == 2
    err = capsys.readouterr().err
    assert "File name too long" in err
    assert "s3:// names no run; write s3://BUCKET/RUN" in err


def test_two_machines_cannot_make_a_run_of_one_name(
    tmp_path: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = bucket.uri("twice")
    make(uri)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another"))
    with results(Run(dir=uri)) as place, pytest.raises(StoreError, match="exists already"):
        place.create("it", {})


@pytest.mark.usefixtures("landed")
def test_a_run_in_a_bucket_goes_on_in_another_place(bucket: Bucket, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    for name, content in bucket.contents("team/runs/it").items():
        if "tp2" not in name:
            bucket.put(f"on/it/{name}", content)
    again = call(elsewhere, "resume=it", f"run.dir={bucket.uri('on')}")
    assert again.returncode == 0, again.stderr
    run = spool_of(elsewhere)
    assert once_each(run, 4)
    assert bucket.contents("on/it") == local(run)
    assert RunStore.open(run).manifest()["status"] == "finished"
    nothing = call(elsewhere, f"resume={bucket.uri('on/it')}")
    assert (nothing.returncode, "nothing to do" in nothing.stderr) == (0, True), nothing.stderr
