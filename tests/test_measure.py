"""Measuring a Bundle: on the CPU for real, and on a scripted device where something goes wrong."""

import gc
from collections import Counter
from dataclasses import replace

import pytest

from tasks import bmm
from tasks.cpu import CpuDevice
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.measure import measure_bundle
from tasks.pool import Operands
from tasks.records import Measurement, Progress, Telemetry
from tasks.settings import COOL_S, Timing
from tests.scripted import ScriptedDevice

FIXED = Timing(goal="full", min_rounds=6, max_rounds=6, max_seconds=600, race_pct=1e6, soak_min_s=0, soak_max_s=0)
"""Exactly six rounds of every Gemm."""


def bundle(*n: int, dtype: str = "fp32", h: int = 32) -> Bundle:
    """One Family with a gate_up of each width and its down."""
    candidates = tuple(
        Candidate(
            value=width,
            parts=(
                Part(name="gate_up", gemm=Gemm(kind="mm", b=1, m=8, n=2 * width, k=h, dtype=dtype, layout="nt")),
                Part(name="down", gemm=Gemm(kind="mm", b=1, m=8, n=h, k=width, dtype=dtype, layout="nt")),
            ),
        )
        for width in n
    )
    return Bundle(families=(Family(role="mlp", h=h, tp=1, batch=1, seq=8, dtype=dtype, candidates=candidates),))


THREE = bundle(24, 40, 56)


@pytest.fixture
def cools(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    slept: list[float] = []
    monkeypatch.setattr("tasks.measure.time.sleep", slept.append)
    return slept


@pytest.fixture(scope="module")
def on_cpu() -> Measurement:
    device = CpuDevice()
    result = measure_bundle(device, THREE, replace(FIXED, visit_us=50))
    device.close()
    return result


def by_round(result: Measurement) -> dict[int, list[tuple[int, str]]]:
    rounds: dict[int, list[tuple[int, str]]] = {}
    for sample in result.samples:
        rounds.setdefault(sample.round, []).append((sample.position, sample.gemm_id))
    return rounds


def test_the_cpu_measures_every_gemm_in_every_round(on_cpu: Measurement) -> None:
    names = sorted(gemm.gemm_id for gemm in THREE.gemms)
    rounds = by_round(on_cpu)
    assert sorted(rounds) == [0, 1, 2, 3, 4, 5]
    for visits in rounds.values():
        assert [position for position, _ in visits] == [0, 1, 2, 3, 4, 5]
        assert sorted(name for _, name in visits) == names
    assert len({tuple(visits) for visits in rounds.values()}) > 1  # not the same order each time


def test_the_cpus_samples_are_seconds_of_a_call(on_cpu: Measurement) -> None:
    for sample in on_cpu.samples:
        assert 1e-8 < sample.seconds < 1.0
        assert 1 <= sample.calls <= 1024
        assert sample.lead_calls == (1 if sample.calls > 1 else 0)


def test_the_cpus_measurement_says_how_it_was_made(on_cpu: Measurement) -> None:
    assert on_cpu.bundle_id == "mlp-h32-tp1-b1-s8-fp32"
    assert on_cpu.device.kind == "cpu"
    assert {facts.gemm_id for facts in on_cpu.facts} == {gemm.gemm_id for gemm in THREE.gemms}
    assert {(facts.status, facts.launch, facts.energy_j) for facts in on_cpu.facts} == {("ok", "cpu", None)}
    assert (on_cpu.rounds, on_cpu.first_round, on_cpu.redone) == (6, 0, 0)
    assert on_cpu.stop_reason in ("max_rounds", "resolved")
    assert on_cpu.prepare_s > 0
    assert on_cpu.measuring_s >= sum(s.seconds * s.calls for s in on_cpu.samples)
    assert on_cpu.telemetry == Telemetry()


def test_a_larger_gemm_takes_longer() -> None:
    """Five hundred times the FLOPs: no machine is so noisy that their order is in doubt."""
    device = CpuDevice()
    of = bundle(64, 32_768, h=256)
    # The least of many rounds: one of them is not disturbed.
    result = measure_bundle(device, of, replace(FIXED, min_rounds=20, max_rounds=20, race_pct=1e6))
    least = {gemm: min(s.seconds for s in result.samples if s.gemm_id == gemm.gemm_id) for gemm in of.gemms}
    (small, _), (large, _) = [[part.gemm for part in c.parts] for c in of.families[0].candidates]
    assert least[large] > least[small]
    device.close()


def spoil(monkeypatch: pytest.MonkeyPatch, n: int, value: float) -> None:
    right = bmm.call

    def call(gemm: Gemm, operands: Operands) -> None:
        right(gemm, operands)
        if gemm.n == n:
            operands.c[0, 0] = value

    monkeypatch.setattr(bmm, "call", call)


@pytest.mark.parametrize(("value", "message"), [(float("nan"), "1 of 640 elements of C are NaN"), (1e4, "relative")])
def test_a_wrong_result_on_the_cpu_is_reported_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch, value: float, message: str
) -> None:
    spoil(monkeypatch, 80, value)  # gate_up of d_ff 40: 8 x 80
    device = CpuDevice()
    result = measure_bundle(device, THREE, FIXED)
    device.close()
    status = {facts.gemm_id: facts for facts in result.facts}
    wrong = status.pop("mm-1x8x80x32-fp32-nt")
    assert wrong.status == "wrong_result"
    assert message in wrong.message
    assert {facts.status for facts in status.values()} == {"ok"}
    assert Counter(s.gemm_id for s in result.samples) == dict.fromkeys(status, 6)


