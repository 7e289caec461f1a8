"""Runs for reports: made-up ones of any size, and ones whose every text means harm."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.ranking import Ranking
from orchestrator.report.source import ENVIRONMENT, ReportRun
from orchestrator.store import RunStore, shard_table
from tasks.family import Family
from tasks.records import DeviceInfo
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, per_flop, ranking_of

EXAMPLES = Path(__file__).parents[1] / "results" / "examples"
HOSTILE = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{7*7}}%{x}</script>]]>&lt;b&gt;"
"""Ends attributes, elements, scripts and templates, wherever it is written without care."""

SHARD: dict[str, Any] = {
    **dict.fromkeys(ENVIRONMENT),
    **{"uuid": "GPU-0", "bundle_id": "b", "attempt": 1, "family_id": "f", "device_kind": "cuda", "gpu": "NVIDIA H200"},
    "protocol": "interleaved",
    **{"host": "node1", "sm_clock_mean_mhz": 1650.0, "sm_clock_min_mhz": 1320.0, "memory_clock_mean_mhz": 3201.0},
    **{"temperature_max_c": 61.0, "power_mean_w": 690.0, "window_energy_j": 1725.0, "power_limited": True},
    **{"throttled": False, "reasons": [], "started_utc": None, "prepare_s": 0.0, "soak_s": 0.0, "measuring_s": 2.0},
    **{"rounds": 20, "stop_reason": "resolved", "redone": 0, "notes": [], "canary": None, "memory_bytes": 140 << 30},
}
"""One Shard as a report reads it."""


def part(name: str, n: int, seconds: float) -> dict[str, Any]:
    """A Gemm of 8192 tokens through an (h, n) matrix of h = 4096, as a part of a ranked Candidate."""
    gemm_id = f"mm-1x8192x{n}x4096-bf16-nt"
    flops = 2 * 8192 * n * 4096
    sizes = {"kind": "mm", "b": 1, "m": 8192, "n": n, "k": 4096}
    return {
        "part": name, "gemm_id": gemm_id, **sizes, "seconds": seconds, "tflops": flops / seconds / 1e12, "share": 0.5
    }  # fmt: skip


def candidates(family: int, count: int, *, gpu: str = "NVIDIA H200", speed: float = 1.0) -> list[dict[str, Any]]:
    """The ranking's rows of the ``family``-th Family, the best first; each costs 1% more than the one before.

    h, tp and batch say which Family it is; the last row is the baseline.
    """
    h, tp, batch = 1024 * (1 + family % 25), 2 ** (family // 25 % 4), 1 + family // 100
    level = (1 + 0.0001234567 * family) / speed
    rows = []
    for place in range(count):
        d_ff, cost = 64 * (100 + count - 1 - place), 1 + 0.01 * place
        seconds, faster = 1e-3 * cost * level, (1 + 0.01 * (count - 1)) / cost
        known = {
            **{"gpu": gpu, "family_id": f"mlp-h{h}-tp{tp}-b{batch}-s2048-bf16", "h": h, "tp": tp, "batch": batch},
            **{"d_ff": d_ff, "baseline": place == count - 1, "align_local": 64, "local_dim": d_ff // tp},
            **{"rank": place + 1, "tie_group": place + 1, "seconds": seconds, "tflops": 600.0 / cost / level},
            **{"relative": cost, "relative_low": cost - 0.001, "relative_high": cost + 0.001},
            **{"speedup": faster, "speedup_low": faster * 0.999, "speedup_high": faster * 1.001},
            **{"p5_s": seconds * 0.98, "p25_s": seconds * 0.99, "p75_s": seconds * 1.01, "p95_s": seconds * 1.02},
            **{"samples": 40, "cv": 0.0123, "launch": "graph", "devices": ["GPU-0"]},
            "parts": [part("gate_up", 2 * d_ff, seconds / 2), part("down", d_ff, seconds / 2)],
        }
        rows.append(known)
    return rows


def made_run(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str = "made",
    shards: Sequence[Mapping[str, Any]] = (),
    ranking: Ranking | None = None,
    **manifest: Any,
) -> ReportRun:
    """A run with these rows of a ranking, without any file."""
    table = ranking_of(*map(dict, rows))
    known = [{**SHARD, **shard} for shard in (shards or [{}])]
    return ReportRun(
        name=name,
        path=name,
        manifest=manifest,
        ranking=ranking or Ranking(table=table),
        rows=table.to_pylist(),
        shards=known,
        families_of={shard["uuid"]: 1 for shard in known},
        layouts={part["gemm_id"]: "nt" for row in table.to_pylist() for part in row["parts"]},
    )


def many(families: int, count: int) -> ReportRun:
    """A run of so many Families with ``count`` Candidates each."""
    return made_run(
        [row for family in range(families) for row in candidates(family, count)], name=f"{families}-families"
    )


def written_run(
    path: Path,
    families: Sequence[Family],
    *,
    name: str = "it",
    device: DeviceInfo = DEVICE,
    failed: Mapping[str, tuple[str, str]] | None = None,
    manifest: Mapping[str, Any] | None = None,
) -> RunStore:
    """A run on disk in which every Gemm takes a second per TFLOP, those of d_ff 128 twice that.

    failed: status and message by gemm_id.
    """
    store = RunStore.create(path, name, manifest or {})
    for family in families:
        measured = measurement(family, per_flop({128: 2.0}), device=device, noise=0.001, status=failed)
        table = shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p")
        store.write_shard(table)
    return store


LAYER: dict[str, Any] = {
    "device": {"gpu": "NVIDIA H200"},
    "layers": [
        {
            "model": {"name": "tiny", "h": 64},
            **{"tp": 1, "b": 1, "s": 8, "dtype": "fp16"},
            "variants": [
                {
                    **{"name": "unfused", "seconds": 4e-6, "gemm_share": 0.75},
                    "components": [
                        {"name": "qkv", "kind": "gemm", "share": 0.75, "times": 1, "seconds": {"median": 3e-6}},
                        {"name": "norm", "kind": "other", "share": 0.25, "times": 2, "seconds": {"median": 5e-7}},
                        {"name": "softmax", "kind": "other", "share": None, "times": 1, "seconds": None},
                    ],
                }
            ],
        }
    ],
}
"""The part of the output of ``layer --json`` that a report reads."""
