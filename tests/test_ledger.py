"""What is on disk when a Bundle has ended, and how long the driver's loop waits for it."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.engine import Failure, Result
from orchestrator.errors import StoreError
from orchestrator.ledger import UNDER_WAY, Ledger
from orchestrator.queue import Assignment
from orchestrator.store import RunStore, shard_file
from orchestrator.worker import WorkerSpec, shard
from tasks.records import DeviceInfo
from tasks.settings import Timing
from tests.fakes import bundle, device_info, measured

SPEC = WorkerSpec(kind="cuda", timing=Timing(), code_version="1", plan_hash="p")


class Disk:
    """Lets a file be written when it is told to; ``full``: never."""

    def __init__(self, *, full: bool = False) -> None:
        self.free = threading.Event()
        self.full = full

    def __call__(self, path: Path) -> None:
        assert self.free.wait(10)
        if self.full:
            raise StoreError(f"cannot write {path}: No space left on device")


def store(path: Path, disk: Disk | None = None) -> RunStore:
    made = RunStore.create(path, "run", {})
    return made if disk is None else replace(made, on_write=disk)


def attempt(h: int, device: DeviceInfo) -> Assignment:
    return Assignment(bundle=bundle(h), attempt=1, worker="w", device=device.uuid)


def end(ledger: Ledger, h: int, device: DeviceInfo) -> None:
    assignment = attempt(h, device)
    content = shard_file(shard(SPEC, assignment, measured(device, assignment.bundle)))
    ledger.measured(assignment, device, Result(shard=content, failed=()))


def sweep(ledger: Ledger, then: Callable[[Ledger], object]) -> None:
    """End one Bundle, and do something else before the ledger closes."""
    with ledger:
        end(ledger, 1, device_info(0))
        then(ledger)


def test_when_it_closes_all_is_on_disk_under_its_device(tmp_path: Path) -> None:
    run = store(tmp_path)
    with Ledger(run, SPEC) as ledger:
        for h in range(1, 9):
            end(ledger, h, device_info(h % 2))
    facts = run.reader().facts(["bundle_id", "uuid"]).table.to_pylist()
    assert {(row["bundle_id"], row["uuid"]) for row in facts} == {
        (bundle(h).bundle_id, f"GPU-fake-{h % 2}") for h in range(1, 9)
    }
    assert ledger.bundles == 8


def test_the_loop_waits_for_no_disk_but_a_device_has_few_shards_under_way(tmp_path: Path) -> None:
    disk = Disk()
    with Ledger(store(tmp_path, disk), SPEC) as ledger:
        for h in range(UNDER_WAY):
            end(ledger, 1 + h, device_info(0))
        end(ledger, 98, device_info(1))
        another = threading.Thread(target=end, args=(ledger, 99, device_info(0)))
        another.start()
        another.join(0.1)
        assert another.is_alive()
        assert ledger.bundles == UNDER_WAY + 1
        disk.free.set()
        another.join(10)
        assert not another.is_alive()
    assert ledger.bundles == UNDER_WAY + 2


def test_a_shard_that_cannot_be_written_ends_the_sweep_at_the_next_turn_of_the_loop(tmp_path: Path) -> None:
    disk = Disk(full=True)

    def turns(ledger: Ledger) -> None:
        assert ledger.storm() == ""
        disk.free.set()
        while not ledger.storm():
            time.sleep(0.01)

    ledger = Ledger(store(tmp_path, disk), SPEC)
    with pytest.raises(StoreError, match="No space left"):
        sweep(ledger, turns)


def test_nothing_of_a_device_is_taken_after_a_shard_that_could_not_be_written(tmp_path: Path) -> None:
    disk = Disk(full=True)
    disk.free.set()
    ledger = Ledger(store(tmp_path, disk), SPEC)

    def later(ledger: Ledger) -> None:
        failed = ledger._writing[device_info(0).uuid][0]
        assert isinstance(failed.exception(), StoreError)
        end(ledger, 2, device_info(0))

    with pytest.raises(StoreError, match="No space left"):
        sweep(ledger, later)
    assert ledger.bundles == 1


def test_the_last_shard_too_is_missed_when_it_cannot_be_written(tmp_path: Path) -> None:
    disk = Disk(full=True)
    ledger = Ledger(store(tmp_path, disk), SPEC)
    with pytest.raises(StoreError, match="No space left"):
        sweep(ledger, lambda ledger: disk.free.set())


def test_another_error_is_not_hidden_by_one_of_the_disk(tmp_path: Path) -> None:
    def interrupted(ledger: Ledger) -> None:
        raise KeyboardInterrupt

    disk = Disk(full=True)
    disk.free.set()
    ledger = Ledger(store(tmp_path, disk), SPEC)
    with pytest.raises(KeyboardInterrupt):
        sweep(ledger, interrupted)


def test_what_was_given_up_is_written_at_once(tmp_path: Path) -> None:
    run, device = store(tmp_path), device_info(0)
    with Ledger(run, SPEC) as ledger:
        ledger.given_up(attempt(1, device), device, Failure(status="timeout", message="not done"))
        assert run.reader().facts(["status"]).table["status"].to_pylist() == ["timeout"] * 2
    assert [failure.facts.status for failure in ledger.failures] == ["timeout"] * 2
