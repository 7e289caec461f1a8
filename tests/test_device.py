"""What all devices share: calls of a visit, what does not fit, what computes wrongly, and the pools."""

import math
import re
from collections.abc import Callable
from statistics import median

import pytest
import torch

from tasks import bmm
from tasks.calls import MAX_CALLS, lead_calls, shared_calls, visit_calls
from tasks.cpu import CpuDevice
from tasks.device import open_device
from tasks.gemm import KIND, LAYOUTS, Gemm, kind_of
from tasks.pool import Operands, input_elements, output_elements
from tasks.records import STATUSES, GemmFacts
from tasks.settings import Timing
from tasks.sweeps import sweep_elements, sweep_plan, sweep_plans
from tests.scripted import GIB, ScriptedDevice


def mm(m: int, n: int, k: int, dtype: str = "fp32") -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype=dtype, layout="nt")


SMALL = [mm(8, 16, 32), mm(8, 24, 32), mm(8, 32, 32)]


@pytest.mark.parametrize(
    ("microseconds", "calls"),
    [
        (501, 1),
        (500, 1),
        (334, 1),
        (333, 2),
        (250, 2),
        (249, 3),
        (24, 21),
        (19, 28),
        (11, 83),
        (6, 278),
        (4.9, 409),
        (0.1, MAX_CALLS),
    ],
)
def test_a_visit_has_as_many_calls_as_fill_half_a_millisecond_or_up_to_four_times_that_below_20_us(
    microseconds: float, calls: int
) -> None:
    assert visit_calls(microseconds * 1e-6, Timing()) == calls


def test_a_visits_length_can_be_set_and_a_flushed_one_is_one_call() -> None:
    assert visit_calls(1e-4, Timing(visit_us=1000)) == 10
    assert visit_calls(1e-6, Timing(l2="flush")) == 1


@pytest.mark.parametrize(
    ("calls", "timing", "lead"),
    [
        (1, Timing(), 0),
        (2, Timing(), 1),
        (1, Timing(l2="hot"), 1),  # or the first visit is not hot
        (1, Timing(l2="flush"), 0),
        (1, Timing(lead_calls=3), 3),
        (9, Timing(lead_calls=0), 0),
    ],
)
def test_lead_calls(calls: int, timing: Timing, lead: int) -> None:
    assert lead_calls(calls, timing) == lead


def test_a_sweep_pool_is_as_large_as_its_largest_sweep() -> None:
    wide, long = mm(8, 4096, 64), mm(64, 64, 64)
    # wide: 512 + 4096·64 inputs and 32768 outputs a window; long: 2·4096 and 4096
    assert sweep_elements({wide: (3, 4), long: (99, 100)}, 10**6, 10**9) == (4 * 262_656, 100 * 4096)


def test_large_outputs_of_small_inputs_come_back_after_three_caches() -> None:
    """The weight gradient of an output layer among 4 tokens: 0.2 MB are read, 264 MB written."""
    wgrad = Gemm(kind="mm", b=1, m=16128, n=8192, k=4, dtype="bf16", layout="tn")
    plan = sweep_plan(wgrad, 4, 1, 60 * 2**20, 4 * 2**30)
    assert plan == (970, 971)  # three caches of 60 MiB are 970.1 times the inputs
    inputs, outputs = sweep_elements({wgrad: plan}, 60 * 2**20, 4 * 2**30)
    assert (inputs, outputs) == (971 * input_elements(wgrad), output_elements(wgrad))


def prepared(
    device: ScriptedDevice, gemms: list[Gemm], timing: Timing | None = None
) -> tuple[set[Gemm], list[GemmFacts]]:
    visits, failures = device.prepare(gemms, timing or Timing())
    assert all(failure.status in STATUSES for failure in failures)
    return set(visits), failures


def test_what_computes_well_is_made_ready_and_counted() -> None:
    done: list[int] = []
    visits, failures = ScriptedDevice().prepare(SMALL, Timing(), done.append)
    assert list(visits) == SMALL
    assert (failures, done) == ([], [1, 2, 3])
    assert {(v.gemm, v.calls, v.lead_calls) for v in visits.values()} == {(gemm, 1, 0) for gemm in SMALL}


