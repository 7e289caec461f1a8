"""``compact``: the same rows in few files, whatever happens meanwhile."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from filelock import FileLock

from orchestrator import atomic, compaction
from orchestrator.cli import main
from orchestrator.compacted import COMPACTED, COMPACTED_KEY, Compacted
from orchestrator.compaction import compact
from orchestrator.errors import StoreError
from orchestrator.ranking import rank
from orchestrator.resume import former
from orchestrator.spool import Origin
from orchestrator.store import RunStore, shard_table
from tasks.settings import Timing
from tests import promise
from tests.builders import DEVICE, as_bundle, measurement, mlp_family, per_flop, up_family

HEIGHTS = (64, 128, 256)


def keep(
    store: RunStore, h: int, *, attempt: int = 1, uuid: str = "GPU-0", seconds: float = 1.0, unsteady: float = 0.0
) -> Path:
    family = (mlp_family if h == 128 else up_family)([128, 256], h=h)
    device = replace(DEVICE, uuid=uuid)
    measured = measurement(
        family, per_flop({128: seconds}), rounds=12, noise=0.01, unsteady=unsteady, random_seed=h, device=device
    )
    table = shard_table(as_bundle(family), measured, Timing(), attempt=attempt, code_version="1", plan_hash="abc")
    return store.write_shard(table)


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    """A run with three Shards of one device and one of another."""
    store = RunStore.create(tmp_path, "run", {"status": "interrupted"})
    for h in HEIGHTS:
        keep(store, h)
    keep(store, 64, uuid="GPU-1")
    return store


def rows(store: RunStore) -> pa.Table:
    """All rows as a reader gets them, none of them corrupt."""
    reader = store.reader()
    found = pa.concat_tables([reader.facts().table, reader.samples().table])
    assert reader.problems == ()
    return found


def names(store: RunStore) -> list[str]:
    return [f"{path.parent.name}/{path.name}" for path in store.shard_paths()]


def ordered(table: pa.Table) -> pa.Table:
    by = ("record", "uuid", "bundle_id", "attempt", "gemm_id", "part", "round")
    return table.sort_by([(name, "ascending") for name in by])


ONE_EACH = ["device=GPU-0/compacted-00001.parquet", "device=GPU-1/mlp_up-h64-tp1-b4-s8-fp16.1.parquet"]
"""A Shard that is alone is left alone."""


def test_a_compacted_run_has_the_same_rows_in_the_same_order(store: RunStore) -> None:
    before = rows(store)
    done = compact(store)
    assert (done.before, done.after, done.problems) == (4, 2, ())
    assert names(store) == ONE_EACH
    assert rows(store).equals(before)
    promise.check(store.path)


def test_a_compacted_file_is_read_by_other_tools_like_a_shard(store: RunStore) -> None:
    compact(store)
    path = store.shard_paths()[0]
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [8, 96]
    assert metadata.metadata[b"schema_version"] == b"3"


def test_verbs_answer_from_a_compacted_run_as_before(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    def answers() -> list[str]:
        found = [str(rank(store).table.to_pylist())]
        for verb in ("rank", "status", "explain"):
            assert main([verb, str(store.path), "--json"]) == 0
            found.append(capsys.readouterr().out)
        return found

    before = answers()
    assert main(["compact", str(store.path)]) == 0
    assert capsys.readouterr().out == f"{store.path}: 4 files before, 2 now, with the same rows\n"
    assert answers() == before


def test_a_resumed_run_knows_what_was_compacted_and_adds_to_it(store: RunStore) -> None:
    before = former(store, "replicate", 4)
    attempts = sorted(store.attempts())
    compact(store)
    assert former(store, "replicate", 4) == before
    assert sorted(store.attempts()) == attempts
    keep(store, 64, attempt=2)
    assert store.reader().samples().table.num_rows == (4 + 1 + 1) * 24
    assert compact(store).after == 2
    assert names(store) == [ONE_EACH[0].replace("1.p", "2.p"), ONE_EACH[1]]
    assert sorted(store.attempts()) == sorted([*attempts, ("GPU-0", "mlp_up-h64-tp1-b4-s8-fp16", 2)])
    promise.check(store.path, again={"mlp_up-h64-tp1-b4-s8-fp16"})


def test_a_second_compaction_of_the_same_does_nothing(store: RunStore) -> None:
    compact(store)
    before = {path: path.stat().st_mtime_ns for path in store.shard_paths()}
    assert compact(store) == compaction.Compaction(before=2, after=2, problems=())
    assert {path: path.stat().st_mtime_ns for path in store.shard_paths()} == before


def test_a_full_file_is_not_merged_again(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "FULL", 1)
    monkeypatch.setattr(compaction, "AT_ONCE", 2)
    before = rows(store)
    compact(store)
    single = "device=GPU-0/mlp_up-h64-tp1-b4-s8-fp16.1.parquet"
    assert names(store) == [ONE_EACH[0], single, ONE_EACH[1]]
    assert ordered(rows(store)).equals(ordered(before))
    for attempt in (2, 3):
        keep(store, 64, attempt=attempt)
    full = store.shard_paths()[0].read_bytes()
    compact(store)
    assert names(store)[:2] == [f"device=GPU-0/compacted-0000{number}.parquet" for number in (1, 2)]
    assert store.shard_paths()[0].read_bytes() == full


# Broken off


class Killed(BaseException):
    """What no handler catches."""


def die_at(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, count: int) -> None:
    """End at the ``count``-th call of a function, before it does anything."""
    real, calls = getattr(owner, name), [0]

    def function(*arguments: object, **options: object) -> object:
        calls[0] += 1
        if calls[0] == count:
            raise Killed
        return real(*arguments, **options)

    monkeypatch.setattr(owner, name, function)


@pytest.mark.parametrize(
    ("owner", "function", "count"),
    [
        (os, "replace", 1),  # read back, and without its name
        (atomic, "sync_directory", 1),  # with its name, beside all of its Shards
        (compaction, "sync_directory", 1),  # a device's Shards are gone
        (Path, "unlink", 3),  # some of its Shards are gone: the first calls are for the temporary files
        (Path, "unlink", 4),
    ],
)
def test_a_compaction_that_ends_at_any_moment_leaves_the_same_rows_once(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, owner: object, function: str, count: int
) -> None:
    before = rows(store)
    with monkeypatch.context() as patched:
        die_at(patched, owner, function, count)
        with pytest.raises(Killed):
            compact(store)
    assert ordered(rows(store)).equals(ordered(before))
    promise.check(store.path)
    assert compact(store).problems == ()
    assert names(store) == ONE_EACH
    assert ordered(rows(store)).equals(ordered(before))


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.compaction import compact
from orchestrator.store import RunStore
real, left = Path.unlink, [3]
def unlink(path, missing_ok=False):
    left[0] -= path.suffix == ".parquet"
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    real(path, missing_ok)
Path.unlink = unlink
compact(RunStore.open(sys.argv[1]))
"""


