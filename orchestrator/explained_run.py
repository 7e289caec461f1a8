"""A run as ``explain`` needs it: its ranked Families, with the Gemms, their rates and the kernels that ran."""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from orchestrator.catalogue import match
from orchestrator.explanation import Gpu, Measured
from orchestrator.ranking import Ranking
from orchestrator.store import RunStore
from tasks.gemm import Gemm

Row = dict[str, Any]

_FACTS = ("gpu", "device_kind", "sm_count", "memory_bytes", "gemm_id", "kind", "b", "m", "n", "k", "dtype", "layout")
_FAMILY = ("gpu", "protocol", "protocol_version", "l2", "power", "family_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredPart:
    """One Gemm of a Candidate under its name in the role."""

    name: str
    gemm: Gemm
    measured: Measured


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredCandidate:
    """A ranked Candidate. relative: its cost per FLOP over the best's."""

    value: int
    baseline: bool
    relative: float
    parts: tuple[MeasuredPart, ...]

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """The Gemms that a user pays for together."""
        return tuple(part.gemm for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFamily:
    """The ranked Candidates of one Family on one GPU model, by value."""

    gpu: Gpu
    family_id: str
    role: str
    tp: int
    axis: str
    candidates: tuple[MeasuredCandidate, ...]


def measured_families(store: RunStore, ranking: Ranking) -> tuple[MeasuredFamily, ...]:
    """Join a ranking with what the Shards' facts know of its Gemms; Candidates that have no rank are left out."""
    known = _Facts(store.reader().facts((*_FACTS, "kernel")).table.to_pylist())
    rows = (row for row in ranking.table.to_pylist() if row["rank"] is not None)
    families = groupby(rows, key=lambda row: tuple(row[name] for name in _FAMILY))
    return tuple(_family(list(family), known) for _, family in families)


class _Facts:
    """Gemms, kernels and GPUs by name."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self.gemms: dict[str, Gemm] = {}
        self.gpus: dict[str, Gpu] = {}
        self.kernels: dict[tuple[str, str], str] = {}
        for row in rows:
            if row["gemm_id"] not in self.gemms:
                self.gemms[row["gemm_id"]] = _gemm(row)
            if row["gpu"] not in self.gpus:
                self.gpus[row["gpu"]] = _gpu(row)
            if row["kernel"] is not None:
                self.kernels[row["gpu"], row["gemm_id"]] = row["kernel"]


def _gemm(row: Row) -> Gemm:
    return Gemm(**{name: row[name] for name in ("kind", "b", "m", "n", "k", "dtype", "layout")})


def _gpu(row: Row) -> Gpu:
    if row["device_kind"] == "cpu":
        return Gpu(name=row["gpu"], sms=None, spec=None)
    return Gpu(name=row["gpu"], sms=row["sm_count"], spec=match(row["gpu"], row["memory_bytes"]))


def _family(rows: list[Row], known: _Facts) -> MeasuredFamily:
    first = rows[0]
    candidates = (_candidate(row, known) for row in sorted(rows, key=lambda row: row["value"]))
    return MeasuredFamily(
        gpu=known.gpus[first["gpu"]],
        family_id=first["family_id"],
        role=first["role"],
        tp=first["tp"],
        axis=first["axis"],
        candidates=tuple(candidates),
    )


def _candidate(row: Row, known: _Facts) -> MeasuredCandidate:
    return MeasuredCandidate(
        value=row["value"],
        baseline=row["baseline"],
        relative=row["relative"],
        parts=tuple(
            MeasuredPart(
                name=part["part"],
                gemm=known.gemms[part["gemm_id"]],
                measured=Measured(
                    seconds=part["seconds"],
                    tflops=part["tflops"],
                    kernel=known.kernels.get((row["gpu"], part["gemm_id"])),
                ),
            )
            for part in row["parts"]
        ),
    )
