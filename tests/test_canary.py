"""The canary: a Bundle that any device measures in a moment, and what is read of it."""

import math
from pathlib import Path

import pytest

from orchestrator.canary import canary_bundle, canary_seconds, canary_timing, is_canary
from orchestrator.roles import ROLES
from orchestrator.shard import fact_rows
from orchestrator.store import RunStore, shard_table
from tasks.cpu import CpuDevice
from tasks.gemm import ELEMENT_BYTES
from tasks.measure import measure_bundle
from tasks.settings import Timing
from tasks.support import Architecture, unsupported
from tests.builders import as_bundle, measurement, per_flop, up_family


@pytest.mark.parametrize("kind", ["cuda", "rocm", "cpu"])
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "tf32", "fp8", "fp8_rowwise", "int8"])
def test_a_canary_is_one_candidate_of_three_unlike_gemms(kind: str, dtype: str) -> None:
    bundle = canary_bundle(dtype, kind)
    assert is_canary(bundle.bundle_id)
    assert [len(family.candidates) for family in bundle.families] == [1]
    compute, middle, memory = bundle.gemms
    large, medium, small = (gemm.flops / gemm.bytes for gemm in (compute, middle, memory))
    assert min(large, medium) > 10 * small
    assert large > medium or dtype == "int8"  # whose C of four bytes an element weighs more


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_a_gpu_can_multiply_the_canary_of_a_dtype_that_it_has(dtype: str) -> None:
    for on in (
        Architecture(kind="cuda", gpu="H200", capability=(9, 0)),
        Architecture(kind="rocm", gpu="MI300X", gfx="gfx942"),
        Architecture(kind="cpu", gpu="CPU"),
    ):
        if dtype != "tf32" or on.kind != "cpu":
            assert [unsupported(gemm, on) for gemm in canary_bundle(dtype, on.kind).gemms] == [None] * 3


def test_a_canary_keeps_its_shapes() -> None:
    assert [gemm.gemm_id for gemm in canary_bundle("bf16").gemms] == [
        "mm-1x8192x8192x2048-bf16-nt",
        "mm-1x2048x2048x4096-bf16-nt",
        "mm-1x16x8192x8192-bf16-nt",
    ]
    assert canary_bundle("int8").gemms[2].gemm_id == "int_mm-1x32x8192x8192-int8-nt"
    assert canary_bundle("fp8").gemms[2].gemm_id == "scaled_mm-1x16x8192x8192-fp8-nt"


def test_no_role_of_a_sweep_makes_a_canary() -> None:
    assert not any(is_canary(f"{role}-h1") for role in ROLES)


def test_on_an_h200_it_takes_well_under_a_second() -> None:
    compute, middle, memory = canary_bundle("bf16").gemms
    assert 200e-6 < compute.flops / 650e12 < 600e-6
    assert middle.flops / 600e12 < 100e-6
    assert memory.bytes / 4.8e12 < 100e-6
    timing = canary_timing(Timing())
    # A round has a visit to each, of visit_us and of as much again where calls are rounded up or lead.
    assert timing.max_rounds * 3 * 2 * timing.visit_us * 1e-6 < 1.0


def test_its_settings_follow_the_sweep_only_in_how_the_first_one_loads_the_device() -> None:
    sweep = Timing(l2="hot", min_rounds=50, max_rounds=500, visit_us=100.0, redo_throttled=2)
    timing = canary_timing(sweep)
    assert (timing.min_rounds, timing.max_rounds, timing.redo_throttled) == (10, 10, 0)
    assert (timing.protocol, timing.l2, timing.power) == ("interleaved", "rotate", "sustained")
    assert (timing.soak_min_s, timing.soak_max_s) == (sweep.soak_min_s, sweep.soak_max_s)
    for unloaded in (Timing(power="burst"), Timing(protocol="seed"), Timing(protocol="sequential")):
        assert canary_timing(unloaded).soak_max_s == 0.0
        assert canary_timing(unloaded).protocol == "interleaved"


def test_a_real_device_measures_each_gemm_in_every_round() -> None:
    bundle, timing = canary_bundle("fp32", "cpu"), canary_timing(Timing(soak_min_s=0.0, soak_max_s=0.0))
    measured = measure_bundle(CpuDevice(), bundle, timing)
    rounds = {gemm.gemm_id: {s.round for s in measured.samples if s.gemm_id == gemm.gemm_id} for gemm in bundle.gemms}
    assert rounds == {gemm.gemm_id: set(range(10)) for gemm in bundle.gemms}
    samples = [(s.gemm_id, s.seconds) for s in measured.samples]
    seconds = canary_seconds(samples, [gemm.gemm_id for gemm in bundle.gemms])
    assert seconds is not None
    assert 0 < seconds < 1


def test_its_seconds_are_the_geometric_mean_of_the_medians() -> None:
    samples = [("a", 1.0), ("a", 100.0), ("a", 2.0), ("b", 8.0)]
    assert canary_seconds(samples, ["a", "b"]) == pytest.approx(math.sqrt(2.0 * 8.0))


def test_one_that_lacks_a_gemm_says_nothing() -> None:
    assert canary_seconds([("a", 1.0)], ["a", "b"]) is None
    assert canary_seconds([], []) is None


def test_its_shard_is_like_any_other_and_has_no_parameters() -> None:
    bundle = canary_bundle("fp16")
    rows = fact_rows(
        bundle, measurement(bundle, per_flop({})), Timing(), attempt=3, code_version="1", plan_hash="a", canary=2
    )
    assert [(row["bundle_id"], row["family_id"], row["attempt"], row["canary"]) for row in rows] == [
        (bundle.bundle_id, bundle.bundle_id, 3, 2)
    ] * 3
    assert [row["mlp_params"] for row in rows] == [None] * 3


def test_a_shard_says_how_many_canaries_came_before_and_an_older_one_says_nothing(tmp_path: Path) -> None:
    store, bundle = RunStore.create(tmp_path, "run", {}), as_bundle(up_family([128]))
    measured = measurement(bundle, per_flop({}), rounds=3)
    for attempt, canary in ((0, 3), (1, None)):
        table = shard_table(bundle, measured, Timing(), attempt=attempt, code_version="1", plan_hash="a", canary=canary)
        store.write_shard(table if canary else table.drop_columns("canary"))
    rows = store.reader().facts(["attempt", "canary"]).table.to_pylist()
    assert rows == [{"attempt": 0, "canary": 3}, {"attempt": 1, "canary": None}]
