"""The procedure of swiglu-maf-bench: order, counts of calls, one mean each."""

from typing import Any

import pytest
import torch

from orchestrator.schema import Config, Space
from orchestrator.space import expand_space
from orchestrator.store import shard_table
from tasks import seed_protocol
from tasks.cpu import CpuDevice
from tasks.family import Bundle
from tasks.measure import measure_bundle
from tasks.records import Measurement, Progress
from tasks.settings import Timing

SEED = Timing(protocol="seed")


def seeds_bundle(h: int = 24, tp: int = 1) -> Bundle:
    """h=24: baseline 64, and 56 … 68 around it in steps of 4; the upper end, 72, is left out."""
    space = Space(
        roles=["seed_bmm"],
        h=h,
        tp=tp,
        batch=2,
        seq=1,
        dtype=["fp16"],
        d_ff={"ratio": "8/3", "distance": 8, "step": 4},
    )
    (bundle,) = expand_space(Config(space=space, timing=SEED)).bundles
    return bundle


@pytest.fixture(scope="module")
def heard() -> list[Progress]:
    return []


@pytest.fixture(scope="module")
def measured(heard: list[Progress]) -> Measurement:
    return measure_bundle(CpuDevice(), seeds_bundle(), SEED, heard.append)


def ks(measurement: Measurement) -> list[int]:
    return [int(sample.gemm_id.split("-")[1].split("x")[3]) for sample in measurement.samples]


def test_shapes_go_up_and_the_baseline_comes_last(measured: Measurement) -> None:
    assert ks(measured) == [56, 60, 68, 64]
    assert [sample.position for sample in measured.samples] == [0, 1, 2, 3]


def test_a_baseline_between_the_steps_comes_last_too() -> None:
    # int(8/3·25) = 66: 58, 62, 66, 70 rounded down to 56, 60, 64, 68
    gemms = seed_protocol.in_order(seeds_bundle(h=25))
    assert [gemm.k for gemm in gemms] == [56, 60, 64, 68, 66]


@pytest.mark.parametrize(
    ("protocol", "recorded"),
    [
        ("seed", ("hot", "sustained")),
        ("sequential", ("flush", "sustained")),
        ("interleaved", ("rotate", "burst")),
    ],
)
def test_the_regimes_recorded_are_those_measured_in(
    measured: Measurement, protocol: str, recorded: tuple[str, str]
) -> None:
    timing = Timing(protocol=protocol, l2="rotate", power="burst")
    made = shard_table(seeds_bundle(), measured, timing, attempt=1, code_version="1", plan_hash="p")
    (row, *_) = made.to_pylist()
    assert (row["l2"], row["power"]) == recorded


def test_each_shape_has_one_sample_the_mean_of_100_calls_after_50(measured: Measurement) -> None:
    assert {(s.round, s.calls, s.lead_calls) for s in measured.samples} == {(0, 100, 50)}
    assert all(0 < s.seconds < 1 for s in measured.samples)
    assert (measured.rounds, measured.stop_reason, measured.resolved) == (1, "fixed", False)


def test_every_gemm_has_its_facts(measured: Measurement) -> None:
    assert [facts.gemm_id for facts in measured.facts] == [sample.gemm_id for sample in measured.samples]
    assert {(facts.status, facts.launch) for facts in measured.facts} == {("ok", "cpu")}


def test_progress_counts_the_gemms(measured: Measurement, heard: list[Progress]) -> None:
    assert [(p.state, p.rounds, p.gemms) for p in heard] == [("measure", 1, n) for n in (1, 2, 3, 4)]
    assert {p.bundle_id for p in heard} == {measured.bundle_id} == {"seed_bmm-h24-tp1-b2-fp16"}


class Calls:
    """Counts torch.bmm, and lets a clock tick by one microsecond for each call."""

    def __init__(self) -> None:
        self.shapes: list[tuple[tuple[int, ...], ...]] = []
        self.inputs: set[int] = set()
        self.dtypes: set[torch.dtype] = set()

    def bmm(self, a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> None:
        self.shapes.append((tuple(a.shape), tuple(b.shape), tuple(out.shape)))
        self.inputs.add(a.data_ptr())
        self.dtypes |= {a.dtype, b.dtype, out.dtype}

    def now(self) -> int:
        return 1000 * len(self.shapes)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    counter = Calls()
    monkeypatch.setattr("torch.bmm", counter.bmm)
    monkeypatch.setattr("tasks.seed_protocol.time.perf_counter_ns", counter.now)
    return counter


def test_150_calls_are_made_on_one_set_of_operands_and_100_are_timed(calls: Calls) -> None:
    gemm = seeds_bundle().gemms[0]
    assert seed_protocol.mean_seconds(torch.device("cpu"), gemm) == pytest.approx(1e-6)
    assert calls.shapes == [((2, 24, 56), (2, 56, 24), (2, 24, 24))] * 150
    assert len(calls.inputs) == 1  # hot
    assert calls.dtypes == {torch.float16}


def test_a_shape_too_large_is_reported_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean(device: torch.device, gemm: Any) -> float:
        if gemm.k == 60:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 60 GiB")
        return 1e-3

    monkeypatch.setattr(seed_protocol, "mean_seconds", mean)
    result = measure_bundle(CpuDevice(), seeds_bundle(), SEED)
    assert ks(result) == [56, 68, 64]
    (failed,) = [facts for facts in result.facts if facts.status != "ok"]
    assert (failed.gemm_id, failed.status) == ("bmm-2x24x24x60-fp16-nn", "oom")
    assert "60 GiB" in failed.message


def test_where_nothing_can_be_measured_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(device: torch.device, gemm: Any) -> float:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(seed_protocol, "mean_seconds", fail)
    result = measure_bundle(CpuDevice(), seeds_bundle(), SEED)
    assert (result.samples, result.rounds, result.stop_reason) == ((), 0, "nothing")
    assert {facts.status for facts in result.facts} == {"oom"}


def test_what_was_measured_before_a_stop_is_kept() -> None:
    heard: list[Progress] = []
    result = measure_bundle(CpuDevice(), seeds_bundle(), SEED, heard.append, lambda: len(heard) == 2)
    assert ks(result) == [56, 60]
    assert [(facts.status, facts.message) for facts in result.facts][2:] == [("skipped", "interrupted")] * 2
    assert (result.rounds, result.stop_reason) == (1, "interrupted")


def test_what_does_not_fit_is_skipped_and_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice()
    limit = 2 * (2 * 24 * 64 + 24 * 24) * 2  # batch 2, fp16: the Gemm of d_ff = 64 just fits
    monkeypatch.setattr(device, "free_bytes", lambda: limit)
    result = measure_bundle(device, seeds_bundle(), SEED)
    assert ks(result) == [56, 60, 64]
    (skipped,) = [facts for facts in result.facts if facts.status != "ok"]
    assert (skipped.status, skipped.message) == ("skipped", "needs 0.00 GiB, 0.00 free")