def test_an_unsupported_dtype_on_the_cpu_measures_nothing() -> None:
    device = CpuDevice()
    result = measure_bundle(device, bundle(24, 40, dtype="tf32"), FIXED)
    assert (result.samples, result.rounds, result.stop_reason) == ((), 0, "nothing")
    assert {(f.status, f.message) for f in result.facts} == {("unsupported", "a CPU has no TensorFloat-32")}


def test_gemms_larger_than_the_free_memory_are_skipped_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = CpuDevice()
    monkeypatch.setattr(device, "free_bytes", lambda: 2**20)
    result = measure_bundle(device, THREE, FIXED)
    assert {facts.status for facts in result.facts} == {"skipped"}
    assert all(facts.message.endswith("GiB, 0.00 free") for facts in result.facts)
    assert all(facts.message.startswith("needs ") for facts in result.facts)
    assert (len(result.facts), result.samples, result.resolved) == (6, (), False)


def test_the_next_round_is_enqueued_before_the_last_one_is_read() -> None:
    device = ScriptedDevice(cost=lambda gemm: 2e-3)
    measure_bundle(device, bundle(24), FIXED)
    kinds = [kind for kind, _ in device.log]
    # six rounds of two visits: two rounds ahead, then read one, enqueue one
    assert kinds == ["enqueue"] * 4 + (["read"] * 2 + ["enqueue"] * 2) * 4 + ["read"] * 4
    assert [gemm for kind, gemm in device.log if kind == "enqueue"] == [g for kind, g in device.log if kind == "read"]


def test_of_short_rounds_as_many_are_enqueued_as_last_while_the_order_is_looked_at() -> None:
    device = ScriptedDevice(cost=lambda gemm: 2e-4)  # a visit has four calls, and a round takes 1.6 ms: two last 3 ms
    measure_bundle(device, bundle(24), FIXED)
    kinds = [kind for kind, _ in device.log][::2]
    assert kinds == ["enqueue"] * 2 + ["read"] + ["enqueue"] * 2 + ["read", "enqueue"] * 2 + ["read"] * 3


def test_samples_are_what_the_device_says() -> None:
    device = ScriptedDevice(cost=lambda gemm: gemm.n / 1e5)
    result = measure_bundle(device, THREE, FIXED)
    assert {(s.gemm_id, s.seconds, s.calls, s.lead_calls) for s in result.samples} == {
        ("mm-1x8x48x32-fp32-nt", 48e-5, 1, 0),
        ("mm-1x8x80x32-fp32-nt", 80e-5, 1, 0),
        ("mm-1x8x112x32-fp32-nt", 112e-5, 1, 0),
        *((f"mm-1x8x32x{k}-fp32-nt", 32e-5, 2, 1) for k in (24, 40, 56)),
    }
    # a round: 48 + 80 + 112 + 3·(3·32) = 528 of 10 µs
    assert result.measuring_s == pytest.approx(6 * 528e-5)


def test_a_family_stops_at_its_time_cap_but_not_before_its_least_rounds() -> None:
    timing = replace(FIXED, min_rounds=10, max_rounds=1000, max_seconds=0.5, tie_pct=0.0)
    result = measure_bundle(ScriptedDevice(cost=lambda gemm: 10.0), bundle(24), timing)
    assert result.stop_reason == "max_seconds"
    assert 10 <= result.rounds <= 11  # one is in flight when the last of them is read
    assert not result.resolved


def test_candidates_that_tie_are_resolved_after_the_least_rounds() -> None:
    result = measure_bundle(
        ScriptedDevice(cost=lambda gemm: gemm.flops * 1e-8), THREE, Timing(goal="full", soak_min_s=0)
    )
    assert (result.stop_reason, result.resolved) == ("resolved", True)
    assert 10 <= result.rounds <= 11


@pytest.mark.parametrize(("power", "soaks"), [("sustained", 1), ("burst", 0)])
def test_a_device_is_soaked_once_and_not_for_burst(power: str, soaks: int) -> None:
    device, states = ScriptedDevice(), list[str]()
    for _ in range(2):
        measure_bundle(device, THREE, replace(FIXED, power=power), lambda p: states.append(p.state))
    assert len(device.soaks) == states.count("soak") == soaks
    if soaks:
        assert device.soaks[0] == max(THREE.gemms, key=lambda gemm: gemm.flops)


