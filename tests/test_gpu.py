"""The CUDA device on a real GPU: how calls are launched, what they compute, what is told about the device.

Runs where torch sees a GPU: ``python -m pytest -m gpu tests/test_gpu.py``.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tasks import bmm, cuda
from tasks.cuda import SPARE_BYTES, CudaDevice, Events, capture
from tasks.device import Visit, open_device
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import ELEMENT_BYTES, KIND, Gemm, kind_of
from tasks.measure import measure_bundle
from tasks.pool import Operands, padded
from tasks.records import GemmFacts, Measurement
from tasks.settings import BURST_IDLE_S, L2_REUSE, Timing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]

GIB = 2**30
TIMING = Timing(min_rounds=5, max_rounds=5, max_seconds=60, race_pct=1e6, soak_min_s=0.2, soak_max_s=0.5)
PEAK_FLOPS = 5e15
"""More than any GPU's dense fp16 rate: a faster call was not made."""


def mm(m: int, n: int, k: int, dtype: str = "fp16", layout: str = "nt") -> Gemm:
    return Gemm(kind=kind_of(dtype), b=1, m=m, n=n, k=k, dtype=dtype, layout=layout)


DECODE = mm(16, 1376, 4096)
"""Microseconds: a visit has many calls."""
LARGE = Gemm(kind="bmm", b=4, m=8192, n=8192, k=8192, dtype="fp16")
"""4.4 TFLOP: a visit is one call on any GPU."""


def bundle(*gemms: Gemm) -> Bundle:
    candidates = tuple(Candidate(value=i + 1, parts=(Part(name="up", gemm=g),)) for i, g in enumerate(gemms))
    family = Family(role="mlp_up", h=1, tp=1, batch=1, seq=1, dtype=gemms[0].dtype, candidates=candidates)
    return Bundle(families=(family,))


@pytest.fixture(scope="module")
def opened() -> Iterator[CudaDevice]:
    device = open_device("auto")
    assert isinstance(device, CudaDevice)
    yield device
    device.close()


@pytest.fixture
def device(opened: CudaDevice) -> Iterator[CudaDevice]:
    opened.soaked = True
    with opened.session():
        yield opened
    opened.close()


def visit(device: CudaDevice, gemm: Gemm, timing: Timing = TIMING) -> Visit:
    visits, failures = device.prepare([gemm], timing)
    assert failures == []
    return visits[gemm]


def written(device: CudaDevice, pool: str, run: Visit) -> int:
    """Elements of the pool's outputs that one visit writes."""
    outputs = device._pools[pool].outputs
    bmm.poison(Operands(outputs, outputs, outputs))
    seconds = run.enqueue().seconds()
    assert run.gemm.flops / PEAK_FLOPS < seconds < 10
    device.synchronize()
    return outputs.numel() - int(bmm.unwritten(outputs))


def test_the_device_says_who_it_is(opened: CudaDevice) -> None:
    info = opened.info
    facts = torch.cuda.get_device_properties(0)
    assert (info.kind, info.gpu) == ("rocm" if torch.version.hip else "cuda", torch.cuda.get_device_name(0))
    assert (info.memory_bytes, info.sm_count) == (facts.total_memory, facts.multi_processor_count)
    assert info.uuid.startswith(("GPU-", "MIG-"))
    assert info.l2_bytes > 2**20
    assert info.pci_id
    assert info.allow_fp16_reduced_precision_reduction is not None
    assert info.allow_bf16_reduced_precision_reduction is not None


@pytest.mark.skipif(bool(torch.version.hip), reason="NVML knows NVIDIA's GPUs")
def test_nvml_knows_the_device_by_its_uuid(opened: CudaDevice) -> None:
    info = opened.info
    assert info.driver
    assert info.runtime == f"CUDA {torch.version.cuda}"
    assert info.blas
    assert info.blas.startswith("cuBLAS ")
    assert info.power_limit_w is not None
    assert 30 < info.power_limit_w < 3000
    assert info.sm_clock_max_mhz is not None
    assert 500 < info.sm_clock_max_mhz < 5000


