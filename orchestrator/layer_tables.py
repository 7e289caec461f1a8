"""Measured layers in the terminal, within 80 columns."""

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.text import Text

from orchestrator.drawing import table, write
from orchestrator.figures import UNKNOWN, duration
from orchestrator.layer import FLASH, UNFUSED, LayerCase
from orchestrator.layer_result import LayerResult
from orchestrator.layer_summary import Row, VariantSummary
from orchestrator.tables import tflops
from tasks.interval import Interval

TITLES = {UNFUSED: "without FlashAttention", FLASH: "with FlashAttention"}
COLUMNS = ("component", "×", "time", "±", "share", "TFLOP/s", "launch")
SUMMARY = ("h", "attention", "latency", "GEMM share", "with fused", "TFLOP/s")
LEGEND = (
    "time: median of one call; ±: half of its 95% interval; ×: calls in a layer; share: of the sum of all calls. GEMM "
    "share: of the Gemms alone; with fused: and of the fused attention kernel, which holds two products and a softmax."
)


def show(results: Sequence[LayerResult], console: Console | None = None) -> None:
    """Print a table per layer and variant, then, of several layers, a summary."""
    write(lambda console: _draw(results, console), console)


def _draw(results: Sequence[LayerResult], console: Console) -> None:
    for result in results:
        console.print(Text(title(result.case), style="bold cyan"))
        for renderable in _layer(result, console.width):
            console.print(renderable)
        console.print()
    if len(results) > 1:
        console.print(table(SUMMARY, list(summary(results)), console.width, left=1))
    console.print(Text(LEGEND, style="dim"))
    console.print(Text(_device(results[-1])))


def title(case: LayerCase) -> str:
    """Name the model, its dimensions and how it runs."""
    model = case.model
    mlp = f"experts={model.experts} topk={model.topk} expert_d_ff={model.expert_d_ff}"
    sizes = f"h={model.h} a={model.a} kv={model.kv} head_dim={model.head_dim} "
    sizes += mlp if model.experts else f"d_ff={model.d_ff} {model.mlp}"
    name = f"{model.name}: " if model.name else ""
    ranks = f"tp={case.tp}" + (f" ep={case.ep}" if model.experts else "")
    training = ", training (forward)" if case.training else ""
    return f"{name}{sizes}, {ranks} b={case.b} s={case.s} {case.dtype}{training}"


def summary(results: Sequence[LayerResult]) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each layer's variants."""
    for result in results:
        for variant in result.summary.variants:
            lacks = " *" if variant.missing else ""
            yield (
                str(result.case.model.h),
                variant.name,
                duration(variant.seconds or None) + lacks,
                percent(variant.gemm_share),
                percent(variant.product_share),
                _rate(variant.tflops),
            )


def percent(share: float | None) -> str:
    """Write a share with one digit.

    >>> percent(0.8125), percent(None)
    ('81.2%', '-')
    """
    return UNKNOWN if share is None else f"{100 * share:.1f}%"


def _layer(result: LayerResult, width: int) -> Iterator[RenderableType]:
    for variant in result.summary.variants:
        yield Text(f"\n{TITLES.get(variant.name, variant.name)}", style="bold")
        rows = [_cells(row) for row in variant.rows if row.seconds]
        rows.append(_sum(variant))
        yield table(COLUMNS, rows, width, left=1)
        yield Text("\n".join(_notes(variant)))
    yield Text("\nfused attention (PyTorch's SDPA, causal)", style="bold")
    measured = [row for row in result.summary.attention if row.seconds]
    if measured:
        yield table(COLUMNS, [_cells(row) for row in measured], width, left=1)
    others = [
        f"{row.component.name}: {row.status}: {row.message}" for row in result.summary.attention if not row.seconds
    ]
    if others:
        yield Text("\n".join(others), style="yellow")
    if result.timings.telemetry.throttled:
        reasons = ", ".join(result.timings.telemetry.reasons)
        yield Text(f"the device was throttled ({reasons}): measure again when it is cool", style="yellow")


def _notes(variant: VariantSummary) -> Iterator[str]:
    yield f"GEMM share {percent(variant.gemm_share)}; with fused attention {percent(variant.product_share)}"
    for row in variant.missing:
        yield f"the sum lacks {row.component.name}: {row.status}: {row.message}"
    if variant.whole is not None and variant.apart is not None:
        longer = "longer" if variant.apart >= 0 else "shorter"
        yield f"run from end to end {duration(variant.whole.median)}: the sum is {percent(abs(variant.apart))} {longer}"
    elif variant.whole_message:
        yield f"not run from end to end: {variant.whole_message}"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.component.name,
        str(row.times),
        duration(row.seconds.median if row.seconds else None),
        _half(row.seconds),
        percent(row.share),
        _rate(row.tflops),
        row.launch or UNKNOWN,
    )


def _sum(variant: VariantSummary) -> tuple[str, ...]:
    """The cells of all components together; where none was measured there is no sum."""
    seconds, share = (variant.seconds, 1.0) if variant.seconds else (None, None)
    return "sum", "", duration(seconds), _half(variant.interval), percent(share), _rate(variant.tflops), ""


def _half(interval: Interval | None) -> str:
    return UNKNOWN if interval is None else f"{100 * (interval.high - interval.low) / 2 / interval.median:.1f}%"


def _rate(value: float | None) -> str:
    return UNKNOWN if value is None else tflops(value)


def _device(result: LayerResult) -> str:
    device, timings = result.timings.device, result.timings
    software = ", ".join(filter(None, (f"torch {device.torch}", device.runtime, device.blas)))
    return f"{device.gpu}, {software}: {timings.rounds} rounds in {timings.measuring_s:.1f} s"
