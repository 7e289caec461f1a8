"""What ``explain`` shows: plain tables and sentences from its records."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.alignment import ROW_BYTES
from orchestrator.errors import printable
from orchestrator.explanation import Explanation
from orchestrator.figures import UNKNOWN, duration
from orchestrator.printing import fitting, wrapped
from orchestrator.roofline import COMPUTE
from orchestrator.tiles import Neighbour, Quantisation

WIDTH = 80
GAP = "  "
DISTRUST = (
    "The tiles are a model, not a measurement: on a measured H200 it explained little or nothing of which d_ff is "
    "fast (docs/explain.md). Nothing is ranked by it; `explain RUN` says how well it fits the measurements of a run."
)
FOREIGN = "The tiles are those of NVIDIA's libraries; what AMD's choose is not known here."
NO_SMS = "A CPU has no SMs: the model of tiles and waves does not apply."
NOT_RECORDED = "the kernel was not recorded; a run with run.kernels=true records it"


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Cells with a title above, and sentences below."""

    title: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


def text(tables: Iterable[Table], columns: int = WIDTH) -> str:
    """Draw tables, a blank line between them; the last columns are left out where they would not fit."""
    return printable("\n".join("\n".join(_lines(table, columns)) + "\n" for table in tables))


def width(table: Table) -> int:
    """Columns that the cells of a table take, with its gaps."""
    cells = (table.columns, *table.rows)
    return sum(max(map(len, column)) + len(GAP) for column in zip(*cells, strict=True)) - len(GAP)


def _lines(table: Table, columns: int) -> Iterator[str]:
    yield from wrapped(table.title, columns)
    if table.rows:
        widths = [max(map(len, cells)) for cells in zip(table.columns, *table.rows, strict=True)]
        kept = max(1, fitting(widths, columns, len(GAP)))
        for cells in (table.columns, *table.rows):
            yield GAP.join(map(str.rjust, cells[:kept], widths)).rstrip()
    for note in table.notes:
        yield from wrapped(note, columns)


def explanation_tables(found: Explanation, title: str = "") -> tuple[Table, ...]:
    """All that is known of one Gemm on one GPU, and of its measurement."""
    sms = "" if found.gpu.sms is None else f", {found.gpu.sms} SMs"
    head = f"{title}{found.gemm.gemm_id} on {found.gpu.name}{sms}"
    tables = [Table(title=head, notes=tuple(_measured(found))), _alignment(found), *_tiles(found)]
    return (*tables, Table(title="roofline", notes=tuple(_roofline(found))))


def _measured(found: Explanation) -> Iterator[str]:
    if found.measured is None:
        return
    from orchestrator.tables import tflops

    least = None if found.roofline is None else found.roofline.least_s
    share = "" if least is None else f", {least / found.measured.seconds:.0%} of its roofline"
    yield f"measured: {duration(found.measured.seconds)} a call, {tflops(found.measured.tflops)} TFLOP/s{share}"
    kernel = found.measured.kernel
    yield NOT_RECORDED if kernel is None else f"kernel: {kernel}"


def _alignment(found: Explanation) -> Table:
    rows = tuple(
        (
            each.dimension,
            str(each.value),
            str(each.elements),
            str(each.bytes),
            " ".join(each.rows_of) or UNKNOWN,
            str(each.value * found.gemm.element_bytes),
        )
        for each in found.alignments
    )
    verdict = "are" if found.aligned else "are not all"
    effect = "" if found.aligned else ": on an H200 such fp16 calls took 2.3 to 3.5 times as long"
    return Table(
        title="alignment: the largest power of two that divides it",
        columns=("", "size", "elements", "bytes", "rows of", "bytes a row"),
        rows=rows,
        notes=(f"Rows {verdict} whole multiples of {ROW_BYTES} bytes{effect}.",),
    )


def _tiles(found: Explanation) -> Iterator[Table]:
    if found.choice is None:
        yield Table(title="tiles", notes=(NO_SMS,))
        return
    foreign = found.gpu.spec is not None and found.gpu.spec.vendor != "nvidia"
    yield Table(
        title="tiles: C in tiles, one per SM and wave; * the one that a library would take",
        columns=("tile", "tiles", "waves", "tile eff", "wave eff", "both", ""),
        rows=tuple(_tile(each, found.choice) for each in found.quantisations),
        notes=(FOREIGN,) if foreign else (),
    )
    tile = found.choice.tile.name
    yield Table(
        title=f"neighbours: predicted with {tile} tiles, against this Gemm's",
        columns=("", "size", "tiles", "waves", "time", "per FLOP"),
        rows=tuple(_neighbour(each) for each in found.neighbours),
        notes=("Values at which tiles or waves are just full; one more begins another.",),
    )


def _tile(each: Quantisation, choice: Quantisation) -> tuple[str, ...]:
    efficiencies = (each.tile_efficiency, each.wave_efficiency, each.efficiency)
    mark = "*" if each == choice else ""
    return each.tile.name, str(each.tiles), str(each.waves), *(f"{share:.1%}" for share in efficiencies), mark


def _neighbour(each: Neighbour) -> tuple[str, ...]:
    changes = (change(each.time), change(each.cost))
    return each.dimension, str(each.value), str(each.tiles), str(each.waves), *changes


def _roofline(found: Explanation) -> Iterator[str]:
    line = found.roofline
    if line is None:
        yield f"{found.gpu.name} is not in the catalogue: its peak and bandwidth are not known"
        return
    yield f"{line.intensity:.1f} FLOP per byte, with A and B read and C written once"
    if line.ridge is None or line.compute_s is None:
        yield f"the catalogue has no {found.gemm.dtype} peak; the bytes alone take {duration(line.memory_s)}"
        return
    side = "arithmetic" if line.side == COMPUTE else "memory"
    yield f"{side} is the limit: the GPU's peak and bandwidth meet at {line.ridge:.1f} FLOP per byte"
    yield f"at the peak {duration(line.compute_s)}, at the whole bandwidth {duration(line.memory_s)} a call"
    if found.estimate_s is not None:
        yield f"`plan` takes a call for {duration(found.estimate_s)}"


def change(ratio: float) -> str:
    """Write a ratio as a change in percent.

    >>> change(1.0), change(2.0), change(0.985)
    ('same', '+100.0%', '-1.5%')
    """
    percent = f"{(ratio - 1) * 100:+.1f}%"
    return "same" if percent in ("+0.0%", "-0.0%") else percent


def short_kernel(name: str) -> str:
    """Names of kernels without lists of arguments, for types and values too.

    >>> short_kernel("nvjet_hsh_64x8 + void cublasLt::splitKreduce_kernel<32, 16>(int)")
    'nvjet_hsh_64x8 + cublasLt::splitKreduce_kernel'
    """
    return " + ".join(_short(part.removeprefix("void ")) for part in name.split(" + "))


def _short(name: str) -> str:
    alone = re.match(r"[^<(]+<[^<>(,]+>", name)  # one that is all there is to know: cutlass::Kernel2<…>
    return alone.group() if alone else re.split(r"[<(]", name)[0]


def joined(names: Sequence[str], most: int = 6) -> str:
    """List names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