def test_what_is_made_ready_further_is_timed_as_those_were_that_it_is_compared_with() -> None:
    device = ScriptedDevice(cost=lambda gemm: gemm.n * 1e-6)
    first, *others = SMALL
    device.prepare([first], Timing())
    typical = first.n * 1e-6
    device.prepare(others, Timing(), further=True)
    assert device.typical_s == typical
    seconds = {gemm: gemm.n * 1e-6 for gemm in others}
    alike = shared_calls(seconds, Timing(), typical)
    assert (
        set(alike.values()) == {math.ceil(500e-6 * 20e-6 / typical**2)} != set(shared_calls(seconds, Timing()).values())
    )
    device.prepare(others, Timing())
    assert device.typical_s == median(seconds.values())


def test_what_does_not_fit_is_skipped_with_both_sizes_and_the_rest_is_made_ready() -> None:
    # 2·(32768·8192) of A and B in half precision, 1 GiB; C 32768² in it, 2 GiB: 3 GiB of 1.5
    large = Gemm(kind="mm", b=1, m=2**15, n=2**15, k=2**13, dtype="fp16")
    device = ScriptedDevice(free=3 * GIB // 2)
    ready, (failure,) = prepared(device, [mm(8, 16, 32, "fp16"), large])
    assert ready == {mm(8, 16, 32, "fp16")}
    assert failure == GemmFacts(gemm_id=large.gemm_id, status="skipped", message="needs 3.00 GiB, 1.50 free")


def test_where_nothing_fits_nothing_is_allocated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **named: object) -> None:
        raise AssertionError("allocated")

    device = ScriptedDevice(free=1000)
    monkeypatch.setattr(torch, "randn", refuse)
    ready, failures = prepared(device, SMALL)
    assert (ready, [failure.status for failure in failures]) == (set(), ["skipped"] * 3)


Call = Callable[[Gemm, Operands], None]


def broken_at(monkeypatch: pytest.MonkeyPatch, n: int, wrong: Call) -> None:
    """Let ``bmm.call`` do ``wrong`` for Gemms of this n."""
    right = bmm.call
    monkeypatch.setattr(bmm, "call", lambda gemm, o: wrong(gemm, o) if gemm.n == n else right(gemm, o))


def skip_last_row(gemm: Gemm, operands: Operands) -> None:
    operands.c[:-1] = (operands.a @ operands.b)[:-1]


def write_nan(gemm: Gemm, operands: Operands) -> None:
    operands.c.copy_(operands.a @ operands.b)
    operands.c[3, 5] = float("nan")


def write_sum_of_half(gemm: Gemm, operands: Operands) -> None:
    half = gemm.k // 2
    operands.c.copy_(operands.a[:, :half] @ operands.b[:half])


def write_nothing(gemm: Gemm, operands: Operands) -> None:
    pass


