"""A layer timed on the CPU: every component in every round, in random order, and the layer from end to end."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from orchestrator.layer import LayerCase, layer
from orchestrator.layer_summary import summarise
from orchestrator.model import Model
from tasks.component import Component, Variant
from tasks.cpu import CpuDevice, Done
from tasks.device import Pending
from tasks.layer_timing import Timings, fastest, rounds, time_layer
from tasks.settings import Timing

TIMING = Timing(min_rounds=5, max_rounds=5, visit_us=20.0, soak_min_s=0.0, soak_max_s=0.0)
CASE = LayerCase(model=Model(name="", h=64, layers=1, a=4, kv=2, head_dim=16, d_ff=96, v=64), b=1, s=16, dtype="fp32")


@pytest.fixture(scope="module")
def device() -> Iterator[CpuDevice]:
    made = CpuDevice()
    made.cache_bytes = 1 << 20
    yield made
    made.close()


@pytest.fixture(scope="module")
def timings(device: CpuDevice) -> Timings:
    return time_layer(device, layer(CASE), TIMING)


def test_every_component_is_timed_in_every_round(timings: Timings) -> None:
    here = [each.key for each in layer(CASE).components if each.name not in ("sdpa_efficient", "sdpa_cudnn")]
    assert sorted(timings.samples) == sorted(here)
    assert {len(samples) for samples in timings.samples.values()} == {timings.rounds} == {5}
    assert all(seconds > 0 for samples in timings.samples.values() for seconds in samples)


def test_backends_that_a_cpu_lacks_are_said_to_be_unsupported(timings: Timings) -> None:
    assert [(facts.gemm_id, facts.status) for facts in timings.failures] == [
        ("sdpa_efficient", "unsupported"),
        ("sdpa_cudnn", "unsupported"),
    ]


def test_both_variants_run_from_end_to_end_step_by_step(timings: Timings) -> None:
    assert {name: len(samples) for name, samples in timings.whole.items()} == {"unfused": 5, "flash": 5}
    unfused, flash = (each.steps for each in layer(CASE).variants)
    assert timings.taken["unfused"] == tuple(step[0].key for step in unfused)
    assert timings.taken["flash"] == tuple(step[0].key for step in flash)
    assert timings.taken["flash"][3] == "sdpa_flash"


def test_the_shares_of_a_real_measurement_sum_to_one(timings: Timings) -> None:
    for variant in summarise(layer(CASE), timings).variants:
        assert variant.missing == ()
        assert sum(row.share or 0 for row in variant.rows) == pytest.approx(1)
        assert variant.apart is not None


def test_what_memory_does_not_hold_is_skipped_and_the_rest_is_measured(
    device: CpuDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Scores of 32 heads and 2048 tokens take 512 MiB; without them a layer takes a few."""
    monkeypatch.setattr(CpuDevice, "free_bytes", lambda self: (200 << 20) + self._pooled_bytes())
    model = Model(name="", h=128, layers=1, a=32, kv=32, head_dim=4, d_ff=128, v=64)
    case = replace(CASE, model=model, s=2048)
    wanted = replace(layer(case), extras=())
    found = summarise(wanted, time_layer(device, wanted, TIMING))
    unfused, flash = found.variants
    lacking = ["attn_score", "scale_mask", "softmax", "attn_over_value"]
    assert [row.component.name for row in unfused.missing] == lacking
    assert {row.status for row in unfused.missing} == {"skipped"}
    assert all("GiB, 0." in row.message for row in unfused.missing)
    assert (unfused.whole, unfused.apart) == (None, None)
    assert flash.missing == ()
    device.close()


class Log:
    """A visit that writes down when it is enqueued and when it is read."""

    calls, lead_calls, launch = 1, 0, "cpu"

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log

    def enqueue(self) -> Pending:
        self.log.append(self.name)
        return Done(1.0)


def test_each_round_has_its_own_order(device: CpuDevice) -> None:
    log: list[str] = []
    names = [f"v{i}" for i in range(8)]
    samples, _, _ = rounds(device, {name: Log(name, log) for name in names}, replace(TIMING, max_rounds=6))
    orders = [tuple(log[i : i + 8]) for i in range(0, len(log), 8)]
    assert len(orders) == 6
    assert all(sorted(order) == names for order in orders)
    assert len(set(orders)) == 6
    assert samples["v3"] == (1.0,) * 6


def test_rounds_end_when_the_time_is_up_but_never_before_the_least(device: CpuDevice) -> None:
    log: list[str] = []
    samples, _, _ = rounds(device, {"v": Log("v", log)}, replace(TIMING, max_rounds=10**6, max_seconds=0.01))
    assert 5 <= len(samples["v"]) < 10**6


def test_nothing_to_visit_is_no_round(device: CpuDevice) -> None:
    assert rounds(device, {}, TIMING)[0] == {}


def test_the_fastest_alternative_that_runs_is_taken() -> None:
    norm, slow, quick, none = (Component(name=name, dtype="fp32") for name in ("norm", "slow", "quick", "none"))
    variant = Variant(name="x", steps=((norm,), (none, slow, quick), (none,)))
    assert fastest(variant, {"norm": 1.0, "slow": 3.0, "quick": 2.0}) == [norm, quick, None]
