"""What ``capacity`` shows: the Gemms of a step and what follows from them, GPU models side by side."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from orchestrator.capacity import Capacity, SideCapacity
from orchestrator.capacity_figure import Figure
from orchestrator.capacity_grid import NEAR, Error
from orchestrator.capacity_layout import DECODE, PREFILL, TRAINING, Layout
from orchestrator.capacity_links import all_reduces
from orchestrator.capacity_target import Needed, cost_per_million
from orchestrator.compare_side import Side
from orchestrator.compare_tables import letter
from orchestrator.explain_tables import WIDTH, Table, joined, width
from orchestrator.figures import UNKNOWN

NOT_COUNTED = (
    "These are GEMM times alone: elementwise work, fused attention, launch gaps, communication and pipeline bubbles "
    "are not in the figures, so tokens/s are an upper bound, and GPUs and cost a lower one."
)
TABLE = (
    "tells neither layouts nor whether operands came from L2 (hot) or memory (cold); its levels stand beside measured "
    "ones only roughly"
)
BACKWARD = (
    "Of a table, backward GEMMs take the time of the same m, n and k, whatever the layout, and a weight's gradient "
    "that of (m, n) or (n, m)."
)
ESTIMATE = (
    "est.: an estimate, not measured: each all-reduce sends 2(tp-1)/tp of the step's tokens x h activations, of 2 "
    "bytes or more, without latency. It is not in the times above it. GB/s of a GPU to the others, one direction: "
)
NO_ESTIMATE = "All-reduces of tp are not estimated: no link bandwidth is known; give intra_node_gb_s=."


Group = Sequence[tuple[int, SideCapacity]]
Line = tuple[str, Callable[[SideCapacity], str]]


def capacity_tables(found: Capacity, columns: int = WIDTH) -> Iterator[Table]:
    """Everything: who is compared, the Gemms, what follows, and what the figures do not hold."""
    yield _head(found)
    for j in range(len(found.sides[0].blocks)):
        yield from _split(found, partial(_gemms, j), columns)
    yield from _split(found, partial(_summary, found), columns)
    yield Table(title="how far to believe it", notes=tuple(_notes(found)))
    yield from (Table(title=line) for each in found.sides for line in (*each.side.problems, *each.side.notes))


def _head(found: Capacity) -> Table:
    layout = found.asked.layout
    tokens = f"{layout.tokens:,} token{'s' if layout.tokens > 1 else ''}"
    taken = "one of each sequence" if layout.mode == DECODE else f"b={layout.b} s={layout.s}"
    title = (
        f"{layout.model.name or 'model'} tp={layout.tp} pp={layout.pp} dp={layout.dp}: {layout.gpus} GPUs, "
        f"{layout.mode} in {layout.dtype}, {tokens} a step ({taken})"
    )
    return Table(title=title, notes=tuple(_side(i, each.side) for i, each in enumerate(found.sides)))


def _side(i: int, side: Side) -> str:
    if side.imported:
        return f"{letter(i)}: {side.gpu}, {side.name}, imported from {side.source}"
    protocol = side.protocol or {}
    return f"{letter(i)}: {side.gpu}, {side.name}, run (protocol {protocol['protocol']}, L2 {protocol['l2']})"


def _split(found: Capacity, make: Callable[[Group], Table], columns: int) -> list[Table]:
    """Tables of as many sides as fit the width: one with them all, or further ones."""
    sides = tuple(enumerate(found.sides))
    for most in range(len(sides), 0, -1):
        tables = [make(sides[i : i + most]) for i in range(0, len(sides), most)]
        if all(width(table) <= columns for table in tables):
            break
    return tables


def _gemms(j: int, group: Group) -> Table:
    """Block ``j``: all sides have the same works in the same order."""
    time = group[0][1].blocks[j]
    rows = []
    for w, figure in enumerate(time.figures):
        gemm = figure.work.gemm
        batch = f"{gemm.b}x" if gemm.b > 1 else ""
        figures = [each.blocks[j].figures[w] for _, each in group]
        rows.append((figure.work.name, f"{batch}{gemm.m}", str(gemm.n), str(gemm.k), *map(_cell, figures)))
    sums = (f"{each.blocks[j].seconds * 1e6:.1f}" for _, each in group)
    rows.append(("sum", "", "", "", *sums))
    times = f", {time.block.times} of them" if time.block.times > 1 else ""
    return Table(
        title=f"{time.block.name}{times}: us a GEMM on one rank; ~ interpolated; ! doubtful",
        columns=("", "m", "n", "k", *(letter(i) for i, _ in group)),
        rows=tuple(rows),
    )


def _cell(figure: Figure) -> str:
    mark = "~" if figure.interpolated else "" if figure.departure is None else "!"
    return f"{mark}{figure.seconds * 1e6:.1f}"


def _summary(found: Capacity, group: Group) -> Table:
    layout = found.asked.layout
    lines = [*_times(layout), *_estimates(found), *_target(found), *_prices(found)]
    return Table(
        title="of each GPU model",
        columns=("", *(f"{letter(i)} {each.side.gpu.removeprefix('NVIDIA ')[:16]}" for i, each in group)),
        rows=tuple((name, *(cell(each) for _, each in group)) for name, cell in lines),
    )


def _times(layout: Layout) -> Iterator[Line]:
    yield "GEMMs of a layer, ms", lambda each: f"{each.blocks[-2].seconds * 1e3:.3f}"
    yield "GEMMs of a step, ms", lambda each: f"{each.step_s * 1e3:.2f}"
    if layout.pp > 1:
        yield "GEMMs of the slowest stage, ms", lambda each: f"{each.stage_s * 1e3:.2f}"
    yield "TFLOP/s while they run", lambda each: f"{each.tflops:.1f}"
    yield "share of peak", lambda each: _optional(each.peak_share, ".1%")
    yield "tokens/s per GPU", lambda each: f"{each.tokens_per_gpu_s:,.1f}"
    yield f"tokens/s of {layout.gpus} GPUs", lambda each: f"{each.tokens_per_gpu_s * layout.gpus:,.1f}"


def _estimates(found: Capacity) -> Iterator[Line]:
    layout = found.asked.layout
    if _has_links(found):
        count = all_reduces(layout)
        yield f"est. {count} all-reduces a layer, ms", lambda each: _optional(each.all_reduce_s, ".3f", 1000)
        yield (
            "est. all-reduces of a step, ms",
            lambda each: _optional(each.all_reduce_s, ".2f", 1000 * layout.model.layers),
        )
        yield "est. tokens/s per GPU with them", lambda each: _optional(each.exposed_tokens_per_gpu_s, ",.1f")


def _has_links(found: Capacity) -> bool:
    return found.asked.layout.tp > 1 and any(each.link_gb_s is not None for each in found.sides)


def _links(found: Capacity) -> Iterator[str]:
    for i, each in enumerate(found.sides):
        if each.link_gb_s is not None:
            given = found.asked.links.of(each.side.spec) is not None
            yield f"{letter(i)} {each.link_gb_s:g} ({'given' if given else 'its data sheet'})"


def _target(found: Capacity) -> Iterator[Line]:
    target = found.asked.target
    if target is None:
        return
    yield f"GPUs for {target}", _need(lambda need: need.gpus, ",d")
    if target.tokens is None:
        yield "their cost an hour", _need(lambda need: need.cost, ",.2f")
        return
    yield "days that they take", _need(lambda need: need.days, ".3g")
    yield "GPU-hours", _need(lambda need: need.gpu_hours, ",.0f")
    yield "cost", _need(lambda need: need.cost, ",.2f")


def _need(value: Callable[[Needed], float | None], form: str) -> Callable[[SideCapacity], str]:
    return lambda each: UNKNOWN if each.needed is None else _optional(value(each.needed), form)


def _prices(found: Capacity) -> Iterator[Line]:
    if any(each.price is not None for each in found.sides):
        yield "cost of a million tokens", _million


def _million(each: SideCapacity) -> str:
    return UNKNOWN if each.price is None else f"{cost_per_million(each.tokens_per_gpu_s, each.price):.4g}"


def _optional(value: float | None, form: str, times: int = 1) -> str:
    return UNKNOWN if value is None else format(value * times, form)


def _notes(found: Capacity) -> Iterator[str]:
    yield NOT_COUNTED
    layout = found.asked.layout
    yield from layout.model.notes
    tables = [letter(i) for i, each in enumerate(found.sides) if each.side.imported]
    for i, each in enumerate(found.sides):
        yield from _interpolated(letter(i), each)
        yield from _doubts(letter(i), each)
    yield from (f"{name}: a published table {TABLE}." for name in [joined(tables)] if tables)
    for i, each in enumerate(found.sides):
        yield from (
            f"{letter(i)}: {row.count} of its rows are {row.kind}: hot." for row in each.side.defects if row.kept
        )
    yield from _attention(found)
    if layout.mode == TRAINING and tables:
        yield BACKWARD
    if layout.mode == PREFILL:
        yield "The output layer sees the last token of each sequence."
    if layout.tp > 1:
        yield f"{ESTIMATE}{'; '.join(_links(found))}." if _has_links(found) else NO_ESTIMATE


def _doubts(name: str, side: SideCapacity) -> Iterator[str]:
    for time in side.blocks:
        for each in time.figures:
            if each.departure is not None:
                yield (
                    f"{name}: ! {each.work.name} takes {each.departure:.2g} times what its measured neighbours give on "
                    "every axis: measure it again before believing it."
                )


def _interpolated(name: str, side: SideCapacity) -> Iterator[str]:
    figures = [each for time in side.blocks for each in time.figures]
    guessed = [each for each in figures if each.interpolated]
    if not guessed:
        yield f"{name}: all {len(figures)} GEMMs were measured at exactly these shapes."
        return
    share = sum(time.block.times * each.seconds for time in side.blocks for each in time.figures if each.interpolated)
    yield (
        f"{name}: {len(guessed)} of {len(figures)} GEMMs ({share / side.step_s:.0%} of the time) are interpolated in "
        f"log space: {joined([f'{each.work.name} {_spans(each)}' for each in guessed])}."
    )
    known = {each.axes for each in side.errors}
    yield from (f"{name}: {_error(each)}" for each in side.errors)
    for axes in dict.fromkeys(tuple(each.spans) for each in guessed):
        if axes not in known:
            yield f"{name}: along {', '.join(axes)} no measured shape lies between others: the error is not known."


def _spans(figure: Figure) -> str:
    spans = ", ".join(f"{axis} between {low} and {high}" for axis, (low, high) in figure.spans.items())
    return f"({spans}{', m and n swapped' if figure.turned else ''})"


def _error(error: Error) -> str:
    of = "shapes" if error.near is None else f"shapes with m within {NEAR} times of {error.near}"
    return (
        f"interpolation along {', '.join(error.axes)} misses what was measured by {error.median:.1%} (median) and "
        f"{error.p90:.1%} (p90), leaving out one at a time of {error.count} {error.dtype} {of}."
    )


def _attention(found: Capacity) -> Iterator[str]:
    if found.asked.layout.mode == DECODE:
        yield "The attention GEMMs are left out of the sums: in decode they read the cache of keys and values."
    elif not found.left_out:
        yield "The attention GEMMs are in the sums, with the whole s x s scores, as without FlashAttention."
    else:
        lacking = [i for i, each in enumerate(found.sides) if any(g.source.side is each.side for g in found.left_out)]
        yield (
            "The attention GEMMs are left out of all sums: there is no figure for "
            f"{found.left_out[0].work.name} in {joined([letter(i) for i in lacking])} ({found.left_out[0].why})."
        )
