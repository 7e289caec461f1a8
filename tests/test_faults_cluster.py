"""Faults of workers, devices and nodes, each really made to happen on a Ray cluster of several raylets."""

import functools
import os
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.driver import SweepResult
from orchestrator.ranking import rank
from orchestrator.resume import former
from orchestrator.store import RunStore
from tasks.family import Bundle
from tests.fakes import bundle
from tests.faulty import Plan
from tests.fleet import Fleet, check_samples, facts, meanwhile, started, wait_for

pytestmark = [
    pytest.mark.ray,
    # Ray leaves its log files and process handles to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

H200, L40S = "NVIDIA H200", "NVIDIA L40S"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    with started(tmp_path_factory.mktemp("faults")) as fleet:
        yield fleet


@pytest.fixture
def fleet(cluster: Fleet) -> Iterator[Fleet]:
    """The cluster, with its first node alone."""
    yield cluster
    cluster.only_head()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {})


def work(count: int) -> list[Bundle]:
    return [bundle(h) for h in range(1, count + 1)]


def all_is_measured(result: SweepResult, bundles: int) -> bool:
    return (result.bundles, result.unfinished, result.failures, result.exit_code) == (bundles, 0, (), 0)


def test_workers_killed_amid_their_families_cost_nothing(fleet: Fleet, store: RunStore) -> None:
    victims = (12, 9, 5)

    def kill() -> None:
        for h in victims:
            pid, _ = wait_for(functools.partial(fleet.running, h))
            os.kill(pid, signal.SIGKILL)

    Plan(seconds=0.3).write(fleet.folder)
    with meanwhile(kill):
        result = fleet.sweep(work(12), store)
    assert all_is_measured(result, 12)
    check_samples(store, 12)
    attempts = {row["h"]: row["attempt"] for row in facts(store)}
    assert attempts == {h: 2 if h in victims else 1 for h in range(1, 13)}


@pytest.mark.parametrize("end", ["kill", "remove"])
def test_the_families_of_a_node_that_dies_are_measured_elsewhere(fleet: Fleet, store: RunStore, end: str) -> None:
    fleet.add("far", 2)
    on_far: list[str] = []

    def far_is_at_work() -> bool:
        on_far[:] = [mark.name for mark in (fleet.folder / "running").glob("*-GPU-far-*")]
        return bool(on_far)

    def kill() -> None:
        wait_for(lambda: len(list(store.path.glob("shards/*/device=GPU-far*/*.parquet"))) >= 2)
        wait_for(far_is_at_work)  # a device may just be between two Bundles
        getattr(fleet, end)("far")

    Plan(seconds=0.3).write(fleet.folder)
    with meanwhile(kill):
        result = fleet.sweep(work(30), store)
    assert all_is_measured(result, 30)
    check_samples(store, 30)
    assert on_far
    moved = {row["uuid"] for row in facts(store) if row["attempt"] > 1}
    assert moved <= {"GPU-head-0", "GPU-head-1"}
    assert {device.host for device in result.devices} == {"head", "far"}


def test_a_node_that_joins_amid_a_sweep_takes_work(fleet: Fleet, store: RunStore) -> None:
    results: list[SweepResult] = []
    Plan(seconds=0.4).write(fleet.folder)
    with meanwhile(lambda: results.append(fleet.sweep(work(60), store))):  # a node is added from the main thread only
        wait_for(store.shard_paths)
        fleet.add("late", 2)
    assert all_is_measured(results[0], 60)
    check_samples(store, 60)
    by_device = Counter(row["uuid"] for row in facts(store))
    assert by_device["GPU-late-0"] > 2
    assert by_device["GPU-late-1"] > 2


