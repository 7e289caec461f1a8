"""Visits of components on the CPU: how many calls, on which tensors, and what they leave in memory."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch

from tasks import component_visit
from tasks.component import Component
from tasks.component_ready import ready, too_large
from tasks.component_visit import Flush, kept_outputs, sweep_steps, visit
from tasks.cpu import CpuDevice
from tasks.pool import OperandPool
from tasks.settings import Timing
from tasks.windows import Windows, pool_elements

SUM = Component(name="residual", dtype="fp32", op="residual", inputs=((8, 512), (8, 512)), output=4096)
CACHE = 1 << 20
TIMING = Timing(visit_us=50.0)


@pytest.fixture
def device() -> CpuDevice:
    made = CpuDevice()
    made.cache_bytes = CACHE
    return made


def windows(*components: Component) -> Windows:
    inputs, outputs = pool_elements(components, CACHE)
    return Windows(OperandPool(torch.device("cpu"), "fp32", inputs=inputs, outputs=outputs, seed=0), hot=False)


def test_a_visit_makes_its_lead_calls_and_then_its_timed_ones_on_other_tensors(device: CpuDevice) -> None:
    seen: list[int] = []

    def call(tensors: object) -> object:
        assert isinstance(tensors, tuple)
        seen.append(tensors[0].data_ptr())
        return tensors[0] + tensors[1]

    made = visit(device, SUM, call, 25e-6, windows(SUM), TIMING, Flush(device))
    assert (made.calls, made.lead_calls, made.launch) == (2, 1, "cpu")  # 50 us of 25 us calls
    assert made.enqueue().seconds() > 0
    assert len(set(seen)) == len(seen) == 3
    made.enqueue()
    assert len(set(seen)) == len(seen) == 6


def test_a_long_call_is_alone_in_its_visit(device: CpuDevice) -> None:
    made = visit(device, SUM, lambda tensors: None, 1e-3, windows(SUM), TIMING, Flush(device))
    assert (made.calls, made.lead_calls) == (1, 0)


def test_outputs_are_kept_until_three_caches_of_them_lie_between(device: CpuDevice) -> None:
    assert kept_outputs(SUM, device) == 3 * CACHE // (4096 * 4)
    assert kept_outputs(replace(SUM, output=CACHE), device) == 0  # one alone outruns the cache


def test_a_sweep_reads_three_caches_of_different_bytes_in_whole_turns() -> None:
    steps, cold = sweep_steps(SUM, 4, windows(SUM), CACHE, hot=False)
    starts = [tensors[0].data_ptr() for tensors in steps]
    assert len(steps) == 3 * CACHE // SUM.input_bytes == 96
    assert len(set(starts)) == 96
    assert cold


def test_a_sweep_that_cannot_outrun_the_cache_says_so() -> None:
    tiny = replace(SUM, inputs=((4,), (4,)), output=4)
    steps, cold = sweep_steps(tiny, 4, windows(tiny), CACHE, hot=False)
    assert len(steps) >= 1024
    assert not cold


def test_a_hot_sweep_stays_where_it_is() -> None:
    steps, _ = sweep_steps(SUM, 4, windows(SUM), CACHE, hot=True)
    assert len({tensors[0].data_ptr() for tensors in steps}) == 1
    assert len(steps) == 4


def test_what_does_not_fit_is_skipped_with_what_it_needs(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda: 2**30)
    scores = Component(name="softmax", dtype="fp32", op="softmax", inputs=((1, 16384, 16384),), output=16384**2)
    assert too_large(device, scores) == "needs 3.00 GiB, 1.00 free"  # read 1 GiB, leave 1, and 1 that is being left
    found = ready(device, [SUM, scores], TIMING)
    assert list(found.visits) == ["residual"]
    (failure,) = found.failures
    assert (failure.gemm_id, failure.status, failure.message) == ("softmax", "skipped", "needs 3.00 GiB, 1.00 free")


def test_where_nothing_fits_all_is_skipped(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "free_bytes", lambda: 1000)
    found = ready(device, [SUM], TIMING)
    assert (dict(found.visits), [failure.status for failure in found.failures]) == ({}, ["skipped"])


def test_a_backend_that_is_not_there_is_unsupported(device: CpuDevice) -> None:
    heads = ((1, 4, 2, 8), (1, 4, 2, 8), (1, 4, 2, 8))
    options = (("backend", "cudnn"), ("repeat", False), ("p", 0.0))
    each = Component(
        name="sdpa", kind="attention", dtype="fp32", op="attention", inputs=heads, output=64, options=options
    )
    (failure,) = ready(device, [each], TIMING).failures
    assert failure.status == "unsupported"
    assert failure.message == "PyTorch has no such kernel for this device (cpu)"


def test_any_other_fault_is_no_missing_backend(device: CpuDevice) -> None:
    wrong = replace(SUM, inputs=((8, 512), (8, 511)))
    with pytest.raises(RuntimeError, match="must match"):
        ready(device, [wrong], TIMING)


class Graph:
    """What a captured graph does when it is replayed: the same work again."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.replay = work


@pytest.mark.parametrize("captured", [True, False])
def test_short_calls_are_one_graph_or_queue_behind_a_delay(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch, captured: bool
) -> None:
    seen: list[int] = []
    flushed: list[int] = []
    monkeypatch.setattr(component_visit, "capture", lambda work: Graph(work) if captured else None)
    monkeypatch.setattr(Flush, "__call__", lambda self, times=1: flushed.append(times))

    def call(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        seen.append(tensors[0].data_ptr())
        return tensors[0]

    made = component_visit._sweep_visit(device, SUM, call, 4, windows(SUM), TIMING, Flush(device))
    assert (made.calls, made.lead_calls, made.launch) == (95, 1, "graph" if captured else "queued")
    seen.clear()
    made.enqueue()
    assert len(seen) == len(set(seen)) == 96
    assert flushed == ([] if captured else [component_visit.DELAYS])


def test_a_sweep_too_small_for_the_cache_flushes_it_first(device: CpuDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(component_visit, "capture", Graph)
    monkeypatch.setattr(Flush, "__call__", lambda self, times=1: flushed.append(times))
    tiny = replace(SUM, inputs=((4,), (4,)), output=4)
    component_visit._sweep_visit(device, tiny, lambda t: t[0], 4, windows(tiny), TIMING, Flush(device)).enqueue()
    assert flushed == [1]
