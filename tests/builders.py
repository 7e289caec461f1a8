"""Synthetic Families and Measurements with known truth, for tests that need no device."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.catalogue import GpuSpec
from orchestrator.columns import RANKING_SCHEMA
from orchestrator.store import RunStore
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, GemmFacts, Measurement, Sample, Telemetry

Cost = Callable[[Gemm, int], float]
"""Seconds per call of a Gemm in a round."""

DEVICE = DeviceInfo(
    kind="cuda",
    gpu="NVIDIA H200",
    uuid="GPU-0",
    host="node1",
    sm_count=132,
    l2_bytes=60 << 20,
    memory_bytes=140 << 30,
    torch="2.11",
    pci_id="0000:01:00.0",
    driver="580.159",
    runtime="CUDA 13.0",
    blas="cuBLAS 13.1",
    power_limit_w=700.0,
    sm_clock_max_mhz=1980.0,
)

TELEMETRY = Telemetry(
    sm_clock_mean_mhz=1650.0,
    sm_clock_min_mhz=1320.0,
    memory_clock_mean_mhz=3201.0,
    temperature_max_c=61.0,
    power_mean_w=690.0,
    energy_j=1725.0,
    power_limited=True,
    reasons=("sw_power_cap",),
)


RANKING_ROW: dict[str, Any] = {
    "gpu": "NVIDIA H200",
    "family_id": "mlp-h8192-tp8-b4-s2048-bf16",
    "role": "mlp",
    "h": 8192,
    "tp": 8,
    "batch": 4,
    "seq": 2048,
    "dtype": "bf16",
    "passes": "fwd",
    "axis": "d_ff",
    "d_ff": 21845,
    "baseline": False,
    "mlp_params": 3 * 8192 * 21845,
    "rank": 1,
    "tie_group": 1,
    "seconds": 1e-3,
    "tflops": 633.42,
    "relative": 1.0,
    "relative_low": 1.0,
    "relative_high": 1.0,
    "speedup": 1.032,
    "speedup_low": 1.030,
    "speedup_high": 1.034,
    "rounds": 30,
    "align_local": 1,
    "parts": [],
    "throttled": False,
    "resolved": True,
    "stop_reason": "resolved",
    "status": "ok",
    "message": "",
    "protocol": "interleaved",
    "protocol_version": 1,
    "l2": "rotate",
    "power": "sustained",
}
"""One ranked Candidate as a ranking holds it."""


def round_spec(peak_tflops: Mapping[str, float | None]) -> GpuSpec:
    """A GPU of round numbers: 100 SMs, 1 GB, 1000 GB/s."""
    return GpuSpec(
        key="round",
        family="round",
        names=("Round",),
        vendor="nobody",
        sm_count=100,
        memory_gb=1,
        bandwidth_gb_s=1000,
        l2_mb=None,
        llc_mb=None,
        boost_mhz=None,
        power_w=None,
        intra_node_gb_s=None,
        peak_tflops=MappingProxyType(dict(peak_tflops)),
        best_bf16_tflops=None,
        sources=(),
    )


def up_family(d_ffs: Sequence[int], *, baseline: int | None = None, h: int = 64, tp: int = 1) -> Family:
    """A Family with one Gemm per Candidate: 32 tokens through an (h, d_ff / tp) matrix."""
    return _family("mlp_up", d_ffs, baseline, h, tp, lambda d: {"up": _mm(32, d // tp, h)})


def mlp_family(d_ffs: Sequence[int], *, baseline: int | None = None, h: int = 64, tp: int = 1) -> Family:
    """A Family with two Gemms per Candidate: gate_up (n = 2·d_ff/tp) and down (k = d_ff/tp)."""
    return _family(
        "mlp", d_ffs, baseline, h, tp, lambda d: {"gate_up": _mm(32, 2 * d // tp, h), "down": _mm(32, h, d // tp)}
    )


def measurement(
    bundle: Bundle | Family,
    cost: Cost,
    *,
    rounds: int = 20,
    noise: float = 0.0,
    unsteady: float = 0.0,
    random_seed: int = 0,
    device: DeviceInfo = DEVICE,
    status: Mapping[str, tuple[str, str]] | None = None,
    **facts: object,
) -> Measurement:
    """Time every Gemm of a Bundle in every round; one whose cost is NaN has left the rounds.

    unsteady: by how much the device is slower at some visits than at others, which each of them says.
    status: (status, message) by the gemm_id of those that failed.
    """
    bundle, failed = as_bundle(bundle), status or {}
    random = np.random.default_rng(random_seed)
    live = [gemm for gemm in bundle.gemms if gemm.gemm_id not in failed]
    samples = [
        Sample(
            gemm_id=live[index].gemm_id,
            round=number,
            position=position,
            calls=4,
            lead_calls=1,
            seconds=cost(live[index], number) * float(np.exp(noise * random.standard_normal())),
        )
        for number in range(rounds)
        for position, index in enumerate(random.permutation(len(live)))
    ]
    samples = [sample for sample in samples if not math.isnan(sample.seconds)]
    if unsteady:
        slow = np.exp(unsteady * random.standard_normal(len(samples))).astype(np.float32).tolist()
        samples = [
            replace(sample, seconds=sample.seconds * slowdown, slowdown=slowdown)
            for sample, slowdown in zip(samples, slow, strict=True)
        ]
    known = [
        GemmFacts(gemm_id=gemm.gemm_id, launch="graph", energy_j=0.5)
        if gemm in live
        else GemmFacts(gemm_id=gemm.gemm_id, status=failed[gemm.gemm_id][0], message=failed[gemm.gemm_id][1])
        for gemm in bundle.gemms
    ]
    result = Measurement(
        bundle_id=bundle.bundle_id,
        samples=tuple(samples),
        facts=tuple(known),
        device=device,
        telemetry=TELEMETRY,
        started_utc="2026-11-29T10:00:00+00:00",
        prepare_s=0.25,
        measuring_s=2.5,
        rounds=rounds,
        resolved=True,
        stop_reason="resolved",
    )
    return replace(result, **facts)  # type: ignore[arg-type]


def as_bundle(item: Bundle | Family) -> Bundle:
    """A Family alone is a Bundle of one."""
    return item if isinstance(item, Bundle) else Bundle(families=(item,))


def per_flop(seconds_per_tflop: Mapping[int, float]) -> Cost:
    """A steady cost, in seconds per 10^12 FLOPs, looked up by the Gemm's n or else its k; 1.0 for others."""

    def cost(gemm: Gemm, number: int) -> float:
        return gemm.flops * 1e-12 * seconds_per_tflop.get(gemm.n, seconds_per_tflop.get(gemm.k, 1.0))

    return cost


