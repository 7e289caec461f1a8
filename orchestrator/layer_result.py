"""A measured layer: the case, its summary and the samples, also as plain values."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from orchestrator.forms import CsvTable
from orchestrator.layer import LayerCase, layer
from orchestrator.layer_summary import LayerSummary, Row, VariantSummary, summarise
from tasks.interval import Interval
from tasks.records import DeviceInfo
from tasks.settings import Timing

if TYPE_CHECKING:
    from tasks.device import Device
    from tasks.layer_timing import Timings

CASE = ("tp", "ep", "b", "s", "dtype", "training")
CSV_COLUMNS = (
    *("model", "h", *CASE, "gpu", "variant", "name", "kind", "gemm_id", "status"),
    *("message", "times", "seconds.median", "seconds.low", "seconds.high", "share", "flops", "tflops", "launch"),
)
SECONDS = 2.0
"""Rounds go on for so long beyond the least ones, or until they are as many as asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerResult:
    """What one case came to."""

    case: LayerCase
    summary: LayerSummary
    timings: "Timings"

    @property
    def whole(self) -> bool:
        """Whether every component of every variant was measured."""
        return not any(variant.missing for variant in self.summary.variants)


def timing_of(rounds: int, seed: int, *, on_cpu: bool) -> Timing:
    """The settings of the rounds; a CPU is not soaked: it is there to try the verb."""
    soaked = Timing(max_rounds=rounds, max_seconds=SECONDS, seed=seed)
    return replace(soaked, soak_min_s=0.0, soak_max_s=0.0) if on_cpu else soaked


def measure(device: "Device", case: LayerCase, timing: Timing) -> LayerResult:
    """Time one case and give the memory back."""
    from tasks.layer_timing import time_layer

    wanted = layer(case)
    try:
        timings = time_layer(device, wanted, timing)
    finally:
        device.close()
    return LayerResult(case=case, summary=summarise(wanted, timings, timing.confidence), timings=timings)


def document(results: Sequence[LayerResult]) -> dict[str, Any]:
    """Return everything as plain values; docs/layer.md describes them."""
    device: DeviceInfo | None = results[0].timings.device if results else None
    return {"device": asdict(device) if device else None, "layers": [_layer(result) for result in results]}


def csv_table(results: Sequence[LayerResult]) -> CsvTable:
    """Return a row a component of each variant, without its samples."""
    rows = (
        {
            "model": result.case.model.name,
            "h": result.case.model.h,
            **{name: getattr(result.case, name) for name in CASE},
            "gpu": result.timings.device.gpu,
            "variant": variant.name,
            **_row(row, result.timings),
        }
        for result in results
        for variant in result.summary.variants
        for row in variant.rows
    )
    return CsvTable(columns=CSV_COLUMNS, rows=rows)


def _layer(result: LayerResult) -> dict[str, Any]:
    case, timings = result.case, result.timings
    return {
        "model": asdict(case.model),
        **{name: getattr(case, name) for name in CASE},
        "whole": result.whole,
        "variants": [_variant(variant, timings) for variant in result.summary.variants],
        "attention": [_row(row, timings) for row in result.summary.attention],
        "rounds": timings.rounds,
        "prepare_s": timings.prepare_s,
        "soak_s": timings.soak_s,
        "measuring_s": timings.measuring_s,
        "telemetry": asdict(timings.telemetry),
    }


def _variant(variant: VariantSummary, timings: "Timings") -> dict[str, Any]:
    return {
        "name": variant.name,
        "seconds": variant.seconds,
        "round_s": _interval(variant.interval),
        "missing": [row.component.name for row in variant.missing],
        "gemm_share": variant.gemm_share,
        "product_share": variant.product_share,
        "flops": variant.flops,
        "tflops": variant.tflops,
        "end_to_end_s": _interval(variant.whole),
        "end_to_end_message": variant.whole_message,
        "end_to_end_ran": list(timings.taken.get(variant.name, ())),
        "apart": variant.apart,
        "components": [_row(row, timings) for row in variant.rows],
    }


def _row(row: Row, timings: "Timings") -> dict[str, Any]:
    return {
        "name": row.component.name,
        "kind": row.component.kind,
        "gemm_id": row.component.gemm.gemm_id if row.component.gemm else None,
        "status": row.status,
        "message": row.message,
        "times": row.times,
        "seconds": _interval(row.seconds),
        "share": row.share,
        "flops": row.component.flops,
        "tflops": row.tflops,
        "launch": row.launch,
        "samples": list(timings.samples.get(row.component.key, ())),
    }


def _interval(found: Interval | None) -> dict[str, float] | None:
    return asdict(found) if found else None