@pytest.mark.skipif(bool(torch.version.hip), reason="NVML knows NVIDIA's GPUs")
def test_telemetry_of_a_window_under_load_is_known(device: CudaDevice) -> None:
    run = visit(device, LARGE)
    begin = time.perf_counter()
    with device.window() as window:
        while time.perf_counter() - begin < 2.2:
            run.enqueue().seconds()
    found = window.telemetry
    for value in (found.sm_clock_mean_mhz, found.memory_clock_mean_mhz, found.temperature_max_c, found.power_mean_w):
        assert value is not None
        assert value > 0
    assert found.sm_clock_min_mhz is not None
    assert found.sm_clock_mean_mhz is not None
    assert found.sm_clock_min_mhz <= found.sm_clock_mean_mhz
    assert found.energy_j is not None
    assert found.power_mean_w is not None
    # two ways to the same joules; polls and counter begin and end at different moments
    assert 0.5 < found.energy_j / (found.power_mean_w * 2.2) < 1.5


def test_a_long_call_is_launched_alone_on_the_stream(device: CudaDevice) -> None:
    run = visit(device, LARGE)
    assert (run.launch, run.calls, run.lead_calls) == ("stream", 1, 0)
    assert written(device, "ring", run) == LARGE.b * LARGE.m * LARGE.n


def test_short_calls_are_replayed_from_one_graph_on_windows_of_their_own(device: CudaDevice) -> None:
    run = visit(device, DECODE)
    assert (run.launch, run.lead_calls) == ("graph", 1)
    assert run.calls > 1
    assert (run.calls + 1) * DECODE.input_bytes >= L2_REUSE * device.info.l2_bytes
    # every call has its own output: all are written, by the lead call and by the graph
    assert written(device, "sweep", run) == (run.calls + 1) * DECODE.m * DECODE.n


def last_of_a_graph(device: CudaDevice, run: Visit) -> Operands:
    """Operands of the last call of a graph that has been replayed over outputs that were not written."""
    gemm, pool = run.gemm, device._pools["sweep"]
    assert run.launch == "graph"
    bmm.poison(Operands(pool.inputs, pool.inputs, pool.outputs))
    run.enqueue().seconds()
    device.synchronize()
    last = run.calls  # the lead call is window 0
    inputs = padded(gemm.m * gemm.k) + padded(gemm.k * gemm.n)
    return pool.operands(gemm, last * inputs, last * padded(gemm.m * gemm.n))


def test_a_graph_computes_what_float64_does(device: CudaDevice) -> None:
    assert bmm.check(DECODE, last_of_a_graph(device, visit(device, DECODE)))() is None


EACH = [
    mm(64, 512, 1024, dtype, layout)
    for dtype in ("fp16", "bf16", "fp32", "tf32", "int8")
    for layout in ("nn", "nt", "tn")
] + [mm(m, 512, 1024, dtype) for m in (16, 64) for dtype in ("fp8", "fp8_rowwise")]


def multiplied(device: CudaDevice, gemm: Gemm) -> Visit:
    """The visit to a Gemm; the test is skipped where the device, or the operator when it is tried, will not have it."""
    visits, failures = device.prepare([gemm], TIMING)
    if failures and failures[0].status == "unsupported":
        # what every GPU since Hopper can do must not hide behind that
        assert gemm.dtype in ("fp8", "fp8_rowwise", "bf16", "tf32") or gemm.layout != "nt"
        assert torch.version.hip or torch.cuda.get_device_capability() < (9, 0) or gemm.layout != "nt"
        pytest.skip(failures[0].message)
    assert failures == []
    return visits[gemm]


@pytest.mark.parametrize("gemm", EACH, ids=lambda gemm: gemm.gemm_id)
def test_every_dtype_and_layout_is_captured_and_computes_what_float64_does(device: CudaDevice, gemm: Gemm) -> None:
    run = multiplied(device, gemm)
    operands = last_of_a_graph(device, run)
    assert bmm.check(gemm, operands)() is None
    assert gemm.flops / PEAK_FLOPS < run.enqueue().seconds() < 10
    # and the check can fail: here by one corner
    operands.c[-1, -1] = 1 if gemm.dtype == "int8" and operands.c[-1, -1] != 1 else 1000
    assert "relative error" in (bmm.check(gemm, operands)() or "")


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8_rowwise", "int8"])
def test_a_call_and_a_visit_leave_no_memory_behind(device: CudaDevice, dtype: str) -> None:
    run = multiplied(device, mm(64, 512, 1024, dtype))
    run.enqueue().seconds()
    before = torch.cuda.memory_allocated()
    for _ in range(3):
        run.enqueue().seconds()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise"])