def test_odd_exceptions_of_a_worker_arrive_as_plain_text(fleet: Fleet, store: RunStore) -> None:
    messages = {
        101: ("unpicklable", "Unpicklable: lock"),
        102: ("mute", "Mute: <exception str() failed>"),
        103: ("long", "ValueError: xxx"),
        104: ("exit", "SystemExit: 3"),
        105: ("interrupt", "KeyboardInterrupt"),
        106: ("foreign", "Foreign: base"),
        107: ("spiteful", ""),
        108: ("half", "ValueError: half a character \\ud800, a \\x1b[31m colour"),
    }
    Plan(raises={h: name for h, (name, _) in messages.items()}).write(fleet.folder)
    result = fleet.sweep([*work(8), *(bundle(h) for h in messages)], store)
    assert (result.bundles, result.unfinished, result.exit_code) == (16, 0, 1)
    check_samples(store, 8)
    failed = [row for row in facts(store) if row["h"] in messages]
    assert {row["status"] for row in failed} == {"worker_died"}
    assert {row["attempt"] for row in failed} == {2}
    for row in failed:
        assert messages[row["h"]][1] in row["message"]
        assert len(row["message"]) <= 500


def test_a_worker_whose_start_fails_once_works_then(fleet: Fleet, store: RunStore) -> None:
    Plan(start_fails_once=["GPU-head-0", "GPU-head-1"], seconds=0.3).write(fleet.folder)
    assert all_is_measured(fleet.sweep(work(12), store), 12)
    assert {row["uuid"] for row in facts(store)} == {"GPU-head-0", "GPU-head-1"}


def test_a_device_that_never_opens_does_not_keep_the_others(fleet: Fleet, store: RunStore) -> None:
    Plan(never_opens=["GPU-head-1"], seconds=0.3).write(fleet.folder)
    assert all_is_measured(fleet.sweep(work(12), store, start_timeout_s=8.0), 12)
    assert {row["uuid"] for row in facts(store)} == {"GPU-head-0"}


def test_every_model_of_a_cluster_measures_everything_once(fleet: Fleet, store: RunStore) -> None:
    fleet.add("small", 2)
    Plan(models={"small": L40S}).write(fleet.folder)
    result = fleet.sweep(work(8), store, gpu="all")
    assert all_is_measured(result, 16)
    check_samples(store, 16)
    counts = Counter((row["gpu"], row["h"]) for row in facts(store) if row["d_ff"] == 64)
    assert counts == {(model, h): 1 for model in (H200, L40S) for h in range(1, 9)}
    ranks = [(row["gpu"], row["h"], row["d_ff"]) for row in rank(store).table.to_pylist() if row["rank"]]
    assert sorted(ranks) == [(gpu, h, d_ff) for gpu in (H200, L40S) for h in range(1, 9) for d_ff in (64, 128)]


def test_a_model_whose_only_node_dies_does_not_hold_the_others(fleet: Fleet, store: RunStore) -> None:
    fleet.add("small", 1)

    def kill() -> None:
        wait_for(lambda: list(store.path.glob("shards/*l40s/*/*.parquet")))
        fleet.remove("small")

    Plan(models={"small": L40S}, seconds=0.3).write(fleet.folder)
    with meanwhile(kill):
        result = fleet.sweep(work(10), store, gpu="all", start_timeout_s=4.0)
    assert result.exit_code == 1
    assert result.problem.startswith("no device is left for NVIDIA L40S, which lacks ")
    assert {row["h"] for row in facts(store) if row["gpu"] == H200} == set(range(1, 11))
    # The node comes back, and the run goes on where it was.
    measured = len(store.shard_paths())
    fleet.add("small", 1)
    again = fleet.sweep(work(10), store, gpu="all", former=former(store, "split", 1))
    assert all_is_measured(again, 20 - measured)
    check_samples(store, 20)


def test_devices_are_told_apart_by_uuid_also_mig_slices_and_remapped_ones(fleet: Fleet, store: RunStore) -> None:
    fleet.add("slices", 2, CUDA_VISIBLE_DEVICES="MIG-aaaa-1,MIG-bbbb-2")
    fleet.add("remapped", 2, CUDA_VISIBLE_DEVICES="5,3")
    Plan(seconds=0.2).write(fleet.folder)
    result = fleet.sweep(work(6), store, placement="replicate")
    assert all_is_measured(result, 36)
    uuids = {"GPU-head-0", "GPU-head-1", "MIG-aaaa-1", "MIG-bbbb-2", "GPU-remapped-5", "GPU-remapped-3"}
    assert {device.uuid for device in result.devices} == uuids
    assert Counter(row["uuid"] for row in facts(store)) == dict.fromkeys(uuids, 12)


