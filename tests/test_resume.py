"""What a run's Shards say of what is left to do."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.canary import canary_bundle
from orchestrator.resume import Former, differences, former
from orchestrator.store import RunStore, shard_table
from tasks.family import Bundle
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, per_flop, up_family

SMALL = as_bundle(up_family([64, 128], h=64))
LARGE = as_bundle(up_family([64, 128], h=128))
OTHER = replace(DEVICE, uuid="GPU-1")
L40S = replace(DEVICE, uuid="GPU-2", gpu="NVIDIA L40S", torch="2.12")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "it", {})


def write(store: RunStore, bundle: Bundle, *, attempt: int = 1, rounds: int = 20, **facts: Any) -> Path:
    measured = measurement(bundle, per_flop({64: 1.0, 128: 2.0}), rounds=rounds, **facts)
    return store.write_shard(shard_table(bundle, measured, Timing(), attempt=attempt, code_version="1", plan_hash="x"))


def ended(found: Former) -> dict[str, set[str]]:
    return {lane: set(bundles) for lane, bundles in found.earlier.ended.items()}


def plan(*bundles: Bundle) -> dict[str, frozenset[str]]:
    return {bundle.bundle_id: frozenset(gemm.gemm_id for gemm in bundle.gemms) for bundle in bundles}


def failing(bundle: Bundle, status: str) -> dict[str, Any]:
    return {"status": {bundle.gemms[0].gemm_id: (status, "made up")}}


def test_a_run_without_shards_leaves_everything_to_do(store: RunStore) -> None:
    assert former(store, "split", 10) == Former()


def test_what_was_measured_has_ended_for_its_model_or_for_its_device(store: RunStore) -> None:
    write(store, SMALL)
    write(store, LARGE, device=OTHER)
    write(store, SMALL, device=L40S)
    split = former(store, "split", 10)
    assert ended(split) == {
        "NVIDIA H200": {SMALL.bundle_id, LARGE.bundle_id},
        "NVIDIA L40S": {SMALL.bundle_id},
    }
    assert split.bundles == 3
    replicate = former(store, "replicate", 10)
    assert ended(replicate) == {"GPU-0": {SMALL.bundle_id}, "GPU-1": {LARGE.bundle_id}, "GPU-2": {SMALL.bundle_id}}


@pytest.mark.parametrize(("rounds", "enough"), [(9, False), (10, True)])
def test_an_interrupted_family_has_ended_if_it_has_the_least_rounds(store: RunStore, rounds: int, enough: bool) -> None:
    write(store, SMALL, rounds=rounds, stop_reason="interrupted")
    found = former(store, "split", 10)
    assert ended(found) == {"NVIDIA H200": {SMALL.bundle_id} if enough else set()}
    assert found.bundles == enough
    assert found.earlier.attempts == {SMALL.bundle_id: 1}


def test_the_last_attempt_counts(store: RunStore) -> None:
    write(store, SMALL, rounds=3, stop_reason="interrupted")
    write(store, SMALL, attempt=2)
    write(store, LARGE)
    write(store, LARGE, attempt=2, rounds=3, stop_reason="interrupted", device=OTHER)
    found = former(store, "split", 10)
    assert ended(found) == {"NVIDIA H200": {SMALL.bundle_id}}
    assert found.earlier.attempts == {SMALL.bundle_id: 2, LARGE.bundle_id: 2}


def test_failures_have_ended_unless_they_are_asked_for_by_status(store: RunStore) -> None:
    write(store, SMALL, **failing(SMALL, "oom"))
    write(store, LARGE, **failing(LARGE, "timeout"))
    both = {SMALL.bundle_id, LARGE.bundle_id}
    plain = former(store, "split", 10)
    assert (ended(plain)["NVIDIA H200"], plain.failures) == (both, 2)
    some = former(store, "split", 10, frozenset({"oom", "illegal_access"}))
    assert (ended(some)["NVIDIA H200"], some.failures) == ({LARGE.bundle_id}, 1)


def test_what_was_skipped_is_no_failure(store: RunStore) -> None:
    write(store, SMALL, **failing(SMALL, "skipped"))
    found = former(store, "split", 10, frozenset({"oom"}))
    assert (found.bundles, found.failures) == (1, 0)


@pytest.mark.parametrize("column", ["seconds", "status", "driver"])
def test_a_corrupt_shard_is_measured_again_as_the_next_attempt(store: RunStore, column: str) -> None:
    import pyarrow.parquet as pq

    path = write(store, SMALL)
    write(store, LARGE)
    group = pq.ParquetFile(path).metadata.row_group(1 if column == "seconds" else 0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    data = bytearray(path.read_bytes())
    data[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size - 2] ^= 1
    path.write_bytes(data)
    found = former(store, "split", 10)
    assert ended(found) == {"NVIDIA H200": {LARGE.bundle_id}}
    assert found.earlier.attempts == {SMALL.bundle_id: 1, LARGE.bundle_id: 1}  # the corrupt one's name is taken
    assert [str(path) in problem for problem in found.problems] == [True]


def test_a_device_must_have_the_versions_of_its_model_in_the_run(store: RunStore) -> None:
    write(store, SMALL)
    write(store, SMALL, device=L40S)
    found = former(store, "split", 10)
    assert found.difference(DEVICE) == ""
    assert found.difference(replace(OTHER, host="node9")) == ""
    assert found.difference(replace(L40S, torch="2.11", driver="1", host="n")) == (
        "NVIDIA L40S on n: driver: 580.159 in the run, 1 now; torch: 2.12 in the run, 2.11 now"
    )
    assert found.difference(replace(DEVICE, gpu="NVIDIA B200", torch="3")) == ""  # a model that the run has not


def test_differences_name_each_value_by_its_key() -> None:
    then = {"space": {"h": 64, "d_ff": {"ratio": "8/3", "step": 4}}, "timing": {"seed": 0}}
    now = {"space": {"h": 64, "d_ff": {"ratio": "8/3", "step": 8}}, "timing": {"seed": 1, "tie_pct": 0.5}}
    assert differences(then, now) == [
        "space.d_ff.step: 4 in the run, 8 now",
        "timing.seed: 0 in the run, 1 now",
        "timing.tie_pct: None in the run, 0.5 now",
    ]
    assert differences(then, then) == []


def test_shards_that_are_not_of_the_plan_count_for_nothing(store: RunStore) -> None:
    write(store, SMALL)
    write(store, LARGE, device=L40S)
    found = former(store, "split", 10, planned=plan(SMALL))
    assert ended(found) == {"NVIDIA H200": {SMALL.bundle_id}}
    assert list(found.environments) == ["NVIDIA H200"]


def test_a_bundle_that_has_got_further_gemms_has_not_ended(store: RunStore) -> None:
    """The same Family with another list of values: the id is the same."""
    write(store, as_bundle(up_family((64, 128))))
    more, fewer = (as_bundle(up_family(values)) for values in ((64, 128, 192), (64,)))
    assert more.bundle_id == fewer.bundle_id
    assert ended(former(store, "split", 10, planned=plan(more))) == {"NVIDIA H200": set()}
    assert ended(former(store, "split", 10, planned=plan(fewer))) == {"NVIDIA H200": {fewer.bundle_id}}


@pytest.mark.parametrize("protocol", ["seed", "sequential"])
def test_an_interrupted_bundle_without_rounds_has_not_ended_whatever_the_least_rounds(
    store: RunStore, protocol: str
) -> None:
    measured = measurement(SMALL, per_flop({64: 1.0, 128: 2.0}), rounds=1, stop_reason="interrupted")
    timing = Timing(protocol=protocol)
    store.write_shard(shard_table(SMALL, measured, timing, attempt=1, code_version="1", plan_hash="x"))
    assert ended(former(store, "split", 1)) == {"NVIDIA H200": set()}


@pytest.mark.parametrize("corrupt", [False, True])
def test_attempts_are_known_by_ids_that_no_file_can_have(store: RunStore, corrupt: bool) -> None:
    """``fwd+bwd`` and a MIG slice's UUID have signs that stand otherwise in the names of files."""
    both = as_bundle(replace(up_family((64, 128)), passes="fwd+bwd"))
    path = write(store, both, device=replace(DEVICE, uuid="MIG-GPU-1/7/0"))
    assert "+" in both.bundle_id
    assert "+" not in path.name
    if corrupt:
        path.write_bytes(b"PAR1 torn")
    assert former(store, "split", 10, planned=plan(both)).earlier.attempts == {both.bundle_id: 1}


def test_canaries_are_counted_by_the_devices_own_uuid(store: RunStore) -> None:
    slice_ = replace(DEVICE, uuid="MIG-GPU-1/7/0")
    bundle = canary_bundle("fp16")
    measured = measurement(bundle, lambda gemm, number: 1e-3, device=slice_)
    store.write_shard(shard_table(bundle, measured, Timing(), attempt=3, code_version="1", plan_hash="x"))
    assert former(store, "split", 10).canaries == {"MIG-GPU-1/7/0": 3}


def test_a_pipe_among_the_shards_is_named_and_never_opened(store: RunStore) -> None:
    path = write(store, SMALL).with_name("pipe.1.parquet")
    os.mkfifo(path)
    (problem,) = store.reader().facts().problems
    assert problem == f"{path} is corrupt and was left out: it is no file"
