"""The best of each Family over two of the dimensions in which the Families differ, for a single plot."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import InvalidValueError
from orchestrator.report.family import ReportFamily
from orchestrator.report.source import ReportRun
from orchestrator.tables import DIMENSIONS

Row = dict[str, Any]

CROSSED = ("h", "tp", "dtype", "batch", "seq", *DIMENSIONS, "passes", "role", "run")
"""The first two in which the Families differ are drawn; of the others the first value is kept."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """values[down][across]: the figure of a Family, None where there is none. kept: what all its Families share."""

    x: str
    y: str
    across: tuple[str, ...]
    down: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    kept: str


def grid(runs: Sequence[ReportRun], families: Sequence[ReportFamily], *, gain: bool) -> Grid:
    """Cross the first two dimensions that differ; gain: in percent, else TFLOP/s.

    Raises:
        InvalidValueError: the Families do not differ in any dimension, or none has that figure.
    """
    cells = [(place, value) for place, value in _cells(runs, families, gain=gain) if value is not None]
    values = {name: _distinct([place[name] for place, _ in cells]) for name in dict.fromkeys(CROSSED)}
    differing = [name for name, found in values.items() if len(found) > 1]
    if not cells or not differing:
        what = (
            "no Family has a measured baseline" if gain and not cells else "the Families do not differ in a dimension"
        )
        raise InvalidValueError(f"there is no heatmap to draw: {what}")
    x, y = differing[0], differing[1] if len(differing) > 1 else "role"
    kept = {name: values[name][0] for name in differing[2:]}
    drawn = [(place, value) for place, value in cells if all(place[name] == each for name, each in kept.items())]
    across, down = (_distinct([place[name] for place, _ in drawn]) for name in (x, y))
    found = {(place[x], place[y]): value for place, value in drawn}
    return Grid(
        x=x,
        y=y,
        across=tuple(map(str, across)),
        down=tuple(map(str, down)),
        values=tuple(tuple(found.get((column, row)) for column in across) for row in down),
        kept=" ".join(f"{name}={value}" for name, value in kept.items()),
    )


def _cells(
    runs: Sequence[ReportRun], families: Sequence[ReportFamily], *, gain: bool
) -> Iterator[tuple[Row, float | None]]:
    for family in families:
        for series in family.series:
            rows = runs[series.run].rows[series.start : series.start + series.count]
            place: Row = {name: rows[0][name] for name in CROSSED if name != "run"}
            # A dimension that follows from what is chosen belongs to the Candidate, not to the Family.
            place |= {name: None for name in place if any(row[name] != rows[0][name] for row in rows)}
            share = series.verdict.gain
            yield (
                {**place, "run": series.label},
                (None if share is None else 100 * share) if gain else series.verdict.tflops,
            )


def _distinct(values: Sequence[Any]) -> list[Any]:
    known = {value for value in values if value is not None}
    return sorted(known, key=lambda value: (isinstance(value, str), value))