@pytest.mark.parametrize("protocol", ["interleaved", "sequential"])
@pytest.mark.parametrize("collects", [True, False])
def test_no_garbage_is_collected_while_it_measures(protocol: str, collects: bool) -> None:
    seen: list[bool] = []

    def cost(gemm: Gemm) -> float:
        seen.append(gc.isenabled())
        return 1e-3

    device = ScriptedDevice(cost=cost)
    device.info = replace(device.info, kind="cpu")  # what warms up a GPU takes a CPU seconds
    (gc.enable if collects else gc.disable)()
    try:
        measure_bundle(device, THREE, replace(FIXED, protocol=protocol, warmup_s=1.0))
        assert (seen[0], seen[-1], gc.isenabled()) == (collects, False, collects)
    finally:
        gc.enable()


def test_progress_tells_the_state_and_how_far_it_is() -> None:
    heard: list[Progress] = []
    measure_bundle(ScriptedDevice(cost=lambda gemm: 0.2), bundle(24), FIXED, heard.append)
    assert {progress.bundle_id for progress in heard} == {"mlp-h32-tp1-b1-s8-fp32"}
    assert [(p.state, p.gemms) for p in heard[:3]] == [("prepare", 1), ("prepare", 2), ("soak", 0)]
    # a round of two takes 0.4 s: told at most every half second
    assert [(p.state, p.rounds, p.gemms) for p in heard[3:]] == [("measure", n, 2) for n in (2, 4, 6)]


HOT = Telemetry(throttled=True, reasons=("hw_thermal_slowdown",))


@pytest.mark.parametrize(
    ("telemetry", "redone", "first_round", "throttled"),
    [
        ([Telemetry()], 0, 0, False),
        ([Telemetry(power_limited=True)], 0, 0, False),  # normal for GEMMs
        ([HOT, Telemetry()], 1, 6, False),
        ([HOT, HOT, Telemetry()], 2, 12, False),
        ([HOT, HOT, HOT, Telemetry()], 2, 12, True),  # twice at most: kept, and flagged
    ],
)
def test_a_throttled_family_is_measured_again_twice_at_most_and_keeps_all_samples(
    cools: list[float], telemetry: list[Telemetry], redone: int, first_round: int, throttled: bool
) -> None:
    states: list[str] = []
    result = measure_bundle(ScriptedDevice(telemetry=telemetry), THREE, FIXED, lambda p: states.append(p.state))
    assert (result.redone, result.first_round, result.telemetry.throttled) == (redone, first_round, throttled)
    assert result.rounds == 6
    assert sorted(by_round(result)) == list(range(first_round + 6))
    assert len(result.samples) == (first_round + 6) * 6
    assert sum(cools) == pytest.approx(COOL_S * redone)
    assert states.count("cool") == redone


def test_a_stop_ends_the_rest_and_keeps_what_there_is(cools: list[float]) -> None:
    device = ScriptedDevice(telemetry=[HOT, Telemetry()])
    result = measure_bundle(device, THREE, FIXED, stop=lambda: len(cools) == 3)
    assert (len(cools), result.rounds, result.redone, result.first_round) == (3, 6, 0, 0)
    assert len(result.samples) == 36
    assert result.telemetry.throttled


def test_redoing_can_be_turned_off(cools: list[float]) -> None:
    result = measure_bundle(ScriptedDevice(telemetry=[HOT]), THREE, replace(FIXED, redo_throttled=0))
    assert (result.redone, result.telemetry.throttled, cools) == (0, True, [])


def test_the_energy_is_shared_out_by_time_lead_calls_included() -> None:
    telemetry = Telemetry(energy_j=105.6)
    device = ScriptedDevice(cost=lambda gemm: gemm.k * 1e-5, telemetry=[telemetry])
    result = measure_bundle(device, bundle(16), FIXED)
    # k = 32: 1 + 2 calls of 320 µs; k = 16: 1 + 4 calls of 160 µs: 960 and 800 µs of each of six rounds
    energy = {facts.gemm_id: facts.energy_j for facts in result.facts}
    assert energy == {
        "mm-1x8x32x32-fp32-nt": pytest.approx(105.6 * 960 / 1760 / (6 * 3)),
        "mm-1x8x32x16-fp32-nt": pytest.approx(105.6 * 800 / 1760 / (6 * 5)),
    }
    spent = sum((s.calls + s.lead_calls) * (energy[s.gemm_id] or 0) for s in result.samples)
    assert spent == pytest.approx(105.6)


def test_the_same_seed_visits_in_the_same_order() -> None:
    one, two = (by_round(measure_bundle(ScriptedDevice(), THREE, FIXED)) for _ in range(2))
    other = by_round(measure_bundle(ScriptedDevice(), THREE, replace(FIXED, seed=1)))
    assert one == two != other


def test_a_measurement_that_is_stopped_keeps_its_rounds() -> None:
    device = ScriptedDevice()
    timing = Timing(min_rounds=50, max_rounds=50, soak_min_s=0)
    result = measure_bundle(device, bundle(24), timing, None, lambda: len(device.log) > 12)
    assert (result.stop_reason, result.resolved) == ("interrupted", False)
    assert 0 < result.rounds < 50
    assert len(result.samples) == result.rounds * len(bundle(24).gemms)