def test_a_killed_compaction_leaves_the_same_rows_once(store: RunStore) -> None:
    before = rows(store)
    command = [sys.executable, "-c", KILLED, str(store.path)]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == -signal.SIGKILL
    assert len(names(store)) == 1 + 1 + 1  # the compacted one, a Shard that was not removed, the other device's
    assert ordered(rows(store)).equals(ordered(before))
    assert compact(store).problems == ()
    assert names(store) == ONE_EACH
    assert ordered(rows(store)).equals(ordered(before))


def copied(store: RunStore, tmp_path: Path) -> Callable[[], None]:
    """Return what puts all files of now beside those of later, as a killed compaction leaves them."""
    kept = shutil.copytree(store.path / "shards", tmp_path / "kept")
    return lambda: (shutil.copytree(kept, store.path / "shards", dirs_exist_ok=True), None)[1]


def test_a_damaged_compacted_file_is_named_and_its_shards_are_read_where_they_are_there(
    store: RunStore, tmp_path: Path
) -> None:
    before, put_back = rows(store), copied(store, tmp_path)
    compact(store)
    put_back()
    assert ordered(rows(store)).equals(ordered(before))
    bad = store.path / "shards" / "gpu=nvidia-h200" / ONE_EACH[0]
    metadata = pq.ParquetFile(bad).metadata
    column = metadata.row_group(1).column(metadata.schema.names.index("seconds"))
    content = bytearray(bad.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 1
    bad.write_bytes(content)
    reader = store.reader()
    facts, samples = reader.facts().table, reader.samples().table
    assert [problem.startswith(f"{bad} is corrupt and was left out: ") for problem in reader.problems] == [True]
    assert ordered(pa.concat_tables([facts, samples])).equals(ordered(before))
    done = compact(store)  # takes the Shards for the compacted file that is lost, under another name
    assert done.problems == reader.problems
    assert names(store) == [ONE_EACH[0], "device=GPU-0/compacted-00002.parquet", ONE_EACH[1]]


def test_a_damaged_list_of_shards_is_found(store: RunStore) -> None:
    compact(store)
    path = store.shard_paths()[0]
    content = bytearray(path.read_bytes())
    content[content.rindex(b":eJ") + 20] ^= 1  # zlib's header in base64
    path.write_bytes(content)
    (problem,) = store.reader().problems
    assert problem == f"{path} is corrupt and was left out: its list of shards is damaged"
    assert ("GPU-0", "mlp_up-h64-tp1-b4-s8-fp16", 1) not in store.attempts()


@pytest.mark.parametrize("metadata", [b"x", b":", b"00:", b"00:eJw="])
def test_what_is_no_list_of_shards_is_damaged(metadata: bytes) -> None:
    with pytest.raises(ValueError, match="its list of shards is damaged"):
        Compacted.of({COMPACTED_KEY: metadata})


def test_a_disk_that_writes_something_else_costs_no_shard(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    before, real = rows(store), os.fsync

    def fsync(descriptor: int) -> None:
        if os.fstat(descriptor).st_size > 10_000:
            os.pwrite(descriptor, bytes(200), os.fstat(descriptor).st_size - 200)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(StoreError, match=r"does not read as it was written: .* no shard was touched"):
        compact(store)
    assert rows(store).equals(before)
    assert not list(store.path.rglob(".*.tmp"))


def test_a_shard_that_cannot_be_read_stays_as_it_is_and_is_named(
    store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = store.shard_paths()[1]
    content = bad.read_bytes()[:-100]
    bad.write_bytes(content)
    assert main(["compact", str(store.path)]) == 1
    assert f"{bad} is corrupt and was left out: " in capsys.readouterr().out
    assert bad.read_bytes() == content
    assert names(store) == [ONE_EACH[0], f"device=GPU-0/{bad.name}", ONE_EACH[1]]
    assert store.reader().facts().table.num_rows == 10 - (4 if bad.name.startswith("mlp-") else 2)


def test_other_rows_under_a_name_that_is_taken_are_never_removed(store: RunStore) -> None:
    compact(store)
    path = keep(store, 64, seconds=3.0)  # by hand: an attempt that the run knows is never measured again
    done = compact(store)
    assert [problem.startswith(f"{path} is kept, and not read: compacted-00001") for problem in done.problems] == [True]
    assert path.exists()


# At once


def test_a_run_that_is_worked_on_is_not_compacted(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    with FileLock(store.path / ".lock"):
        assert main(["compact", str(store.path)]) == 2
        assert "is being worked on by another process: wait until it ends" in capsys.readouterr().err
        store.update_manifest(status="running", pid=1, host="node1")
        assert main(["compact", str(store.path)]) == 2
        assert "is being worked on by another driver (process 1 on node1)" in capsys.readouterr().err
    assert not [name for name in names(store) if COMPACTED.search(name)]


@pytest.mark.parametrize("read_first", [True, False])
def test_a_run_may_be_compacted_while_it_is_read(store: RunStore, *, read_first: bool) -> None:
    before = rows(store)
    reader = store.reader()
    facts = reader.facts().table if read_first else None
    compact(store)
    samples = reader.samples().table
    facts = reader.facts().table if facts is None else facts
    assert reader.problems == ()
    assert pa.concat_tables([facts, samples]).equals(before)


# Runs in stores


def test_a_run_in_a_store_is_refused_and_told_what_to_do(store: RunStore, capsys: pytest.CaptureFixture[str]) -> None:
    Origin(uri="s3://bucket/runs/run").write(store.path)
    for words in ([str(store.path)], ["s3://bucket/runs/run"], ["run", "--dir", "s3://bucket/runs"]):
        assert main(["compact", *words]) == 2
        message = capsys.readouterr().err
        assert "s3://bucket/runs/run" in message
        assert "copy it (cp -r), remove remote.json from the copy, compact the copy by its path" in message
    assert len(names(store)) == 4
    copy = store.path.with_name("copy")
    shutil.copytree(store.path, copy)
    (copy / "remote.json").unlink()
    assert main(["compact", str(copy)]) == 0


def test_no_such_run_is_a_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compact", "--dir", str(tmp_path)]) == 2
    assert "no run 'latest'" in capsys.readouterr().err


def test_a_run_without_shards_stays_without(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "empty", {})
    assert compact(store) == compaction.Compaction(before=0, after=0, problems=())
    assert json.loads(store.manifest_path.read_text())["run"] == "empty"


def test_shards_of_a_former_version_are_compacted_with_those_of_this_one(store: RunStore) -> None:
    """Before version 3 samples had no ``slowdown``."""
    (path,) = (path for path in store.shard_paths() if "-h64-" in path.name and path.parent.name == "device=GPU-0")
    table = pq.read_table(path)
    older = table.drop_columns(["slowdown"]).replace_schema_metadata({**table.schema.metadata, b"schema_version": b"2"})
    pq.write_table(older, path, row_group_size=1 << 20)
    new = keep(store, 512, unsteady=0.05)
    before, ranking = rows(store), rank(store).table
    compact(store)
    assert not path.exists()
    assert not new.exists()
    assert ordered(rows(store)).equals(ordered(before))
    assert rank(store).table.equals(ranking)
    assert sum(each is not None for each in rows(store)["slowdown"].to_pylist()) == 2 * 12


FOOTERS = """
import sys
from pathlib import Path
from orchestrator.store import shard_reader
paths = sorted(Path(sys.argv[1]).iterdir())
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4
shard_reader(paths[:1].copy, footers=False)
before = resident()
reader = shard_reader(paths.copy, footers=sys.argv[2] == "kept")
print((resident() - before) / len(reader.files()))
"""


def test_no_footer_is_kept_in_memory_where_only_the_names_of_the_shards_count(store: RunStore, tmp_path: Path) -> None:
    """Those of twenty thousand Shards took more than four gigabytes."""
    shard, copies = store.shard_paths()[0], tmp_path / "copies"
    copies.mkdir()
    for number in range(300):
        shutil.copy(shard, copies / f"{number}.1.parquet")
    kib = {
        kept: float(subprocess.check_output([sys.executable, "-c", FOOTERS, str(copies), kept], text=True))
        for kept in ("kept", "dropped")
    }
    assert kib["dropped"] < 50 < kib["kept"]
