"""The protocol ``sequential``: one shape after another, 100 timed calls each behind a flush, and once a warm-up."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tasks import bmm, sequential
from tasks.care import Care
from tasks.cpu import CpuDevice
from tasks.device import Device
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm, kind_of
from tasks.measure import measure_bundle
from tasks.pool import Operands
from tasks.records import GemmFacts, Measurement, Progress, Telemetry
from tasks.settings import Timing
from tests.scripted import ScriptedDevice

AT_ONCE = Timing(protocol="sequential", warmup_s=0.0)
WARMED = replace(AT_ONCE, warmup_s=2.0)


def mm(n: int, dtype: str = "fp32", layout: str = "nt") -> Gemm:
    return Gemm(kind=kind_of(dtype), b=1, m=24, n=n, k=48, dtype=dtype, layout=layout)


def bundle(*gemms: Gemm) -> Bundle:
    candidates = tuple(Candidate(value=g.n, parts=(Part(name="up", gemm=g),)) for g in gemms)
    family = Family(role="mlp_up", h=48, tp=1, batch=1, seq=24, dtype=gemms[0].dtype, candidates=candidates)
    return Bundle(families=(family,))


THREE = bundle(mm(64), mm(32), mm(96))


@pytest.fixture
def cpu() -> CpuDevice:
    device = CpuDevice()
    device.cache_bytes = 2**12  # writing a server's cache 150 times takes seconds
    return device


def status(result: Measurement) -> dict[int, tuple[str, str]]:
    return {int(facts.gemm_id.split("x")[2]): (facts.status, facts.message) for facts in result.facts}


def test_every_shape_has_its_100_calls_before_the_next_begins(cpu: CpuDevice) -> None:
    result = measure_bundle(cpu, THREE, AT_ONCE)
    assert [sample.gemm_id for sample in result.samples] == [gemm.gemm_id for gemm in THREE.gemms for _ in range(100)]
    assert [sample.round for sample in result.samples] == [*range(100)] * 3
    assert {(sample.calls, sample.lead_calls) for sample in result.samples if sample.round} == {(1, 0)}
    assert [(s.position, s.lead_calls) for s in result.samples if not s.round] == [(0, 50), (1, 50), (2, 50)]
    assert all(0 < sample.seconds < 1 for sample in result.samples)
    assert [(facts.status, facts.launch) for facts in result.facts] == [("ok", "cpu")] * 3
    assert (result.rounds, result.resolved, result.stop_reason, result.redone) == (1, False, "fixed", 0)
    assert result.measuring_s >= sum(sample.seconds for sample in result.samples)
    assert 0 < result.prepare_s < result.measuring_s + result.prepare_s


def test_each_shape_has_operands_of_its_own_and_a_flush_before_each_of_its_calls(
    cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []
    operands: dict[int, list[Operands]] = {}
    real_call, real_flush = bmm.call, cpu.flush

    def call(gemm: Gemm, given: Operands) -> None:
        log.append("call")
        operands.setdefault(gemm.n, []).append(given)
        real_call(gemm, given)

    def flush() -> None:
        log.append("flush")
        real_flush()

    monkeypatch.setattr(bmm, "call", call)
    monkeypatch.setattr(cpu, "flush", flush)
    measure_bundle(cpu, THREE, AT_ONCE)
    assert log == ["call", *["flush", "call"] * 150] * 3  # the first is checked
    assert [len({id(each) for each in of}) for of in operands.values()] == [1, 1, 1]
    assert len({of[0].a.untyped_storage().data_ptr() for of in operands.values()}) == 3
    assert cpu._scratch is not None
    assert cpu._scratch.numel() > cpu.cache_bytes


@pytest.mark.parametrize(
    ("dtype", "layout"), [("fp32", "nn"), ("fp32", "tn"), ("bf16", "nt"), ("fp8_rowwise", "nt"), ("int8", "nt")]
)
def test_other_element_types_and_layouts_are_measured(cpu: CpuDevice, dtype: str, layout: str) -> None:
    result = measure_bundle(cpu, bundle(mm(64, dtype, layout)), AT_ONCE)
    assert [(facts.status, facts.message) for facts in result.facts] == [("ok", "")]
    assert len(result.samples) == 100


def test_a_batch_is_measured_where_torch_has_one(cpu: CpuDevice) -> None:
    batches = [Gemm(kind="bmm", b=2, m=8, n=n, k=16, dtype="fp32") for n in (32, 64)]
    assert Counter(sample.gemm_id for sample in measure_bundle(cpu, bundle(*batches), AT_ONCE).samples) == {
        gemm.gemm_id: 100 for gemm in batches
    }
    result = measure_bundle(cpu, bundle(Gemm(kind="bmm", b=2, m=8, n=64, k=16, dtype="int8")), AT_ONCE)
    assert status(result)[64][0] == "unsupported"
    assert (result.samples, result.rounds, result.stop_reason) == ((), 0, "nothing")


# The warm-up


def test_a_device_is_warmed_up_once_by_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "LOAD_GPU", 256)
    device, heard = ScriptedDevice(cost=lambda gemm: 0.3 if gemm.n == 256 else 1e-3), list[Progress]()
    first, second = (measure_bundle(device, THREE, WARMED, heard.append) for _ in range(2))
    assert first.soak_s == pytest.approx(2.1)  # seven calls of 0.3 s
    assert (second.soak_s, device.soaked) == (0.0, True)
    assert first.measuring_s == pytest.approx(3 * 150 * 1e-3)
    assert [gemm.n for _, gemm in device.log[:8]] == [256] * 7 + [64]
    assert [progress.state for progress in heard] == ["soak", *["measure"] * 6]


@pytest.mark.parametrize("dtype", ["fp16", "fp8", "int8"])
def test_the_product_that_warms_up_is_a_large_one_of_the_same_type(dtype: str) -> None:
    load = sequential.load("rocm", dtype)
    assert (load.dtype, load.m, load.n, load.k) == (dtype, 8192, 8192, 8192)
    assert sequential.load("cpu", dtype).flops < 1e8


def test_a_device_on_which_the_large_product_does_not_fit_measures_without() -> None:
    device = ScriptedDevice(free=2**20)
    result = measure_bundle(device, THREE, WARMED)
    assert (result.soak_s, device.soaked, len(result.samples)) == (0.0, False, 300)


def test_a_cpu_is_warmed_up_for_as_long_as_it_is_told(cpu: CpuDevice) -> None:
    assert 0.05 <= measure_bundle(cpu, THREE, replace(AT_ONCE, warmup_s=0.05)).soak_s < 1
    assert measure_bundle(CpuDevice(), bundle(mm(8, "tf32")), WARMED).soak_s < 1  # which a CPU does not have


def test_a_warm_up_ends_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequential, "LOAD_GPU", 256)
    device = ScriptedDevice(cost=lambda gemm: 0.3)
    result = measure_bundle(device, THREE, WARMED, None, lambda: bool(device.log))
    assert result.soak_s == pytest.approx(0.3)
    assert not device.soaked
    assert status(result) == dict.fromkeys((64, 32, 96), ("skipped", "interrupted"))


# What goes wrong


def test_what_was_measured_before_a_stop_is_kept(cpu: CpuDevice) -> None:
    heard: list[Progress] = []
    result = measure_bundle(cpu, THREE, AT_ONCE, heard.append, lambda: len(heard) == 2)
    assert status(result) == {64: ("ok", ""), 32: ("ok", ""), 96: ("skipped", "interrupted")}
    assert (len(result.samples), result.rounds, result.stop_reason) == (200, 1, "interrupted")


def test_what_does_not_fit_is_skipped_and_the_rest_is_measured(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu, "free_bytes", lambda: mm(64).bytes)
    assert status(measure_bundle(cpu, THREE, AT_ONCE)) == {
        64: ("ok", ""),
        32: ("ok", ""),
        96: ("skipped", "needs 0.00 GiB, 0.00 free"),
    }


def test_a_wrong_result_is_found(cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    right = bmm.call

    def spoiled(gemm: Gemm, operands: Operands) -> None:
        right(gemm, operands)
        if gemm.n == 32:
            operands.c[-1, -1] += 100

    monkeypatch.setattr(bmm, "call", spoiled)
    result = measure_bundle(cpu, THREE, AT_ONCE)
    assert {n: found for n, (found, _) in status(result).items()} == {64: "ok", 32: "wrong_result", 96: "ok"}


def out_of_memory(monkeypatch: pytest.MonkeyPatch, *, n: int) -> None:
    right = bmm.call

    def full(gemm: Gemm, operands: Operands) -> None:
        if gemm.n == n:
            raise torch.OutOfMemoryError("tried to allocate 60 GiB")
        right(gemm, operands)

    monkeypatch.setattr(bmm, "call", full)


def test_memory_that_runs_out_costs_one_shape_or_where_it_is_tried_again_the_attempt(
    cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    out_of_memory(monkeypatch, n=32)
    assert status(measure_bundle(cpu, THREE, AT_ONCE))[32] == ("oom", "tried to allocate 60 GiB")
    with pytest.raises(torch.OutOfMemoryError, match="60 GiB"):
        measure_bundle(cpu, THREE, AT_ONCE, care=Care(last=False))


def test_what_an_operator_refuses_is_unsupported_in_its_own_words(
    cpu: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(gemm: Gemm, operands: Operands) -> None:
        raise RuntimeError("expected a multiple of 16\nand more")

    monkeypatch.setattr(bmm, "call", refuse)
    assert status(measure_bundle(cpu, THREE, AT_ONCE))[64] == ("unsupported", "expected a multiple of 16")


def test_with_care_each_shape_is_named_before_it_runs_and_those_given_up_do_not_run(cpu: CpuDevice) -> None:
    heard: list[Progress] = []
    lost = GemmFacts(gemm_id=mm(32).gemm_id, status="worker_died", message="signal 11")
    result = measure_bundle(cpu, THREE, AT_ONCE, heard.append, care=Care(one_by_one=True, lost=(lost,)))
    assert status(result)[32] == ("worker_died", "signal 11")
    trying = [progress.trying for progress in heard if progress.state == "try"]
    assert trying == [mm(64).gemm_id, mm(96).gemm_id]
    limited = measure_bundle(cpu, THREE, AT_ONCE, care=Care(limit=mm(64)))
    assert {n: found for n, (found, _) in status(limited).items()} == {64: "skipped", 32: "ok", 96: "skipped"}


def test_what_the_device_did_meanwhile_is_recorded_and_nothing_is_measured_again() -> None:
    hot = Telemetry(throttled=True, reasons=("hw_slowdown",))
    result = measure_bundle(ScriptedDevice(telemetry=[hot]), THREE, AT_ONCE)
    assert (result.telemetry, result.redone, len(result.samples)) == (hot, 0, 300)


@pytest.mark.parametrize("opened", [CpuDevice, ScriptedDevice])
def test_no_pool_of_an_earlier_bundle_stays(opened: Callable[[], Device]) -> None:
    device = opened()
    device.cache_bytes = 2**12
    measure_bundle(device, THREE, Timing(min_rounds=2, max_rounds=2, soak_min_s=0.0, soak_max_s=0.0))
    assert device._pooled_bytes() > 0
    measure_bundle(device, THREE, AT_ONCE)
    assert device._pooled_bytes() == 0
