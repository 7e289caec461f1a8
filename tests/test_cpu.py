"""The CPU as a device: it really multiplies, and its figures are of the right kind."""

import os
from collections import Counter

import pytest
import torch

from tasks import bmm
from tasks.cpu import CpuDevice, CpuVisit
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import LAYOUTS, Gemm, kind_of
from tasks.measure import measure_bundle
from tasks.pool import OperandPool, Operands, Ring, ring_elements
from tasks.records import DeviceInfo
from tasks.settings import BURST_IDLE_S, Timing

GEMM = Gemm(kind="mm", b=1, m=8, n=16, k=32, dtype="fp32", layout="nt")


@pytest.fixture(scope="module")
def device() -> CpuDevice:
    return CpuDevice()


@pytest.fixture(scope="module")
def small() -> CpuDevice:
    """The same with operands for a cache of 4 MiB: a server's has hundreds, and to fill those takes a second each."""
    made = CpuDevice()
    made.cache_bytes = 4 << 20
    return made


def ring(hot: bool = False) -> Ring:
    inputs, outputs = ring_elements([GEMM], 50_000)
    return Ring(OperandPool(torch.device("cpu"), "fp32", inputs=inputs, outputs=outputs, seed=0), hot=hot)


def test_it_says_who_it_is(device: CpuDevice) -> None:
    info = device.info
    assert isinstance(info, DeviceInfo)
    assert (info.kind, info.torch) == ("cpu", torch.__version__)
    assert info.gpu
    assert info.uuid == f"CPU-{info.host}"
    assert info.l2_bytes >= 2**18
    assert info.memory_bytes > 2**28


def test_it_uses_all_threads_that_the_process_may(device: CpuDevice) -> None:
    assert device.info.sm_count == torch.get_num_threads()
    if hasattr(os, "sched_getaffinity"):
        assert device.info.sm_count == len(os.sched_getaffinity(0))


def test_free_memory_is_what_the_system_has_and_what_its_pools_hold(device: CpuDevice) -> None:
    assert 0 < device.free_bytes() <= device.info.memory_bytes + device._pooled_bytes()
    device.prepare([GEMM], Timing())
    assert device._pooled_bytes() >= 3 * device.info.l2_bytes
    assert device.free_bytes() > device._pooled_bytes()
    device.close()
    assert device._pooled_bytes() == 0


def test_it_has_no_tensor_float(device: CpuDevice) -> None:
    tf32 = Gemm(kind="mm", b=1, m=8, n=16, k=32, dtype="tf32")
    visits, (failure,) = device.prepare([tf32], Timing())
    assert (visits, failure.status, failure.message) == ({}, "unsupported", "a CPU has no TensorFloat-32")


def gemm(dtype: str, n: int, layout: str = "nt") -> Gemm:
    return Gemm(kind=kind_of(dtype), b=1, m=24, n=n, k=48, dtype=dtype, layout=layout)


DTYPES = ["fp16", "bf16", "fp32", "fp8", "fp8_rowwise", "int8"]


def bundle(*gemms: Gemm) -> Bundle:
    candidates = tuple(Candidate(value=g.n, parts=(Part(name="up", gemm=g),)) for g in gemms)
    family = Family(role="mlp_up", h=48, tp=1, batch=1, seq=24, dtype=gemms[0].dtype, candidates=candidates)
    return Bundle(families=(family,))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_layout_is_measured(small: CpuDevice, dtype: str, layout: str) -> None:
    of = bundle(gemm(dtype, 64, layout), gemm(dtype, 80, layout))
    timing = Timing(min_rounds=3, max_rounds=3, soak_min_s=0, soak_max_s=0, visit_us=50.0, race_pct=1e6)
    result = measure_bundle(small, of, timing)
    assert {facts.gemm_id: (facts.status, facts.launch) for facts in result.facts} == {
        g.gemm_id: ("ok", "cpu") for g in of.gemms
    }
    assert Counter(sample.gemm_id for sample in result.samples) == {g.gemm_id: 3 for g in of.gemms}
    assert all(sample.seconds > 0 for sample in result.samples)


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise", "int8"])
def test_a_batch_in_these_dtypes_is_unsupported(device: CpuDevice, dtype: str) -> None:
    batch = Gemm(kind="bmm", b=2, m=24, n=64, k=48, dtype=dtype, layout="nt")
    with device.session():
        visits, (failure,) = device.prepare([batch], Timing())
    assert (visits, failure.status) == ({}, "unsupported")
    assert failure.message.startswith(f"torch has no batched product in {dtype}: ")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_wrong_result_is_found_in_every_dtype(monkeypatch: pytest.MonkeyPatch, small: CpuDevice, dtype: str) -> None:
    right = bmm.call

    def spoiled(of: Gemm, operands: Operands) -> None:
        right(of, operands)
        if of.n == 80:
            operands.c[-1, -1] += 1 if dtype == "int8" else 100

    monkeypatch.setattr(bmm, "call", spoiled)
    with small.session():
        visits, (failure,) = small.prepare([gemm(dtype, 64), gemm(dtype, 80)], Timing())
    assert list(visits) == [gemm(dtype, 64)]
    assert (failure.gemm_id, failure.status) == (gemm(dtype, 80).gemm_id, "wrong_result")


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise"])
def test_no_scale_is_made_in_a_visit(monkeypatch: pytest.MonkeyPatch, small: CpuDevice, dtype: str) -> None:
    visits, _ = small.prepare([gemm(dtype, 64), gemm(dtype, 80)], Timing(visit_us=50.0))
    drawn: list[int] = []
    monkeypatch.setattr(torch, "rand", drawn.append)
    assert all(visit.enqueue().seconds() > 0 for visit in visits.values())
    assert drawn == []


