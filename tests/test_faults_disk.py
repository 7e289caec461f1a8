"""Disks that are full, read-only or lie: the whole job on the CPU, on real file systems."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.store import RunStore, shard_table
from tasks.settings import Timing
from tests import promise
from tests.builders import as_bundle, measurement, per_flop, up_family
from tests.jobs import FAMILIES, SMALL, Job, begun, bundles, finish, job, journal, resume, until

pytestmark = [pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]

SIZE = 1 << 20
ROOM = 100_000
"""Bytes for some Shards, and not for all."""


def mount(*arguments: str) -> None:
    """Mount, or skip the test where that is not permitted."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a file system")
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no file system can be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    path = tmp_path / "disk"
    path.mkdir()
    mount("-t", "tmpfs", "-o", f"size={SIZE}", "none", str(path))
    yield path
    subprocess.run(["umount", "-l", str(path)], check=True)


def remount(disk: Path, mode: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{mode}", str(disk)], check=True)


@contextlib.contextmanager
def immutable() -> Iterator[Callable[[Path], None]]:
    """Yield what makes a directory read-only, also for root, until the end; skip where that is not possible."""
    made: list[Path] = []

    def make(path: Path) -> None:
        done = subprocess.run(["chattr", "+i", str(path)], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no directory can be made immutable here: {done.stderr.strip()}")
        made.append(path)

    if shutil.which("chattr") is None:
        pytest.skip("no chattr")
    try:
        yield make
    finally:
        for path in made:
            subprocess.run(["chattr", "-i", str(path)], check=True)


def test_a_full_disk_ends_the_sweep_with_all_that_was_written(disk: Path) -> None:
    filler = disk / "others"
    filler.write_bytes(bytes(SIZE - ROOM))
    with job(disk, *SMALL) as driver:
        assert driver.end() == 2
    assert "cannot write" in driver.err
    assert "No space left on device" in driver.err
    assert "seed_bmm h=" in driver.out  # what there is was ranked
    assert 0 < len(driver.shards()) < FAMILIES
    promise.check(driver.run, ended=journal(disk, "end"), lost=2)
    before = len(begun(disk))
    assert resume(disk).code == 2  # it is still full
    assert len(begun(disk)) - before <= 2  # the next one goes out before a Shard is written
    filler.unlink()
    had, before = bundles(driver.shards()), len(begun(disk))
    again = resume(disk)
    assert again.code == 0, again.err
    assert set(begun(disk)[before:]).isdisjoint(had)
    promise.check(driver.run, status="finished", ended=journal(disk, "end"), lost=4)


def test_a_disk_that_is_full_at_the_start_leaves_no_run_behind(disk: Path) -> None:
    with contextlib.suppress(OSError):
        (disk / "others").write_bytes(bytes(SIZE))
    done = finish(disk, *SMALL)
    assert done.code == 2
    assert "No space left on device" in done.err
    assert [path.name for path in disk.iterdir()] == ["others"]
    assert begun(disk) == []


def test_a_read_only_directory_is_refused_before_anything_starts(disk: Path) -> None:
    remount(disk, "ro")
    done = finish(disk, *SMALL, env={"RAY_ADDRESS": "127.0.0.1:1"})
    assert (done.code, done.out) == (2, "")
    assert f"{disk} is not writable" in done.err


def test_a_run_on_a_read_only_disk_is_shown_and_not_resumed(disk: Path) -> None:
    family = up_family([128, 256])
    store = RunStore.create(disk, "it", {"conf": "cpu", "status": "interrupted"})
    measured = measurement(family, per_flop({128: 1.0}), rounds=12)
    store.write_shard(shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="x"))
    remount(disk, "ro")
    ranked = finish(disk, "rank", "it", "--dir", str(disk), plain=True)
    assert (ranked.code, "the ranking was not written" in ranked.err) == (0, True)
    refused = resume(disk, "conf=cpu")
    assert refused.code == 2
    assert "cannot lock the run" in refused.err


def test_a_directory_that_becomes_read_only_ends_the_sweep_with_all_that_was_written(tmp_path: Path) -> None:
    results = tmp_path / "results"
    with job(results, *SMALL, pace_s=0.3) as driver, immutable() as make:
        make(driver.under_way().shards()[0].parent)
        assert driver.end() == 2
        assert "Operation not permitted" in driver.err
        assert "seed_bmm h=" in driver.out
        promise.check(driver.run, status="failed", ended=journal(results, "end"), lost=2)
        had, before = bundles(driver.shards()), len(begun(results))
    again = resume(results)
    assert again.code == 0, again.err
    assert set(begun(results)[before:]).isdisjoint(had)
    promise.check(driver.run, status="finished", ended=journal(results, "end"), lost=2)


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose driver was killed when its third Shard was written and had no name yet."""
    results = tmp_path_factory.mktemp("unnamed") / "results"
    with job(results, *SMALL, env={"FAULT_RENAME": "3"}) as driver:
        until(lambda: journal(results, "written"), "a shard without its name")
        driver.kill(signal.SIGKILL)
        driver.end()
        driver.none_left()
    return driver.run


@pytest.fixture(scope="module")
def resumed(unnamed: Path, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """That run, copied and brought to its end."""
    folder = tmp_path_factory.mktemp("resumed")
    shutil.copytree(unnamed.parents[1], folder, dirs_exist_ok=True)
    (torn,) = (folder / "results" / "it").rglob(".*.tmp")
    torn.write_bytes(torn.read_bytes()[:1000])  # a file system may forget the rest
    done = resume(folder / "results")
    done.run = folder / "results" / "it"
    return done


def test_a_shard_that_its_killed_writer_did_not_name_is_swept_and_never_read(
    unnamed: Path, resumed: Job, tmp_path: Path
) -> None:
    run = shutil.copytree(unnamed, tmp_path / "it")
    (torn,) = run.rglob(".*.tmp")
    torn.write_bytes(torn.read_bytes()[:1000])
    promise.check(run)
    ranked = finish(tmp_path, "rank", "it", "--dir", str(tmp_path), plain=True)
    assert (ranked.code, ranked.err) == (0, "")
    assert len(list(run.glob("shards/*/*/[!.]*.parquet"))) == 2
    assert resumed.code == 0, resumed.err
    assert not list(resumed.run.rglob(".*.tmp"))
    promise.check(resumed.run, status="finished", ended=journal(resumed.run.parent, "end"), lost=2)


def flip(path: Path, at: int) -> None:
    """Flip one bit of a file."""
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def seconds_at(path: Path) -> int:
    """Where in a Shard's file the samples' times lie."""
    import pyarrow.parquet as pq

    group = pq.ParquetFile(path).metadata.row_group(1)
    columns = [group.column(index) for index in range(group.num_columns)]
    (column,) = [column for column in columns if column.path_in_schema == "seconds"]
    begin = column.dictionary_page_offset or column.data_page_offset
    return int(begin + column.total_compressed_size // 2)


def test_corrupt_and_truncated_shards_are_named_and_measured_again_alone(resumed: Job, tmp_path: Path) -> None:
    results = shutil.copytree(resumed.run.parent, tmp_path / "results")
    shards, run = sorted((results / "it").glob("shards/*/*/[!.]*.parquet")), results / "it"
    assert len(shards) == FAMILIES
    flipped, cut, *sound = shards
    flip(flipped, seconds_at(flipped))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    bytes_before = {path: path.read_bytes() for path in sound}
    ranked = finish(results, "rank", "it", "--dir", str(results), plain=True)
    assert ranked.code == 1
    assert ranked.out.count("is corrupt and was left out") == 2
    assert str(flipped) in ranked.out
    assert str(cut) in ranked.out
    promise.check(run, corrupt=2)
    before = len(begun(results))
    again = resume(results)
    assert again.code == 1
    assert str(flipped) in again.out
    assert sorted(begun(results)[before:]) == sorted(bundles([flipped, cut]))
    new = set(run.glob("shards/*/*/[!.]*.parquet")) - {flipped, cut, *sound}
    assert new == {path.with_name(path.name.replace(".1.parquet", ".2.parquet")) for path in (flipped, cut)}
    assert {path: path.read_bytes() for path in sound} == bytes_before
    promise.check(run, status="finished", corrupt=2)
    for path in (flipped, cut):
        path.unlink()  # by the user, who has read which
    last = resume(results)
    assert (last.code, "nothing to do" in last.err) == (0, True)
    promise.check(run, status="finished")


@pytest.mark.parametrize("seed", range(3))
def test_no_flipped_bit_is_read_as_another_measurement(tmp_path: Path, seed: int) -> None:
    # of 100 flips, all that hit something that is read must be seen; the others must change nothing
    family = up_family([128, 256])
    bundle = as_bundle(family)
    store = RunStore.create(tmp_path, "it", {})
    measured = measurement(family, per_flop({128: 1.0}), rounds=30, noise=0.1)
    path = store.write_shard(shard_table(bundle, measured, Timing(), attempt=1, code_version="1", plan_hash="x"))
    good, whole = path.read_bytes(), store.reader().all().table
    choose, seen = random.Random(seed), 0
    for _ in range(100):
        path.write_bytes(good)
        flip(path, choose.randrange(len(good)))
        read = store.reader().all()
        assert read.problems or read.table.equals(whole)
        seen += bool(read.problems)
    assert seen > 20