def test_scales_are_used_on_the_device(device: CudaDevice, dtype: str) -> None:
    gemm = mm(64, 512, 1024, dtype)
    operands = last_of_a_graph(device, multiplied(device, gemm))
    assert operands.scales is not None
    for scale in operands.scales:
        kept = scale.clone()
        scale.fill_(1.0)
        assert "relative error" in (bmm.check(gemm, operands)() or "")
        scale.copy_(kept)
    assert bmm.check(gemm, operands)() is None


def test_what_an_operator_refuses_leaves_the_device_well(device: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rules that are known beforehand are put aside, so that torch itself has to refuse."""
    monkeypatch.setattr("tasks.device.unsupported", lambda gemm, on: None)
    odd = mm(8, 512, 1024, "int8")
    visits, (failure,) = device.prepare([odd, mm(64, 512, 1024, "int8")], TIMING)
    assert (failure.gemm_id, failure.status) == (odd.gemm_id, "unsupported")
    assert failure.message == "self.size(0) needs to be greater than 16, but got 8"
    assert [gemm.m for gemm in visits] == [64]
    for refused in (mm(64, 520, 1024, "fp8"), mm(64, 512, 1000, "fp8_rowwise")):
        visits, (failure,) = device.prepare([refused], TIMING)
        assert (visits, failure.status) == ({}, "unsupported")
        assert "\n" not in failure.message
    assert visit(device, DECODE).launch == "graph"


def test_a_batch_in_fp8_is_unsupported(device: CudaDevice) -> None:
    batch = Gemm(kind="bmm", b=3, m=64, n=64, k=64, dtype="fp8", layout="nt")
    visits, (failure,) = device.prepare([batch], TIMING)
    assert (visits, failure.status) == ({}, "unsupported")
    assert failure.message == "torch has no batched product in fp8: torch._scaled_mm takes two matrices"


def test_calls_that_cannot_be_captured_queue_behind_a_delay(
    device: CudaDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "capture", lambda work: None)
    run = visit(device, DECODE)
    assert (run.launch, run.lead_calls) == ("queued", 1)
    assert written(device, "sweep", run) == (run.calls + 1) * DECODE.m * DECODE.n


def test_a_capture_that_breaks_leaves_the_stream_usable(device: CudaDevice) -> None:
    assert capture(torch.cuda.synchronize) is None
    made = torch.ones(8, device="cuda") + 1
    assert made.sum().item() == 16
    assert visit(device, DECODE).launch == "graph"
    device.close()
    assert torch.cuda.memory_reserved() < 2**28  # and memory can still be given back


def test_large_outputs_of_small_inputs_take_little_memory(device: CudaDevice) -> None:
    """A window of outputs for each call, of which the inputs ask for hundreds, would take more than any GPU has."""
    wgrad = mm(16128, 8192, 4, "bf16", "tn")
    run = visit(device, wgrad)
    pool = device._pools["sweep"]
    assert (run.calls + run.lead_calls) * wgrad.output_bytes > 32 * GIB
    assert pool.outputs.numel() * pool.outputs.element_size() <= L2_REUSE * device.cache_bytes + wgrad.output_bytes
    assert run.launch == "graph"
    assert written(device, "sweep", run) == wgrad.m * wgrad.n


def test_hot_calls_share_one_window(device: CudaDevice) -> None:
    run = visit(device, DECODE, replace(TIMING, l2="hot"))
    assert (run.launch, run.lead_calls) == ("graph", 1)
    assert written(device, "sweep", run) == DECODE.m * DECODE.n


def test_a_flushed_call_is_one_after_the_cache_was_overwritten(device: CudaDevice) -> None:
    run = visit(device, DECODE, replace(TIMING, l2="flush"))
    assert (run.launch, run.calls, run.lead_calls) == ("stream", 1, 0)
    assert device._scratch is not None
    assert device._scratch.numel() == L2_REUSE * device.info.l2_bytes
    device._scratch.fill_(1)
    assert written(device, "ring", run) == DECODE.m * DECODE.n
    assert not device._scratch.any()


def test_very_small_gemms_are_flushed_because_they_cannot_outrun_the_cache(device: CudaDevice) -> None:
    tiny = mm(1, 128, 128)
    run = visit(device, tiny)
    assert device._scratch is not None
    device._scratch.fill_(1)
    assert written(device, "sweep", run) == (run.calls + run.lead_calls) * 128
    assert not device._scratch.any()


@pytest.mark.parametrize("change", [{"l2": "flush"}, {"power": "burst"}, {"visit_us": 1.0}], ids=str)
def test_a_call_is_launched_before_the_device_comes_to_it(device: CudaDevice, change: dict[str, Any]) -> None:
    """Otherwise a call of microseconds is timed with its launch; a host that is held up may miss a turn."""
    run = visit(device, DECODE, replace(TIMING, **change))
    assert run.calls == 1 or change == {"power": "burst"}
    waiting = 0
    for _ in range(20):
        device.synchronize()
        pending = run.enqueue()
        assert isinstance(pending, Events)
        waiting += not pending._start.query()
    assert waiting >= 18


def test_burst_idles_before_each_visit_and_does_not_soak(opened: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    opened.soaked = False
    monkeypatch.setattr("tasks.cuda.time.sleep", slept.append)
    result = measure_bundle(opened, bundle(DECODE, LARGE), replace(TIMING, power="burst"))
    assert slept == [BURST_IDLE_S] * 2 * 5
    assert (opened.soaked, result.rounds) == (False, 5)
    opened.close()


def ok(result: Measurement, *gemms: Gemm) -> None:
    assert {facts.gemm_id: facts.status for facts in result.facts} == {gemm.gemm_id: "ok" for gemm in gemms}
    for gemm in gemms:
        seconds = [s.seconds for s in result.samples if s.gemm_id == gemm.gemm_id]
        assert len(seconds) == result.rounds
        assert all(gemm.flops / PEAK_FLOPS < each < 10 for each in seconds)


@pytest.mark.parametrize("l2", ["rotate", "hot", "flush"])
def test_a_bundle_is_measured_round_by_round(opened: CudaDevice, l2: str) -> None:
    gemms = [DECODE, mm(16, 1368, 4096), mm(2048, 1376, 4096), mm(8192, 22016, 4096)]
    result = measure_bundle(opened, bundle(*gemms), replace(TIMING, l2=l2))
    ok(result, *gemms)
    assert (result.rounds, len(result.samples)) == (5, 20)
    assert result.device == opened.info
    launch = {facts.gemm_id: facts.launch for facts in result.facts}
    assert launch[DECODE.gemm_id] == ("stream" if l2 == "flush" else "graph")
    opened.close()


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "tf32", "fp8", "fp8_rowwise", "int8"])
def test_every_dtype_is_measured(opened: CudaDevice, dtype: str) -> None:
    gemms = [mm(64, 512, 1024, dtype), mm(8192, 4096, 4096, dtype)]
    if dtype not in KIND:
        gemms = [mm(64, 512, 1000, dtype), Gemm(kind="bmm", b=3, m=256, n=256, k=700, dtype=dtype)]
    if reason := opened.unsupported(gemms[0]):
        pytest.skip(reason)
    ok(measure_bundle(opened, bundle(*gemms), TIMING), *gemms)
    assert torch.get_float32_matmul_precision() == ("high" if dtype == "tf32" else "highest")
    opened.close()


def test_the_seeds_protocol_has_one_sample_a_shape(opened: CudaDevice) -> None:
    gemms = [Gemm(kind="bmm", b=4, m=512, n=512, k=k, dtype="fp16") for k in (1360, 1364, 1368)]
    result = measure_bundle(opened, bundle(*gemms), Timing(protocol="seed"))
    assert [(s.gemm_id, s.calls, s.lead_calls) for s in result.samples] == [(g.gemm_id, 100, 50) for g in gemms]
    assert {(facts.status, facts.launch) for facts in result.facts} == {("ok", "stream")}
    ok(result, *gemms)
    assert result.stop_reason == "fixed"


@pytest.mark.parametrize("dtype", ["fp16", "tf32", "fp8"])
def test_one_after_another_each_shape_has_100_samples_with_a_cold_cache(opened: CudaDevice, dtype: str) -> None:
    gemms = (
        [DECODE, mm(4096, 4096, 4096)] if dtype == "fp16" else [mm(64, 512, 1024, dtype), mm(8192, 4096, 4096, dtype)]
    )
    if reason := opened.unsupported(gemms[0]):
        pytest.skip(reason)
    opened.soaked = False
    result = measure_bundle(opened, bundle(*gemms), Timing(protocol="sequential", warmup_s=0.5))
    assert {facts.gemm_id: (facts.status, facts.launch) for facts in result.facts} == {
        gemm.gemm_id: ("ok", "stream") for gemm in gemms
    }
    assert [s.gemm_id for s in result.samples] == [gemm.gemm_id for gemm in gemms for _ in range(100)]
    assert 0.5 <= result.soak_s < 1.5
    for gemm in gemms:
        seconds = [s.seconds for s in result.samples if s.gemm_id == gemm.gemm_id]
        assert gemm.flops / PEAK_FLOPS < min(seconds)
        assert max(sorted(seconds)[:90]) < 2 * min(seconds)  # no launch is in them
    opened.close()


def test_a_gemm_larger_than_the_device_is_skipped_and_the_others_are_measured(opened: CudaDevice) -> None:
    side = 2 ** ((opened.info.memory_bytes // 2).bit_length() // 2)
    huge = mm(2 * side, 2 * side, 2 * side)
    result = measure_bundle(opened, bundle(DECODE, huge), TIMING)
    status = {facts.gemm_id: facts for facts in result.facts}
    assert status[huge.gemm_id].status == "skipped"
    needed = (padded(2 * huge.m * huge.k) + huge.m * huge.n) * 2 / GIB
    assert status[huge.gemm_id].message.startswith(f"needs {needed:.2f} GiB, ")
    assert status[DECODE.gemm_id].status == "ok"
    opened.close()


def test_a_wrong_result_is_found_on_the_device(opened: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[[Gemm, Operands], None] = bmm.call

    def spoiled(gemm: Gemm, operands: Operands) -> None:
        right(gemm, operands)
        if gemm == DECODE:
            operands.c[0, 0] = float("nan")

    monkeypatch.setattr(bmm, "call", spoiled)
    other = mm(16, 1368, 4096)
    result = measure_bundle(opened, bundle(DECODE, other), TIMING)
    message = f"1 of {DECODE.m * DECODE.n} elements of C are NaN"
    assert GemmFacts(gemm_id=DECODE.gemm_id, status="wrong_result", message=message) in result.facts
    assert {sample.gemm_id for sample in result.samples} == {other.gemm_id}
    opened.close()


def test_an_old_gpu_refuses_what_it_cannot_multiply(opened: CudaDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (7, 0))
    reasons = {dtype: opened.unsupported(mm(32, 32, 32, dtype)) for dtype in ELEMENT_BYTES}
    if torch.version.hip:
        assert reasons["bf16"] is None
        return
    assert reasons["bf16"] == f"bf16 needs compute capability 8.0, {opened.info.gpu} has 7.0"
    assert reasons["fp8"] == f"fp8 needs compute capability 8.9, {opened.info.gpu} has 7.0"
    assert {dtype for dtype, reason in reasons.items() if reason is None} == {"fp16", "fp32", "int8"}


def test_memory_of_the_pools_counts_as_free_and_is_given_back(opened: CudaDevice) -> None:
    opened.close()
    before, allocated = opened.free_bytes(), torch.cuda.memory_allocated()
    assert 0 < before <= opened.info.memory_bytes - SPARE_BYTES
    measure_bundle(opened, bundle(DECODE, LARGE), TIMING)
    assert torch.cuda.memory_allocated() - allocated >= opened._pooled_bytes() > LARGE.bytes
    assert abs(opened.free_bytes() - before) < GIB  # less what the library and the graphs keep
    opened.close()
    assert opened._pooled_bytes() == 0
    assert torch.cuda.memory_allocated() - allocated < 2**26  # a cuBLAS workspace may stay
    assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() < 2**27


def test_a_soak_ends(device: CudaDevice) -> None:
    run, begin = visit(device, LARGE), device.clock()
    device.soak(run, replace(TIMING, soak_min_s=0.3, soak_max_s=0.6), begin)
    assert device.clock() - begin >= 0.3


def test_a_worker_sees_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(RuntimeError, match="a worker sees one GPU, this one sees 2"):
        CudaDevice()
