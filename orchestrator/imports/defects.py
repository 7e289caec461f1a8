"""What is wrong with the rows of a published table: each defect is counted, with an example, and its rows set aside."""

import math
from collections.abc import Callable, Sequence

from orchestrator.axis import MAX_DIMENSION
from orchestrator.catalogue import GpuSpec
from orchestrator.errors import InvalidValueError
from orchestrator.imports.spikes import FACTOR, spikes
from orchestrator.imports.table import Defect, RawRow, RawTable, TimingRow, TimingTable

MISSING = "missing value"
DIMENSION = "zero or negative dimension"
LARGE = "dimension above 2147483647"
TIME = "no time"
DTYPE = "unknown dtype"
GPU = "another GPU"
PEAK = "faster than peak"
MEMORY = "faster than memory"
DUPLICATE = "duplicate"
SPIKE = "spike"
CACHE = "from cache"
KINDS = (MISSING, DIMENSION, LARGE, TIME, DTYPE, GPU, PEAK, MEMORY, DUPLICATE, SPIKE, CACHE)
"""In the order in which they are looked for; a row has the first that applies."""

MB = 2**20
"""Caches are given in binary megabytes."""

Timed = tuple[RawRow, TimingRow]


def clean(table: RawTable, gpu: GpuSpec) -> TimingTable:
    """Set the defective rows of a table aside; InvalidValueError where nothing is left."""
    found: dict[str, list[str]] = {kind: [] for kind in KINDS}
    timed = _distinct(_possible(table, gpu, found), found)
    strange = spikes([row for _, row in timed])
    for i, factor in strange.items():
        found[SPIKE].append(f"{timed[i][0]}, {factor:.2f} times what its neighbours give")
    rows = [row for i, (_, row) in enumerate(timed) if i not in strange]
    defects = tuple(
        Defect(kind=kind, count=len(examples), example=examples[0], kept=kind == CACHE)
        for kind, examples in found.items()
        if examples
    )
    if not rows:
        why = "; ".join(f"{each.count} {each.kind} ({each.example})" for each in defects) or "it has no rows"
        raise InvalidValueError(f"{table.path}: no row can be used: {why}")
    return TimingTable(
        path=table.path, source=table.source, gpu=gpu, rows=tuple(rows), defects=defects, read=len(table.rows)
    )


def _possible(table: RawTable, gpu: GpuSpec, found: dict[str, list[str]]) -> list[Timed]:
    """Rows of this GPU that have a shape, a dtype and a time that a device can need."""
    dtypes, known = dict(table.dtypes), _known_names(gpu)
    timed: list[Timed] = []
    for raw in table.rows:
        kind = _broken(raw, dtypes) or (GPU if raw.device is not None and not known(raw.device) else None)
        if kind is not None:
            found[kind].append(f"{raw}, {raw.device}" if kind == GPU else str(raw))
            continue
        row = _row(raw, dtypes)
        limit = _impossible(row, gpu)
        if limit is not None and limit[0] != CACHE:
            found[limit[0]].append(f"{raw}, {limit[1]}")
            continue
        if limit is not None:
            found[CACHE].append(f"{raw}, {limit[1]}")
        timed.append((raw, row))
    return timed


def _known_names(gpu: GpuSpec) -> Callable[[str], bool]:
    answers: dict[str, bool] = {}

    def known(name: str) -> bool:
        if name not in answers:
            answers[name] = gpu.is_name(name)
        return answers[name]

    return known


def _broken(raw: RawRow, dtypes: dict[str, str]) -> str | None:
    sizes = (raw.m, raw.n, raw.k)
    if None in sizes or raw.seconds is None or raw.dtype is None:
        return MISSING
    if any(size is not None and size <= 0 for size in sizes):
        return DIMENSION
    if any(size is not None and size > MAX_DIMENSION for size in sizes):
        return LARGE
    if not (math.isfinite(raw.seconds) and raw.seconds > 0):
        return TIME
    return None if raw.dtype in dtypes else DTYPE


def _row(raw: RawRow, dtypes: dict[str, str]) -> TimingRow:
    sizes = (raw.m or 0, raw.n or 0, raw.k or 0)  # none is missing here
    return TimingRow.of(*sizes, dtypes[raw.dtype or ""], raw.seconds or 0.0, raw.role)


def _impossible(row: TimingRow, gpu: GpuSpec) -> tuple[str, str] | None:
    """Say which ceiling of the GPU a row breaks, and by how much; CACHE for one that only a warm cache lets it break.

    More bytes than the caches hold have to come from memory, whatever was in them before.
    """
    gemm, peak, bandwidth = row.gemm, gpu.peak(row.dtype), gpu.bandwidth_gb_s * 1e9
    if peak is not None and (rate := gemm.flops / row.seconds / 1e12) > peak:
        return PEAK, f"{rate:.0f} TFLOP/s, the peak is {peak:g}"
    cache = ((gpu.l2_mb or 0.0) + (gpu.llc_mb or 0.0)) * MB
    rate = gemm.bytes / row.seconds / 1e9
    if (gemm.bytes - cache) / row.seconds > bandwidth:
        return MEMORY, f"{rate:.0f} GB/s, memory has {gpu.bandwidth_gb_s:g}"
    return (CACHE, f"{rate:.0f} GB/s, memory has {gpu.bandwidth_gb_s:g}") if rate * 1e9 > bandwidth else None


def _distinct(timed: Sequence[Timed], found: dict[str, list[str]]) -> list[Timed]:
    """Keep the first row of each shape, as aiconfigurator's own reader does; count the others, the furthest first."""
    first: dict[tuple[int, int, int, str], Timed] = {}
    again: list[tuple[float, str]] = []
    for raw, row in timed:
        kept = first.setdefault((row.m, row.n, row.k, row.dtype), (raw, row))
        if kept[0] is not raw:
            ratio = row.seconds / kept[1].seconds
            again.append((abs(math.log(ratio)), f"{raw}, {ratio:.3f} times row {kept[0].number}, which is used"))
    found[DUPLICATE].extend(text for _, text in sorted(again, key=lambda each: -each[0]))
    return list(first.values())


RULES = {
    MISSING: "a dimension, a time or a dtype that is not there, or no number",
    DIMENSION: "m, n or k of 0 or less",
    LARGE: "m, n or k that no device takes",
    TIME: "a time of 0 or less, or not finite",
    DTYPE: "a dtype that this project does not measure",
    GPU: "the row names another GPU than the table is of",
    PEAK: "more FLOP/s than the catalogue's peak",
    MEMORY: "more bytes per second than memory has, beyond what the caches hold",
    DUPLICATE: "a shape that an earlier row has; the first is used; the example is the furthest from it",
    SPIKE: f"more than {FACTOR:g} times, or less than 1/{FACTOR:g} of, what the neighbours give, on two axes at least",
    CACHE: "more bytes per second than memory has, but the caches could hold them: used, a hot-cache figure",
}
"""What each kind means."""
