"""Latencies and shares of a layer from fake times, worked out by hand."""

from collections.abc import Mapping
from typing import Any

import pytest

from orchestrator.layer_summary import LayerSummary, VariantSummary, summarise
from tasks.component import Component, Layer, Variant
from tasks.gemm import Gemm
from tasks.layer_timing import Timings
from tasks.records import GemmFacts
from tests.builders import DEVICE, TELEMETRY

GEMM = Gemm(kind="mm", b=1, m=1000, n=1000, k=1000, dtype="bf16", layout="nt")
PROJECTION = Component(name="qkv", kind="gemm", dtype="bf16", gemm=GEMM, flops=GEMM.flops)
NORM = Component(name="norm", dtype="bf16", op="rms_norm", inputs=((4,),), output=4)
SOFTMAX = Component(name="softmax", dtype="bf16", op="softmax", inputs=((4,),), output=4)


def fused(name: str) -> Component:
    return Component(name=name, kind="attention", dtype="bf16", op="attention", flops=10**9)


LAYER = Layer(
    variants=(
        Variant(name="unfused", steps=((NORM,), (PROJECTION,), (SOFTMAX,), (NORM,))),
        Variant(name="flash", steps=((NORM,), (PROJECTION,), (fused("slow"), fused("quick"), fused("none")), (NORM,))),
    ),
    extras=(fused("math"),),
)
SECONDS = {"norm": 1e-3, GEMM.gemm_id: 6e-3, "softmax": 4e-3, "slow": 3e-3, "quick": 2e-3, "math": 9e-3}
REFUSED = GemmFacts(gemm_id="none", status="unsupported", message="no kernel")


def timings(samples: Mapping[str, tuple[float, ...]], *failures: GemmFacts, **fields: Any) -> Timings:
    values: dict[str, Any] = {"whole": {}, "taken": {}, "launches": {"norm": "graph"}} | fields
    return Timings(
        samples=samples,
        failures=(REFUSED, *failures),
        device=DEVICE,
        telemetry=TELEMETRY,
        rounds=3,
        prepare_s=1.0,
        soak_s=0.0,
        measuring_s=1.0,
        **values,
    )


def steady(**without: None) -> dict[str, tuple[float, ...]]:
    return {key: (each, each, each) for key, each in SECONDS.items() if key not in without}


def variants(found: LayerSummary) -> dict[str, VariantSummary]:
    return {variant.name: variant for variant in found.variants}


def test_the_latency_is_the_sum_of_all_calls_and_the_shares_are_of_it() -> None:
    unfused = variants(summarise(LAYER, timings(steady())))["unfused"]
    assert unfused.seconds == pytest.approx(12e-3)  # 2 norms, 6 ms, 4 ms
    shares = {row.component.name: row.share for row in unfused.rows}
    assert shares == pytest.approx({"norm": 2 / 12, "qkv": 6 / 12, "softmax": 4 / 12})
    assert [(row.component.name, row.times) for row in unfused.rows] == [("norm", 2), ("qkv", 1), ("softmax", 1)]
    assert sum(row.share or 0 for row in unfused.rows) == pytest.approx(1)


def test_the_gemm_share_leaves_fused_attention_out_and_is_shown_with_it_too() -> None:
    found = variants(summarise(LAYER, timings(steady())))
    assert (found["unfused"].gemm_share, found["unfused"].product_share) == pytest.approx((0.5, 0.5))
    assert (found["flash"].gemm_share, found["flash"].product_share) == pytest.approx((0.6, 0.8))  # of 10 ms: 6; 6 + 2


def test_the_fastest_backend_is_part_of_the_layer_and_all_are_shown() -> None:
    found = summarise(LAYER, timings(steady()))
    assert [row.component.name for row in variants(found)["flash"].rows] == ["norm", "qkv", "quick"]
    assert [(row.component.name, row.status) for row in found.attention] == [
        ("slow", "ok"),
        ("quick", "ok"),
        ("none", "unsupported"),
        ("math", "ok"),
    ]
    assert found.attention[2].message == "no kernel"


def test_rates_are_products_over_time() -> None:
    found = variants(summarise(LAYER, timings(steady())))["flash"]
    rates = {row.component.name: row.tflops for row in found.rows}
    assert rates == {"norm": None, "qkv": pytest.approx(2e9 / 6e-3 / 1e12), "quick": pytest.approx(1e9 / 2e-3 / 1e12)}
    assert found.flops == 3 * 10**9
    assert found.tflops == pytest.approx(3e9 / 10e-3 / 1e12)


def test_a_sum_that_lacks_a_component_says_so() -> None:
    large = GemmFacts(gemm_id="softmax", status="skipped", message="needs 12.00 GiB, 3.00 free")
    found = variants(summarise(LAYER, timings(steady(softmax=None), large, whole={"unfused": (0.01,)})))["unfused"]
    assert found.seconds == pytest.approx(8e-3)
    assert [(row.component.name, row.status, row.message) for row in found.missing] == [
        ("softmax", "skipped", "needs 12.00 GiB, 3.00 free")
    ]
    assert found.gemm_share == pytest.approx(6 / 8)
    assert found.apart is None  # no layer without softmax was run


def test_where_no_backend_ran_the_flash_variant_lacks_its_first() -> None:
    found = variants(summarise(LAYER, timings(steady(slow=None, quick=None))))["flash"]
    assert [row.component.name for row in found.missing] == ["slow"]


def test_the_sum_is_compared_with_the_layer_run_from_end_to_end() -> None:
    found = variants(summarise(LAYER, timings(steady(), whole={"flash": (8e-3, 8e-3, 9e-3)})))
    assert found["flash"].apart == pytest.approx(10 / 8 - 1)
    assert found["unfused"].apart is None


def test_intervals_of_the_sum_are_those_of_sums_within_a_round() -> None:
    """A drift that all share stays in the sum; one that two do not share cancels out."""
    samples = steady() | {GEMM.gemm_id: (5e-3, 6e-3, 7e-3), "softmax": (5e-3, 4e-3, 3e-3)}
    interval = variants(summarise(LAYER, timings(samples)))["unfused"].interval
    assert interval is not None
    assert (interval.median, interval.low, interval.high) == pytest.approx((12e-3, 12e-3, 12e-3))


def test_nothing_measured_is_no_division_by_zero() -> None:
    found = variants(summarise(LAYER, timings({})))["unfused"]
    assert (found.seconds, found.gemm_share, found.tflops, found.apart, found.interval) == (0, None, None, None, None)
