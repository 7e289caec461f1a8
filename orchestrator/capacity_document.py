"""What ``capacity`` found as plain values: one object, or a row a GEMM."""

from typing import Any

from orchestrator.capacity import BlockTime, Capacity, SideCapacity
from orchestrator.capacity_figure import Figure
from orchestrator.capacity_links import all_reduces
from orchestrator.capacity_target import cost_per_million
from orchestrator.forms import CsvTable

EXCLUDED = ("elementwise work", "fused attention", "launch gaps", "communication", "pipeline bubbles")
"""What no figure holds but the estimate of all-reduces, which stands apart."""
LAYOUT = ("tp", "pp", "dp", "b", "s", "mode", "dtype")
CSV_COLUMNS = (
    *("side", "gpu", "imported", "block", "times", "name", "b", "m", "n", "k", "flops", "seconds", "tflops"),
    *("interpolated", "m_n_swapped", "departure"),
)


def document(found: Capacity) -> dict[str, Any]:
    """Return the object; what is not known is null."""
    layout = found.asked.layout
    target = found.asked.target
    return {
        "model": layout.model.name,
        **{name: getattr(layout, name) for name in LAYOUT},
        "gpus": layout.gpus,
        "tokens_per_step": layout.tokens,
        "target": None
        if target is None
        else {"tokens_per_s": target.rate, "tokens": target.tokens, "days": target.days},
        "excluded": list(EXCLUDED),
        "left_out": sorted({each.work.name for each in found.left_out}),
        "sides": [_side(each) for each in found.sides],
    }


def csv_table(found: Capacity) -> CsvTable:
    """Return the GEMMs of every side."""
    rows = (
        {
            "side": each.side.name,
            "gpu": each.side.gpu,
            "imported": each.side.imported,
            "block": time.block.name,
            "times": time.block.times,
            **_figure(figure),
        }
        for each in found.sides
        for time in each.blocks
        for figure in time.figures
    )
    problems = tuple(problem for each in found.sides for problem in each.side.problems)
    return CsvTable(columns=CSV_COLUMNS, rows=rows, notes=problems)


def _side(each: SideCapacity) -> dict[str, Any]:
    need = each.needed
    return {
        "name": each.side.name,
        "gpu": each.side.gpu,
        "catalogue": None if each.side.spec is None else each.side.spec.key,
        "imported": each.side.imported,
        "source": each.side.source,
        "protocol": None if each.side.protocol is None else dict(each.side.protocol),
        "blocks": [_block(time) for time in each.blocks],
        "step_s": each.step_s,
        "stage_s": each.stage_s,
        "tflops": each.tflops,
        "peak_share": each.peak_share,
        "tokens_per_gpu_s": each.tokens_per_gpu_s,
        "all_reduce_estimate": None
        if each.all_reduce_s is None
        else {
            "intra_node_gb_s": each.link_gb_s,
            "per_layer": all_reduces(each.layout) if each.layout.tp > 1 else 0,
            "layer_s": each.all_reduce_s,
            "step_s": each.all_reduce_s * each.layout.model.layers,
            "tokens_per_gpu_s": each.exposed_tokens_per_gpu_s,
        },
        "interpolation": [
            {
                "axes": list(error.axes),
                "dtype": error.dtype,
                "near_m": error.near,
                "shapes": error.count,
                "median": error.median,
                "p90": error.p90,
            }
            for error in each.errors
        ],
        "needed": None
        if need is None
        else {
            "replicas": need.replicas,
            "gpus": need.gpus,
            "gpu_hours": need.gpu_hours,
            "days": need.days,
            "cost": need.cost,
        },
        "cost_per_million_tokens": None if each.price is None else cost_per_million(each.tokens_per_gpu_s, each.price),
        "problems": list(each.side.problems),
        "notes": list(each.side.notes),
    }


def _block(time: BlockTime) -> dict[str, Any]:
    return {
        "name": time.block.name,
        "times": time.block.times,
        "seconds": time.seconds,
        "gemms": [_figure(each) for each in time.figures],
    }


def _figure(each: Figure) -> dict[str, Any]:
    gemm = each.work.gemm
    return {
        "name": each.work.name,
        "b": gemm.b,
        "m": gemm.m,
        "n": gemm.n,
        "k": gemm.k,
        "flops": gemm.flops,
        "seconds": each.seconds,
        "tflops": gemm.flops / each.seconds / 1e12,
        "interpolated": {axis: list(span) for axis, span in each.spans.items()} or None,
        "m_n_swapped": each.turned,
        "departure": each.departure,
    }