def ranking_of(*changes: dict[str, Any]) -> pa.Table:
    """A ranking with one row per argument: RANKING_ROW with these changes."""
    rows = [{**RANKING_ROW, **change} for change in changes]
    return pa.Table.from_pylist(
        [{"value": row["d_ff"], "params": row["mlp_params"], **row} for row in rows], schema=RANKING_SCHEMA
    )


def read_ranking(store: RunStore) -> pa.Table:
    """The ranking that was written last."""
    return pq.read_table(store.ranking_path, partitioning=None)


def parts_at(gate_up: float, down: float) -> list[dict[str, Any]]:
    """The parts of a Candidate of role ``mlp`` with these TFLOP/s."""
    return [{"part": "gate_up", "tflops": gate_up}, {"part": "down", "tflops": down}]


def _family(
    role: str, d_ffs: Sequence[int], baseline: int | None, h: int, tp: int, parts: Callable[[int], dict[str, Gemm]]
) -> Family:
    candidates = tuple(
        Candidate(
            value=d_ff,
            parts=tuple(Part(name=name, gemm=gemm) for name, gemm in parts(d_ff).items()),
            baseline=d_ff == baseline,
            params=(2 if role == "mlp_up" else 3) * h * d_ff,
            local_dim=d_ff // tp,
        )
        for d_ff in d_ffs
    )
    return Family(role=role, h=h, tp=tp, batch=4, seq=8, dtype="fp16", candidates=candidates)


def _mm(m: int, n: int, k: int) -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype="fp16", layout="nt")
