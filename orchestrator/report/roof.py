"""What was measured under the ceilings of the catalogue: rates over FLOPs per byte."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.catalogue import GpuSpec, match
from orchestrator.report.family import ReportFamily, Series
from orchestrator.report.source import ReportRun
from orchestrator.roofline import roofline
from tasks.gemm import Gemm

Row = dict[str, Any]

MOST_POINTS = 4000
"""Points up to which every Candidate is drawn; of more, the best and the baseline of each Family."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """The two ceilings of a GPU model: ``ridge`` FLOPs per byte part them. tflops: the peak of these dtypes."""

    gpu: str
    dtypes: tuple[str, ...]
    tflops: float
    ridge: float

    @property
    def name(self) -> str:
        """What a key calls it."""
        return f"{self.gpu} {', '.join(self.dtypes)}: {self.tflops:g} TFLOP/s"


@dataclass(frozen=True, kw_only=True, slots=True)
class Spots:
    """Gemms of one part of a role in one dtype on one GPU model; lists run over its points.

    family: places in the list of Families. share: of the rate that the ceilings allow; None without ceilings.
    """

    name: str
    family: list[int]
    value: list[int]
    intensity: list[float]
    tflops: list[float]
    share: list[float | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Roof:
    """Everything to draw. whole: whether every Candidate is there; without: GPU models that the catalogue has not."""

    ceilings: tuple[Ceiling, ...]
    spots: tuple[Spots, ...]
    whole: bool
    without: tuple[str, ...]


def roof(runs: Sequence[ReportRun], families: Sequence[ReportFamily]) -> Roof:
    """Place what was measured under the ceilings."""
    specs = _specs(runs)
    whole = sum(len(row["parts"] or ()) for run in runs for row in run.rows) <= MOST_POINTS
    spots: dict[str, Spots] = {}
    dtypes: dict[str, list[str]] = {}
    for index, family in enumerate(families):
        for series in family.series:
            for row in _drawn(runs[series.run], series, whole=whole):
                spec = specs.get(row["gpu"])
                if row["dtype"] not in dtypes.setdefault(row["gpu"], []):
                    dtypes[row["gpu"]].append(row["dtype"])
                for part in row["parts"]:
                    _place(spots, index, row, part, runs[series.run].layouts, spec)
    return Roof(
        ceilings=tuple(_ceilings(dtypes, specs)),
        spots=tuple(spots.values()),
        whole=whole,
        without=tuple(gpu for run in runs for gpu in run.gpus if specs.get(gpu) is None),
    )


def _ceilings(dtypes: Mapping[str, Sequence[str]], specs: Mapping[str, GpuSpec | None]) -> Iterator[Ceiling]:
    """One for each peak of each GPU model."""
    for gpu, names in dtypes.items():
        spec, peaks = specs.get(gpu), dict[float, list[str]]()
        for name in names:
            if spec is not None and (peak := spec.peak(name)):
                peaks.setdefault(peak, []).append(name)
        for peak, own in peaks.items():
            assert spec is not None
            ridge = peak * 1e12 / (spec.bandwidth_gb_s * 1e9)
            yield Ceiling(gpu=gpu, dtypes=tuple(own), tflops=peak, ridge=ridge)


def _specs(runs: Sequence[ReportRun]) -> dict[str, GpuSpec | None]:
    shards = {row["gpu"]: row for run in runs for row in run.shards}
    return {
        gpu: None if row["device_kind"] == "cpu" else match(gpu, row["memory_bytes"]) for gpu, row in shards.items()
    }


def _drawn(run: ReportRun, series: Series, *, whole: bool) -> Iterator[Row]:
    for row in run.rows[series.start : series.start + series.count]:
        if row["rank"] is not None and (whole or row["baseline"] or row["value"] == series.verdict.best):
            yield row


def _place(
    spots: dict[str, Spots],
    family: int,
    row: Row,
    part: Row,
    layouts: Mapping[str, str],
    spec: GpuSpec | None,
) -> None:
    sizes = {name: part[name] for name in ("kind", "b", "m", "n", "k")}
    gemm = Gemm(**sizes, dtype=row["dtype"], layout=layouts[part["gemm_id"]])
    name = row["role"] if len(row["parts"]) == 1 else f"{row['role']}.{part['part']}"
    key = f"{name} {row['dtype']}, {row['gpu']}"
    found = spots.setdefault(key, Spots(name=key, family=[], value=[], intensity=[], tflops=[], share=[]))
    line = None if spec is None else roofline(gemm, spec)
    found.family.append(family)
    found.value.append(row["value"])
    found.intensity.append(gemm.flops / gemm.bytes)
    found.tflops.append(part["tflops"])
    found.share.append(None if line is None or line.ridge is None else line.least_s / part["seconds"])
