"""The Families of all runs: what one run or GPU says of a Family, beside what the others say of it."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.report.source import ReportRun
from orchestrator.report.verdict import Verdict, verdict
from orchestrator.tables import DIMENSIONS

Row = dict[str, Any]

REGIME = ("protocol", "protocol_version", "l2", "power")
"""Measured differently is another Family: the figures must not be read beside each other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """One Family on one GPU model in one run: ``count`` rows of the run's ranking, from ``start`` on.

    label: what tells it from the others of the report: the run, the GPU model, or both.
    """

    label: str
    run: int
    gpu: str
    start: int
    count: int
    verdict: Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportFamily:
    """A Family with every Series of it. title: its dimensions, for reading."""

    family_id: str
    role: str
    axis: str
    title: str
    regime: str
    series: tuple[Series, ...]


def families(runs: Sequence[ReportRun]) -> list[ReportFamily]:
    """Bring the Families of the runs together, in the order of the first run that has each."""
    label = _labels(runs)
    found: dict[tuple[Any, ...], list[Series]] = {}
    first: dict[tuple[Any, ...], list[Row]] = {}
    for index, run in enumerate(runs):
        for start, rows in _stretches(run.rows):
            key = (rows[0]["family_id"], *(rows[0][name] for name in REGIME))
            gpu = rows[0]["gpu"]
            series = Series(
                label=label(run, gpu), run=index, gpu=gpu, start=start, count=len(rows), verdict=verdict(rows)
            )
            found.setdefault(key, []).append(series)
            first.setdefault(key, rows)
    return [_family(first[key], series) for key, series in found.items()]


def _labels(runs: Sequence[ReportRun]) -> Callable[[ReportRun, str], str]:
    models = {gpu for run in runs for gpu in run.gpus}
    if len(runs) == 1:
        return lambda run, gpu: gpu
    return (lambda run, gpu: run.name) if len(models) == 1 else (lambda run, gpu: f"{run.name}, {gpu}")


def _stretches(rows: Sequence[Row]) -> Iterator[tuple[int, list[Row]]]:
    """The rows of each Family and GPU model, which a ranking keeps together, and where they begin."""
    start = 0
    for _, group in itertools.groupby(rows, key=lambda row: (row["gpu"], row["family_id"], *map(row.get, REGIME))):
        stretch = list(group)
        yield start, stretch
        start += len(stretch)


def _family(rows: Sequence[Row], series: Sequence[Series]) -> ReportFamily:
    row = rows[0]
    return ReportFamily(
        family_id=row["family_id"],
        role=row["role"],
        axis=row["axis"],
        title=title(rows),
        regime=f"{row['protocol']}, l2 {row['l2']}, power {row['power']}",
        series=tuple(series),
    )


def title(rows: Sequence[Row]) -> str:
    """Name a Family by what all its Candidates share: ``mlp · h=4096 · tp=2 · batch=4 · seq=2048 · fp16``."""
    row = rows[0]
    shared = [
        f"{name}={row[name]}"
        for name in DIMENSIONS
        if name != row["axis"] and row[name] is not None and len({other[name] for other in rows}) == 1
    ]
    passes = [row["passes"]] if row["passes"] not in (None, "fwd") else []
    return " · ".join([row["role"], *shared, row["dtype"], *passes])