def test_one_gpu_that_two_workers_report_is_used_once_and_named(fleet: Fleet, store: RunStore) -> None:
    fleet.add("twice", 1)
    Plan(uuids={"twice": "GPU-head-0"}, seconds=0.2).write(fleet.folder)
    assert all_is_measured(fleet.sweep(work(20), store), 20)
    check_samples(store, 20)
    assert len([note for note in fleet.notes if "GPU-head-0" in note and "is one GPU counted twice?" in note]) == 1


def test_a_replicated_run_resumes_where_one_device_is_incomplete(fleet: Fleet, store: RunStore) -> None:
    assert all_is_measured(fleet.sweep(work(6), store, placement="replicate"), 12)
    lost = [path for path in store.shard_paths() if "GPU-head-1" in str(path)][:4]
    for path in lost:
        path.unlink()
    kept = {path: path.stat().st_mtime_ns for path in store.shard_paths()}
    again = fleet.sweep(work(6), store, placement="replicate", former=former(store, "replicate", 1))
    assert all_is_measured(again, 4)
    check_samples(store, 12)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert Counter(row["uuid"] for row in facts(store)) == {"GPU-head-0": 12, "GPU-head-1": 12}


def test_a_device_that_becomes_slow_is_named_and_its_families_are_measured_elsewhere(
    fleet: Fleet, store: RunStore
) -> None:
    fleet.add("far", 2)
    Plan(slow={"GPU-far-0": 8}).write(fleet.folder)
    result = fleet.sweep(work(80), store, canary_every=4)
    assert (result.unfinished, result.failures, result.exit_code) == (0, (), 0)
    assert [note.partition(";")[0] for note in fleet.notes if note.startswith("suspect: ")] == [
        "suspect: NVIDIA H200 GPU-far-0 on far: took 30.0% longer than the median of 4 (NVIDIA H200) in canary 3 of 3"
    ]
    rows = [row for row in facts(store) if row["d_ff"] == 64 and row["role"] != "canary"]
    on_slow = [row for row in rows if row["uuid"] == "GPU-far-0"]
    assert Counter(row["canary"] for row in on_slow) == {1: 4, 2: 4}
    suspect = {row["h"] for row in on_slow if row["canary"] == 2}
    again = {row["h"] for row in rows if row["attempt"] == 2}
    assert again == suspect
    assert {row["uuid"] for row in rows if row["attempt"] == 2} <= {"GPU-head-0", "GPU-head-1", "GPU-far-1"}
    assert {row["h"] for row in rows} == set(range(1, 81))
    assert len(rows) == 84


def test_a_storm_of_failures_stops_the_sweep_and_it_can_go_on(fleet: Fleet, store: RunStore) -> None:
    Plan(fails=list(range(1, 41))).write(fleet.folder)
    result = fleet.sweep(work(40), store, max_failure_share=0.3)
    assert result.exit_code == 1
    assert result.problem.startswith("stopped: ")
    assert "wrong_result), more than run.max_failure_share=0.3; the last one: mm-" in result.problem
    assert 10 <= result.bundles <= 14
    assert result.unfinished == 40 - result.bundles
    Plan().write(fleet.folder)
    before = former(store, "split", 1, frozenset({"wrong_result"}))
    again = fleet.sweep(work(40), store, former=before, max_failure_share=0.3)
    assert all_is_measured(again, 40)
    ranked = {(row["h"], row["d_ff"]) for row in rank(store).table.to_pylist() if row["status"] == "ok"}
    assert ranked == {(h, d_ff) for h in range(1, 41) for d_ff in (64, 128)}


def test_nodes_with_other_versions_are_named_and_measure_all_the_same(fleet: Fleet, store: RunStore) -> None:
    fleet.add("old", 2)
    Plan(torch={"old": "2.6"}, seconds=0.2).write(fleet.folder)
    assert all_is_measured(fleet.sweep(work(24), store), 24)
    told = [note for note in fleet.notes if note.startswith("versions differ between ")]
    assert len(told) == 1
    assert "torch 2.6 and 2.11" in told[0] or "torch 2.11 and 2.6" in told[0]
    by_version = {row["torch"] for row in facts(store)}
    assert by_version == {"2.6", "2.11"}
    assert all_is_measured(fleet.sweep(work(25), store, former=former(store, "split", 1)), 1)