def test_a_visit_makes_its_lead_calls_and_then_its_timed_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    right = bmm.call

    def counting(gemm: Gemm, operands: Operands) -> None:
        made.append(operands.a.data_ptr())
        right(gemm, operands)

    monkeypatch.setattr(bmm, "call", counting)
    visit = CpuVisit(GEMM, ring(), None, calls=5, lead_calls=2)
    assert visit.enqueue().seconds() > 0
    assert len(made) == len(set(made)) == 7  # each on a window of its own
    assert visit.launch == "cpu"


@pytest.mark.parametrize(("l2", "each"), [("hot", 1), ("rotate", 10)])
def test_a_hot_visit_has_the_same_operands_each_time_and_a_rotating_one_others(
    monkeypatch: pytest.MonkeyPatch, small: CpuDevice, l2: str, each: int
) -> None:
    timing = Timing(l2=l2, visit_us=0.01, lead_calls=1)
    visits, _ = small.prepare([GEMM], timing)
    read: list[int] = []
    monkeypatch.setattr(bmm, "call", lambda gemm, operands: read.append(operands.b.data_ptr()))
    for _ in range(5):
        visits[GEMM].enqueue()
    assert (len(read), len(set(read))) == (10, each)  # one call leads, one is timed


def test_the_seconds_are_per_timed_call(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1_000_000_000, 1_000_010_000])
    monkeypatch.setattr("tasks.cpu.time.perf_counter_ns", lambda: next(times))
    visit = CpuVisit(GEMM, ring(), None, calls=5, lead_calls=3)
    assert visit.enqueue().seconds() == pytest.approx(2e-6)  # 10 µs over 5 calls; lead calls are not timed


def test_a_flushed_visit_overwrites_the_cache_before_its_only_call(device: CpuDevice) -> None:
    visits, _ = device.prepare([GEMM], Timing(l2="flush"))
    visit = visits[GEMM]
    assert isinstance(visit, CpuVisit)
    assert (visit.calls, visit.lead_calls) == (1, 0)
    assert visit._flush is not None
    assert visit._flush.numel() == 3 * device.info.l2_bytes
    visit._flush.fill_(1)
    visit.enqueue()
    assert not visit._flush.any()
    device.close()


@pytest.mark.parametrize(("power", "rests"), [("burst", [BURST_IDLE_S]), ("sustained", [])])
def test_in_a_burst_the_cpu_rests_before_each_visit(
    monkeypatch: pytest.MonkeyPatch, device: CpuDevice, power: str, rests: list[float]
) -> None:
    visits, _ = device.prepare([GEMM], Timing(power=power))
    slept: list[float] = []
    monkeypatch.setattr("tasks.cpu.time.sleep", slept.append)
    assert visits[GEMM].enqueue().seconds() > 0
    assert slept == rests
    device.close()


def test_a_soak_works_for_its_least_time(monkeypatch: pytest.MonkeyPatch, device: CpuDevice) -> None:
    now = iter([10, 11, 12, 13, 14, 10, 10])
    monkeypatch.setattr(device, "clock", lambda: float(next(now)))
    made: list[Gemm] = []
    monkeypatch.setattr(bmm, "call", lambda gemm, operands: made.append(gemm))
    device.soak(CpuVisit(GEMM, ring(), None, calls=1, lead_calls=0), Timing(soak_min_s=4.0), since=10.0)
    assert len(made) == 4  # at 10, 11, 12 and 13
    device.soak(CpuVisit(GEMM, ring(), None, calls=1, lead_calls=0), Timing(soak_min_s=4.0), since=6.0)
    assert len(made) == 4  # what came before was load enough


def test_its_window_tells_nothing(device: CpuDevice) -> None:
    with device.window() as window:
        pass
    assert (window.telemetry.power_mean_w, window.telemetry.throttled) == (None, False)
