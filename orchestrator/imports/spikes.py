"""Isolated spikes in a grid of timings: one that no neighbour on any side explains."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from orchestrator.alignment import aligned
from orchestrator.imports.table import TimingRow

FACTOR = 2.0
"""Between neighbours libraries change kernels, which costs a factor of up to 1.99 in the tables that were looked at."""

AXES_NEEDED = 2

Axis = tuple[str, tuple[str, str]]
AXES: tuple[Axis, ...] = (("m", ("n", "k")), ("n", ("m", "k")), ("k", ("m", "n")))


def spikes(rows: Sequence[TimingRow]) -> dict[int, float]:
    """Return the index of each spike with how many times the neighbours' time it takes, at the axis nearest to 1.

    A row is a spike where its time is more than FACTOR times what its two neighbours along an axis give, or less than
    one FACTOR-th, on every axis along which it lies between two, and on AXES_NEEDED at least: on one alone it may be
    the neighbour that is off. Interpolated is the logarithm of the time over that of the dimension. Neighbours are rows
    of the same dtype that are aligned (rows of whole multiples of 16 bytes), or not, as it is: a value that is not
    aligned is truly slower than the aligned ones beside it. Of two spikes side by side each may hide the other.
    """
    deviations: dict[int, list[float]] = defaultdict(list)
    keys = [(row.dtype, aligned(row.gemm)) for row in rows]
    for axis, others in AXES:
        lines: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for i, row in enumerate(rows):
            lines[(*keys[i], *(getattr(row, name) for name in others))].append(i)
        for line in lines.values():
            line.sort(key=lambda i: int(getattr(rows[i], axis)))
            for i, deviation in _deviations(line, rows, axis):
                deviations[i].append(deviation)
    limit = math.log(FACTOR)
    return {
        i: math.exp(min(found, key=abs))
        for i, found in sorted(deviations.items())
        if len(found) >= AXES_NEEDED and (min(found) > limit or max(found) < -limit)
    }


def _deviations(line: Sequence[int], rows: Sequence[TimingRow], axis: str) -> Iterator[tuple[int, float]]:
    """Logarithm of each inner row's time over what its neighbours along ``axis`` give."""
    places = [math.log(getattr(rows[i], axis)) for i in line]
    times = [math.log(rows[i].seconds) for i in line]
    for j in range(1, len(line) - 1):
        weight = (places[j] - places[j - 1]) / (places[j + 1] - places[j - 1])
        yield line[j], times[j] - (1 - weight) * times[j - 1] - weight * times[j + 1]