def write_zeros(gemm: Gemm, operands: Operands) -> None:
    operands.c.zero_()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (write_nothing, "192 of 192 elements of C are NaN"),
        (skip_last_row, "24 of 192 elements of C are NaN"),
        (write_nan, "1 of 192 elements of C are NaN"),
        (write_zeros, "relative error 1 against float64 on a 8x8 slice, 0.0001 allowed"),
        (write_sum_of_half, "against float64 on a 8x8 slice"),
    ],
)
def test_a_wrong_result_fails_its_gemm_alone(monkeypatch: pytest.MonkeyPatch, wrong: Call, message: str) -> None:
    broken_at(monkeypatch, 24, wrong)
    ready, (failure,) = prepared(ScriptedDevice(), SMALL)
    assert ready == {SMALL[0], SMALL[2]}
    assert (failure.gemm_id, failure.status) == (SMALL[1].gemm_id, "wrong_result")
    assert message in failure.message


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (torch.OutOfMemoryError("out of memory"), "oom"),
        (RuntimeError("CUBLAS_STATUS_NOT_SUPPORTED when calling"), "unsupported"),
        (RuntimeError('"addmm_impl_cpu_" not implemented for'), "unsupported"),
        (RuntimeError("CUDA error: CUBLAS_STATUS_INVALID_VALUE when calling `cublasLtMatmul(`"), "unsupported"),
        (RuntimeError("self.size(0) needs to be greater than 16, but got 8"), "unsupported"),
        (RuntimeError("Rowwise scaling is not currently supported on your device"), "unsupported"),
        (ValueError("Only bf16 high precision output types are supported for row-wise scaling."), "unsupported"),
        (NotImplementedError("Could not run 'aten::_scaled_mm' with arguments from the 'CPU' backend."), "unsupported"),
    ],
)
def test_an_error_of_one_gemm_fails_it_alone(monkeypatch: pytest.MonkeyPatch, error: Exception, status: str) -> None:
    def fail(gemm: Gemm, operands: Operands) -> None:
        raise error

    broken_at(monkeypatch, 24, fail)
    ready, (failure,) = prepared(ScriptedDevice(), SMALL)
    assert ready == {SMALL[0], SMALL[2]}
    assert (failure.status, failure.message) == (status, str(error))


def test_of_what_an_operator_says_the_first_line_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(gemm: Gemm, operands: Operands) -> None:
        raise RuntimeError("Invalid scaling configuration.\n- For TensorWise scaling, a and b should be float8")

    broken_at(monkeypatch, 24, fail)
    assert prepared(ScriptedDevice(), SMALL)[1][0].message == "Invalid scaling configuration."


