"""The merged order: known truth in, known ranks, ties, intervals and facts out; the laws that a ranking keeps."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.columns import RANKING_SCHEMA
from orchestrator.config import compose
from orchestrator.ranking import Ranking, rank
from orchestrator.space import expand_space
from orchestrator.store import RunStore, shard_table
from tasks.family import Bundle, Family
from tasks.gemm import Gemm
from tasks.records import Measurement, Sample
from tasks.settings import Timing
from tests.builders import DEVICE, Cost, as_bundle, measurement, mlp_family, per_flop, read_ranking, up_family

INTERLEAVED = Timing()


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {})


def keep(
    store: RunStore, family: Family | Bundle, measured: Measurement, *, attempt: int = 0, timing: Timing = INTERLEAVED
) -> Path:
    bundle = as_bundle(family)
    return store.write_shard(shard_table(bundle, measured, timing, attempt=attempt, code_version="1", plan_hash="abc"))


def ranked(store: RunStore) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rank(store).table.to_pylist()
    return rows


def places(rows: list[dict[str, Any]]) -> list[tuple[int, int | None, int | None]]:
    return [(row["d_ff"], row["rank"], row["tie_group"]) for row in rows]


def drifting(cost: Cost, swing: float = 0.3) -> Cost:
    """The same cost on a device whose clock wanders by ``swing`` from round to round."""
    return lambda gemm, number: cost(gemm, number) * (1 + swing * np.sin(number))


# Numbers worked out by hand


def test_one_gemm_per_candidate_by_hand(store: RunStore) -> None:
    family = up_family([128, 256], baseline=128)  # 2·32·64·128 = 524,288 FLOPs for d_ff 128, twice that for 256
    seconds = {128: 2e-6, 256: 3e-6}
    keep(store, family, measurement(family, lambda gemm, _: seconds[gemm.n], rounds=10))
    best, baseline = ranked(store)
    expected = {
        "gpu": "NVIDIA H200",
        "family_id": "mlp_up-h64-tp1-b4-s8-fp16",
        "d_ff": 256,
        "baseline": False,
        "mlp_params": 2 * 64 * 256,
        "rank": 1,
        "tie_group": 1,
        "samples": 10,
        "rounds": 10,
        "align_local": 256,
        "local_dim": 256,
        "status": "ok",
        "message": "",
        "resolved": True,
        "stop_reason": "resolved",
        "launch": "graph",
        "energy_j": 0.5,
        "sm_clock_mean_mhz": 1650.0,
        "sm_clock_min_mhz": 1320.0,
        "temperature_max_c": 61.0,
        "power_mean_w": 690.0,
        "power_limited": True,
        "throttled": False,
        "devices": ["GPU-0"],
    }
    assert {name: best[name] for name in expected} == expected
    assert [best[name] for name in ("seconds", "p5_s", "p25_s", "p75_s", "p95_s")] == pytest.approx([3e-6] * 5)
    assert best["tflops"] == pytest.approx(1_048_576 / 3e-6 / 1e12)
    assert best["cv"] == pytest.approx(0.0, abs=1e-12)
    assert best["relative"] == 1.0
    assert best["speedup"] == pytest.approx(4 / 3)  # 2 µs for 1 unit of work against 3 µs for 2 units
    assert (baseline["d_ff"], baseline["rank"], baseline["tie_group"]) == (128, 2, 2)
    assert baseline["relative"] == pytest.approx(4 / 3)
    assert [baseline[f"speedup{end}"] for end in ("", "_low", "_high")] == [1.0, 1.0, 1.0]


@pytest.mark.parametrize(
    ("around", "words", "values"),
    [
        ("d_ff", ("space.h=256", "space.d_ff=512,640"), (512, 640)),
        ("h", ("space.h=256,320",), (256, 320)),
        ("a", ("space.h=256", "space.a=4,8"), (4, 8)),
        ("kv", ("space.h=256", "space.kv=1,2"), (1, 2)),
        ("v", ("space.h=256", "space.v=1024,1152"), (1024, 1152)),
        ("experts", ("space.h=256", "space.experts=4,8"), (4, 8)),
        ("batch", ("space.h=256", "space.batch=2,4"), (2, 4)),
    ],
)
def test_whatever_is_chosen_its_values_compete(
    store: RunStore, around: str, words: tuple[str, ...], values: tuple[int, int]
) -> None:
    """Of the two, the second takes a tenth longer for each FLOP."""
    role = {"d_ff": "layer", "h": "layer", "a": "attention", "kv": "qkv", "v": "logits", "experts": "experts"}.get(
        around, "attn_out"
    )
    fixed = ("space.a=4", "space.v=1024", "space.experts=4", "space.topk=1", "space.tp=1", "space.batch=8")
    small = ("space.seq=8", "space.dtype=fp16", f"space.roles={role}", f"space.around={around}")
    (family,) = expand_space(compose("cpu", [*fixed, *small, *words])).families
    first, second = family.candidates
    dear = {part.gemm for part in second.parts} - {part.gemm for part in first.parts}
    keep(store, family, measurement(family, lambda gemm, _: gemm.flops * (1.1e-12 if gemm in dear else 1e-12)))
    rows = ranked(store)
    assert [(row["axis"], row["value"], row["rank"]) for row in rows] == [
        (around, values[0], 1),
        (around, values[1], 2),
    ]
    assert rows[0]["relative"] == 1.0
    assert 1.0 < rows[1]["relative"] <= 1.1 + 1e-9


def test_percentiles_and_cv_by_hand(store: RunStore) -> None:
    family = up_family([128])
    keep(store, family, measurement(family, lambda _, number: (number + 1) * 1e-6, rounds=5))  # 1 … 5 µs
    (row,) = ranked(store)
    assert [row[name] * 1e6 for name in ("p5_s", "p25_s", "seconds", "p75_s", "p95_s")] == pytest.approx(
        [1.2, 2.0, 3.0, 4.0, 4.8]
    )
    assert row["cv"] == pytest.approx(np.sqrt(2.5) / 3)
    assert row["speedup"] is None  # no baseline in this Family


def test_a_composite_costs_the_sum_of_its_parts_in_each_round(store: RunStore) -> None:
    family = mlp_family([128], h=64, tp=2)  # local dimension 64: gate_up 32·128·64, down 32·64·64
    # In every other round one part is slow and the other fast: medians of parts do not add up, totals do.
    cost = {128: (1e-6, 5e-6), 64: (6e-6, 2e-6)}
    keep(store, family, measurement(family, lambda gemm, number: cost[gemm.n][number % 2], rounds=10))
    (row,) = ranked(store)
    assert row["seconds"] == pytest.approx(7e-6)
    assert row["tflops"] == pytest.approx(2 * 32 * (128 * 64 + 64 * 64) / 7e-6 / 1e12)
    assert (row["rounds"], row["samples"], row["energy_j"]) == (10, 20, 1.0)
    assert (row["local_dim"], row["align_local"]) == (64, 64)
    gate_up, down = row["parts"]
    assert (gate_up["part"], gate_up["n"], gate_up["k"]) == ("gate_up", 128, 64)
    assert (down["part"], down["n"], down["k"]) == ("down", 64, 64)
    assert (gate_up["seconds"], down["seconds"]) == pytest.approx((3e-6, 4e-6))
    assert (gate_up["share"], down["share"]) == pytest.approx((3 / 7, 4 / 7))
    assert down["tflops"] == pytest.approx(2 * 32 * 64 * 64 / 4e-6 / 1e12)


# Order, ties, intervals


def test_drift_cancels_in_order_and_intervals(store: RunStore) -> None:
    family = up_family([128, 256, 512], baseline=512)
    cost = drifting(per_flop({128: 1.00, 256: 1.02, 512: 1.05}))
    keep(store, family, measurement(family, cost, rounds=30, noise=0.001))
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2), (512, 3, 3)]
    assert [row["relative"] for row in rows] == pytest.approx([1.0, 1.02, 1.05], abs=0.002)
    assert all(
        row["relative_low"] < truth < row["relative_high"] for row, truth in zip(rows[1:], (1.02, 1.05), strict=True)
    )
    assert rows[0]["speedup_low"] < 1.05 < rows[0]["speedup_high"]
    assert rows[1]["relative_high"] - rows[1]["relative_low"] < 0.01


def test_ties_share_a_rank_and_are_ordered_by_fewer_parameters(store: RunStore) -> None:
    family = up_family([128, 256, 512, 1024])
    cost = per_flop({128: 2.0, 256: 1.001, 512: 1.0, 1024: 1.5})  # 256 and 512 lie within tie_pct 0.5%
    keep(store, family, measurement(family, cost))
    assert places(ranked(store)) == [(256, 1, 1), (512, 1, 1), (1024, 3, 2), (128, 4, 3)]


def test_one_round_gives_an_order_without_intervals(store: RunStore) -> None:
    family = up_family([128, 256], baseline=128)
    keep(store, family, measurement(family, per_flop({128: 1.0, 256: 2.0}), rounds=1), timing=Timing(protocol="seed"))
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert (rows[1]["relative"], rows[1]["relative_low"], rows[1]["relative_high"]) == (pytest.approx(2.0), None, None)
    assert (rows[1]["speedup"], rows[1]["speedup_low"], rows[1]["cv"]) == (pytest.approx(0.5), None, None)


def sequentially(family: Family, cost: Cost) -> Measurement:
    """100 calls of each Gemm as the protocol leaves them, of which the ``number``-th takes ``cost(gemm, number)``."""
    samples = (
        Sample(gemm_id=gemm.gemm_id, round=call, position=i, calls=1, lead_calls=0, seconds=cost(gemm, call))
        for i, gemm in enumerate(family.gemms)
        for call in range(100)
    )
    return measurement(family, cost, rounds=1, samples=tuple(samples), resolved=False, stop_reason="fixed")


def test_of_shapes_measured_one_after_another_the_means_decide_and_their_calls_give_no_interval(
    store: RunStore,
) -> None:
    level = per_flop({128: 1.0, 256: 1.02})

    def cost(gemm: Gemm, call: int) -> float:
        return level(gemm, call) * (1 + (call - 49.5) / 1000)  # as if the rounds cancelled: call by call it is 1.02

    family = up_family([128, 256], baseline=128)
    keep(store, family, sequentially(family, cost), timing=Timing(protocol="sequential"))
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert (rows[1]["relative"], rows[1]["relative_low"], rows[1]["speedup_low"]) == (pytest.approx(1.02), None, None)
    assert {(row["rounds"], row["samples"], row["l2"], row["resolved"]) for row in rows} == {(1, 100, "flush", False)}
    fast = family.gemms[0].flops * 1e-12
    assert rows[0]["p5_s"] / fast == pytest.approx(1 + (4.95 - 49.5) / 1000)  # numpy's: 5% of the way from 0 to 99
    assert rows[0]["cv"] == pytest.approx(np.std(np.arange(100), ddof=1) / 1000)


@pytest.mark.parametrize("protocol", ["seed", "sequential"])
def test_many_devices_make_no_interval_of_shapes_measured_one_after_another(store: RunStore, protocol: str) -> None:
    """What their order makes of the figures, such as a boost at the start, it makes on each device."""
    family = up_family([128, 192, 256])
    for number in range(5):
        apart = {192: 1.003 + 0.0001 * number, 256: 1.02 + 0.03 * (number - 2)}
        made = sequentially(family, per_flop(apart)) if protocol == "sequential" else None
        made = made or measurement(family, per_flop(apart), rounds=1, stop_reason="fixed")
        device = replace(DEVICE, uuid=f"GPU-{number}")
        keep(store, family, replace(made, device=device), timing=Timing(protocol=protocol))
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (192, 1, 1), (256, 3, 2)]
    assert [row["relative"] for row in rows] == pytest.approx([1.0, 1.003, 1.02], abs=1e-3)
    assert [(row["relative_low"], row["relative_high"]) for row in rows[1:]] == [(None, None)] * 2
    assert not rows[0]["resolved"]


def test_the_figure_of_a_shape_measured_alone_is_the_mean_of_its_calls(store: RunStore) -> None:
    family = mlp_family([128, 256])
    level = per_flop({})
    slow = {128: 2.0}  # one call in ten: no median would show it

    def cost(gemm: Gemm, call: int) -> float:
        return level(gemm, call) * (slow.get(gemm.k, 1.0) if call % 10 == 0 else 1.0)

    keep(store, family, sequentially(family, cost), timing=Timing(protocol="sequential"))
    rows = ranked(store)
    assert [row["d_ff"] for row in rows] == [256, 128]
    gate_up, down = rows[1]["parts"]
    assert (down["seconds"], gate_up["seconds"]) == (
        pytest.approx(1.1 * 2e-12 * 32 * 64 * 128),
        pytest.approx(2e-12 * 32 * 64 * 256),
    )
    assert rows[1]["seconds"] == pytest.approx(gate_up["seconds"] + down["seconds"])
    assert rows[1]["tflops"] == pytest.approx(1 / (2 / 3 + 1.1 / 3))
    assert rows[1]["samples"] == 200


def test_an_undecided_family_says_so(store: RunStore) -> None:
    family = up_family([128, 256])
    cost = per_flop({128: 1.0, 256: 1.02})
    measured = measurement(family, cost, rounds=6, noise=0.05, resolved=False, stop_reason="max_seconds")
    keep(store, family, measured)
    assert {(row["resolved"], row["stop_reason"]) for row in ranked(store)} == {(False, "max_seconds")}


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    factors=st.lists(st.floats(0.5, 2.0), min_size=12, max_size=12),
    costs=st.permutations([1.0, 1.01, 1.03, 1.2, 2.3]),
)
def test_what_moves_a_whole_round_never_moves_the_order(
    tmp_path_factory: pytest.TempPathFactory, factors: list[float], costs: list[float]
) -> None:
    d_ffs = [128, 256, 384, 512, 640]
    family, table = up_family(d_ffs), dict(zip(d_ffs, costs, strict=True))
    store = RunStore.create(tmp_path_factory.mktemp("law"), "run", {})
    steady = per_flop(table)
    keep(store, family, measurement(family, lambda gemm, number: steady(gemm, number) * factors[number], rounds=12))
    rows = ranked(store)
    assert [row["d_ff"] for row in rows] == sorted(table, key=lambda d_ff: table[d_ff])
    assert [row["relative"] for row in rows] == pytest.approx([1.0, 1.01, 1.03, 1.2, 2.3])
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5]


# What is merged with what


def test_families_that_share_a_bundle_are_ranked_from_the_same_samples(store: RunStore) -> None:
    wide, narrow = up_family([128, 256, 512]), replace(up_family([256, 512]), role="mlp_down")
    bundle = Bundle(families=(wide, narrow))
    keep(store, bundle, measurement(bundle, per_flop({128: 1.0, 256: 3.0, 512: 2.0})))
    rows = ranked(store)
    by_role: Mapping[str, list[int]] = {
        role: [row["d_ff"] for row in rows if row["role"] == role] for role in ("mlp_up", "mlp_down")
    }
    assert by_role == {"mlp_up": [128, 512, 256], "mlp_down": [512, 256]}
    seconds = {(row["role"], row["d_ff"]): row["seconds"] for row in rows}
    assert seconds["mlp_up", 512] == seconds["mlp_down", 512]


def test_only_the_latest_attempt_counts(store: RunStore) -> None:
    family = up_family([128, 256])
    keep(store, family, measurement(family, per_flop({128: 1.0, 256: 2.0}), rounds=30), attempt=9)
    keep(store, family, measurement(family, per_flop({128: 2.0, 256: 1.0}), rounds=11), attempt=10)
    rows = ranked(store)
    assert places(rows) == [(256, 1, 1), (128, 2, 2)]
    assert [row["samples"] for row in rows] == [11, 11]


def test_throttled_rounds_are_kept_and_not_ranked(store: RunStore) -> None:
    family = up_family([128, 256])
    throttled, clean = per_flop({128: 5.0, 256: 2.0}), per_flop({128: 1.0, 256: 2.0})
    measured = measurement(family, lambda gemm, number: (throttled if number < 8 else clean)(gemm, number), rounds=20)
    keep(store, family, replace(measured, first_round=8))
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert [row["rounds"] for row in rows] == [12, 12]
    assert rows[0]["p95_s"] == pytest.approx(rows[0]["p5_s"])
    assert store.reader().samples().table.num_rows == 40


def test_an_attempt_that_died_never_hides_one_that_measured(store: RunStore) -> None:
    family = up_family([128, 256])
    died = {gemm.gemm_id: ("worker_died", "signal 9") for gemm in family.gemms}
    keep(store, family, measurement(family, per_flop({256: 2.0}), rounds=12), attempt=0)
    keep(store, family, measurement(family, per_flop({}), status=died), attempt=1)
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert {row["status"] for row in rows} == {"ok"}


def test_a_death_on_one_device_is_made_good_by_another(store: RunStore) -> None:
    family = up_family([128])
    died = {gemm.gemm_id: ("worker_died", "signal 9") for gemm in family.gemms}
    keep(store, family, measurement(family, per_flop({}), status=died), attempt=0)
    healthy = measurement(family, per_flop({}), device=replace(DEVICE, uuid="GPU-1"))
    keep(store, family, healthy, attempt=1)
    (row,) = ranked(store)
    assert (row["rank"], row["status"], row["devices"]) == (1, "ok", ["GPU-1"])


def test_devices_of_one_model_are_pooled_and_each_is_compared_within_itself(store: RunStore) -> None:
    family = up_family([128, 256])
    cost = per_flop({128: 1.0, 256: 1.1})
    keep(store, family, measurement(family, cost, rounds=10, noise=0.001))
    slow = measurement(
        family,
        lambda gemm, number: 5 * cost(gemm, number),
        rounds=10,
        noise=0.001,
        device=replace(DEVICE, uuid="GPU-1"),
    )
    keep(store, family, slow)
    rows = ranked(store)
    assert places(rows) == [(128, 1, 1), (256, 2, 2)]
    assert (rows[0]["rounds"], rows[0]["devices"]) == (20, ["GPU-0", "GPU-1"])
    assert rows[1]["relative"] == pytest.approx(1.1, abs=0.002)


@pytest.mark.parametrize(
    "timing", [Timing(l2="hot"), Timing(power="burst"), Timing(protocol="seed")], ids=["l2", "power", "protocol"]
)
def test_regimes_are_never_mixed(store: RunStore, timing: Timing) -> None:
    family = up_family([128, 256])
    keep(store, family, measurement(family, per_flop({128: 1.0, 256: 2.0})))
    other = measurement(family, per_flop({128: 2.0, 256: 1.0}), device=replace(DEVICE, uuid="GPU-1"))
    keep(store, family, other, timing=timing)
    rows = ranked(store)
    found = {(row["protocol"], row["l2"], row["power"]): row["d_ff"] for row in rows if row["rank"] == 1}
    assert found == {
        ("interleaved", "rotate", "sustained"): 128,
        (timing.protocol, timing.cache, timing.regime): 256,
    }


def test_gpu_models_are_ranked_apart(store: RunStore) -> None:
    family = up_family([128, 256])
    keep(store, family, measurement(family, per_flop({128: 1.0, 256: 2.0})))
    other = replace(DEVICE, gpu="NVIDIA A100-SXM4-80GB", uuid="GPU-1")
    keep(store, family, measurement(family, per_flop({128: 2.0, 256: 1.0}), device=other))
    rows = ranked(store)
    assert [(row["gpu"], row["d_ff"], row["rank"]) for row in rows] == [
        ("NVIDIA A100-SXM4-80GB", 256, 1),
        ("NVIDIA A100-SXM4-80GB", 128, 2),
        ("NVIDIA H200", 128, 1),
        ("NVIDIA H200", 256, 2),
    ]


# What was not measured


def test_a_candidate_with_a_failed_part_comes_last_without_a_rank(store: RunStore) -> None:
    family = mlp_family([128, 256, 512], baseline=128)
    down = family.candidates[0].parts[1].gemm.gemm_id
    measured = measurement(family, per_flop({}), status={down: ("oom", "needs 3.2 GiB, 1.0 GiB free")})
    keep(store, family, measured)
    rows = ranked(store)
    assert [row["d_ff"] for row in rows] == [256, 512, 128]
    last = rows[-1]
    assert (last["rank"], last["tie_group"], last["tflops"], last["samples"]) == (None, None, None, None)
    assert (last["status"], last["message"]) == ("oom", "down: needs 3.2 GiB, 1.0 GiB free")
    assert last["baseline"] is True
    assert [row["speedup"] for row in rows] == [None, None, None]


def test_samples_of_a_gemm_that_failed_later_are_not_ranked(store: RunStore) -> None:
    family = up_family([128, 256])
    measured = measurement(family, per_flop({}))
    wrong = replace(measured.facts[0], status="wrong_result", message="off by 0.5")
    keep(store, family, replace(measured, facts=(wrong, measured.facts[1])))
    assert [(row["d_ff"], row["rank"], row["status"]) for row in ranked(store)] == [
        (256, 1, "ok"),
        (128, None, "wrong_result"),
    ]


def test_a_family_without_any_sample_is_listed_with_its_reasons(store: RunStore) -> None:
    family = up_family([128, 256])
    skipped = {gemm.gemm_id: ("skipped", "too large") for gemm in family.gemms}
    keep(store, family, measurement(family, per_flop({}), status=skipped, resolved=False, stop_reason="nothing"))
    rows = ranked(store)
    assert [(row["rank"], row["status"], row["message"]) for row in rows] == [(None, "skipped", "up: too large")] * 2
    assert not any(row["resolved"] for row in rows)


def test_a_candidate_dropped_early_is_ranked_by_the_rounds_it_has(store: RunStore) -> None:
    family = up_family([128, 256, 512])
    measured = measurement(family, drifting(per_flop({128: 1.0, 256: 1.1, 512: 2.0})), rounds=20, noise=0.001)
    early = family.gemms[2].gemm_id

    def stays(sample: Sample) -> bool:
        return sample.gemm_id != early or sample.round < 10

    keep(store, family, replace(measured, samples=tuple(filter(stays, measured.samples))))
    rows = ranked(store)
    assert [(row["d_ff"], row["rounds"]) for row in rows] == [(128, 20), (256, 20), (512, 10)]
    assert rows[2]["relative_low"] < 2.0 < rows[2]["relative_high"]


def test_what_one_that_stayed_takes_is_what_it_took_once_the_others_had_left(store: RunStore) -> None:
    family = up_family([128, 256, 512])
    early = family.gemms[2].gemm_id

    def cost(gemm: Gemm, number: int) -> float:  # beside the slow one, the others are a fifth faster
        return per_flop({128: 1.0, 256: 1.1, 512: 3.0})(gemm, number) * (0.8 if number < 10 and gemm.n < 512 else 1.0)

    measured = measurement(family, cost, rounds=30)
    kept = [sample for sample in measured.samples if sample.gemm_id != early or sample.round < 10]
    keep(store, family, replace(measured, samples=tuple(kept)))
    rows = ranked(store)
    assert [row["samples"] for row in rows] == [30, 30, 10]
    flops = [gemm.flops for gemm in family.gemms]
    alone = per_flop({128: 1.0, 256: 1.1, 512: 3.0})
    assert [row["seconds"] for row in rows] == pytest.approx([alone(gemm, 20) for gemm in family.gemms])
    assert [row["tflops"] * row["seconds"] * 1e12 for row in rows] == pytest.approx(flops)
    assert rows[2]["relative"] == pytest.approx(3.0, rel=1e-3)
    assert rows[2]["relative_high"] == pytest.approx(3.0 / 0.8, rel=1e-3)


def test_an_empty_run_has_an_empty_ranking(store: RunStore) -> None:
    assert rank(store) == Ranking(table=RANKING_SCHEMA.empty_table())


def test_shards_alone_are_enough_and_a_corrupt_one_is_named(store: RunStore) -> None:
    good, bad = up_family([128]), mlp_family([128])
    keep(store, good, measurement(good, per_flop({})))
    broken = keep(store, bad, measurement(bad, per_flop({})))
    broken.write_bytes(broken.read_bytes()[:50])
    store.manifest_path.unlink()
    ranking = rank(RunStore.open(store.path))
    assert ranking.table["role"].to_pylist() == ["mlp_up"]
    assert [str(broken) in problem for problem in ranking.problems] == [True]


def test_ranking_twice_writes_the_same_bytes_wherever_the_run_lies(store: RunStore, tmp_path: Path) -> None:
    def noisy(gemm: Gemm, number: int) -> float:
        return gemm.flops * 1e-12 * (1 + 0.01 * math.sin(number * gemm.n))

    for device in (DEVICE, replace(DEVICE, uuid="GPU-1")):
        for family in (up_family([128, 256]), mlp_family([128, 256, 512])):
            keep(store, family, measurement(family, noisy, device=device))
    store.write_ranking(rank(store).table, "text")
    first = store.ranking_path.read_bytes()
    copy = RunStore.open(shutil.copytree(store.path, tmp_path / "copy"))
    for again in (store, copy):
        again.write_ranking(rank(again).table, "text")
        assert again.ranking_path.read_bytes() == first
    assert read_ranking(store).equals(rank(store).table)
    assert store.markdown_path.read_text() == "text"