@pytest.mark.parametrize(
    "message",
    [
        "CUDA error: an illegal memory access was encountered",
        "CUDA error: device-side assert triggered",
        "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasLtMatmul(`",
        "CUDA driver error: unknown error",
        "HIP error: an illegal memory access was encountered",
        'NVML_SUCCESS == r INTERNAL ASSERT FAILED at "CUDACachingAllocator.cpp"',
    ],
)
def test_any_other_error_is_the_devices_and_is_raised(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    def fail(gemm: Gemm, operands: Operands) -> None:
        raise RuntimeError(message)

    broken_at(monkeypatch, 24, fail)
    with pytest.raises(RuntimeError, match=re.escape(message)):
        prepared(ScriptedDevice(), SMALL)


def test_a_device_that_was_lost_before_an_operator_refused_is_not_taken_for_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(gemm: Gemm, operands: Operands) -> None:
        raise RuntimeError("self.size(0) needs to be greater than 16, but got 8")

    def lost() -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    broken_at(monkeypatch, 24, fail)
    device = ScriptedDevice()
    monkeypatch.setattr(device, "synchronize", lost)
    with pytest.raises(RuntimeError, match="illegal memory access"):
        prepared(device, SMALL)


def test_a_batch_in_a_dtype_without_one_is_unsupported_and_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Gemm(kind="bmm", b=3, m=32, n=32, k=32, dtype="fp8", layout="nt")
    single = Gemm(kind="scaled_mm", b=1, m=32, n=32, k=32, dtype="fp8", layout="nt")
    ready, (failure,) = prepared(ScriptedDevice(), [batch, single])
    assert ready == {single}
    message = "torch has no batched product in fp8: torch._scaled_mm takes two matrices"
    assert (failure.gemm_id, failure.status, failure.message) == (batch.gemm_id, "unsupported", message)


def test_memory_counts_the_bytes_of_c_as_they_are_written() -> None:
    # A and B of 2^15·2^13 bytes each, half a GiB; C of 2^30 elements: 2 GiB in bf16, 4 GiB in int32
    for dtype, needed in (("fp8", "2.50"), ("int8", "4.50")):
        large = Gemm(kind=kind_of(dtype), b=1, m=2**15, n=2**15, k=2**13, dtype=dtype, layout="nt")
        _, (failure,) = prepared(ScriptedDevice(free=GIB), [large])
        assert (failure.status, failure.message) == ("skipped", f"needs {needed} GiB, 1.00 free")


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp8", "fp8_rowwise", "int8"])
@pytest.mark.parametrize("b", [None, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_layout_computes_what_float64_does(dtype: str, b: int | None, layout: str) -> None:
    gemm = Gemm(kind=kind_of(dtype, b is not None), b=b or 1, m=33, n=65, k=700, dtype=dtype, layout=layout)
    ready, failures = prepared(ScriptedDevice(), [gemm])
    if b is not None and dtype in KIND:
        assert (ready, [failure.status for failure in failures]) == (set(), ["unsupported"])
    else:
        assert (ready, failures) == ({gemm}, [])


def test_the_check_sees_every_corner_of_the_last_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    gemm = Gemm(kind="bmm", b=3, m=50, n=60, k=20, dtype="fp32")
    for row, column in ((0, 0), (0, -1), (-1, 0), (-1, -1)):

        def spoil(gemm: Gemm, operands: Operands, row: int = row, column: int = column) -> None:
            torch.bmm(operands.a, operands.b, out=operands.c)
            operands.c[-1, row, column] += 100

        with monkeypatch.context() as patch:
            broken_at(patch, 60, spoil)
            assert prepared(ScriptedDevice(), [gemm])[1][0].status == "wrong_result"


def test_float32_is_multiplied_in_full_precision_whatever_was_set_before() -> None:
    torch.set_float32_matmul_precision("high")
    prepared(ScriptedDevice(), SMALL)
    assert torch.get_float32_matmul_precision() == "highest"


def test_the_pool_is_kept_while_it_is_large_enough_and_grows_where_it_is_not() -> None:
    device = ScriptedDevice()
    small, large = device._pool("ring", "fp32", 100, 10), device._pool("ring", "fp32", 100, 20)
    assert (small is large, large.inputs.numel(), large.outputs.numel()) == (False, 100, 20)
    assert device._pool("ring", "fp32", 50, 20) is large
    assert device._pooled_bytes() == 480
    assert device._pool("ring", "fp16", 8, 8).bytes == 32  # another dtype: nothing of the old one stays
    assert device._pooled_bytes() == 32
    assert device._pool("ring", "int8", 8, 8).bytes == 8 * 1 + 8 * 4
    assert device._pool("ring", "fp16", 8, 8).bytes == 32
    assert device._pool("sweep", "fp16", 8, 8) is not device._pool("ring", "fp16", 8, 8)
    device.close()
    assert device._pooled_bytes() == 0


def test_the_ring_and_the_sweeps_have_different_numbers() -> None:
    device = ScriptedDevice()
    ring, swept = device._pool("ring", "fp32", 100, 10), device._pool("sweep", "fp32", 100, 10)
    assert not torch.equal(ring.inputs, swept.inputs)


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_auto_opens_the_cpu_where_there_is_no_gpu() -> None:
    assert isinstance(open_device("auto"), CpuDevice)
    with pytest.raises(RuntimeError, match="torch sees no CUDA or ROCm device"):
        open_device("cuda")


def test_gemms_that_are_compared_make_as_many_calls_also_where_the_cache_asks_for_more() -> None:
    # inputs of 40 and of 60 kB: 3 caches of 100 kB are outrun by 8 and by 5 calls, lead included
    small, large = (Gemm(kind="mm", b=1, m=100, n=n, k=100, dtype="fp16") for n in (100, 200))
    assert sweep_plans({small: 2, large: 2}, 1, 100_000, 10**9) == {small: (7, 8), large: (7, 8)}
    assert sweep_plans({large: 2}, 1, 100_000, 10**9) == {large: (4, 5)}


def test_calls_are_shared_by_those_near_the_typical_time() -> None:
    gemms = [Gemm(kind="mm", b=1, m=8, n=n, k=8, dtype="fp16") for n in range(1, 6)]
    seconds = dict(zip(gemms, (490e-6, 505e-6, 520e-6, 1300e-6, 60e-6), strict=True))
    assert list(shared_calls(seconds, Timing()).values()) == [1, 1, 1, 1, 9]  # the last is not like the others
