"""One run as a report reads it: its ranking, its Shards one row each, and its manifest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from orchestrator.canary import is_canary
from orchestrator.errors import InvalidValueError, each_of
from orchestrator.ranking import Ranking, rank
from orchestrator.runs import find_run
from orchestrator.store import RunStore

Row = dict[str, Any]

SHARD = ("uuid", "bundle_id", "attempt")
_TELEMETRY = (
    *("sm_clock_mean_mhz", "sm_clock_min_mhz", "memory_clock_mean_mhz", "temperature_max_c", "power_mean_w"),
    *("window_energy_j", "power_limited", "throttled", "reasons"),
)
_WHEN = (
    *("protocol", "started_utc", "prepare_s", "soak_s", "measuring_s", "rounds", "stop_reason", "redone", "notes"),
    "canary",
)
ENVIRONMENT: Mapping[str, str] = {
    "gpu": "GPU",
    "host": "host",
    "uuid": "device",
    "sm_count": "SMs",
    "memory_bytes": "memory, bytes",
    "l2_bytes": "L2, bytes",
    "power_limit_w": "power limit, W",
    "sm_clock_max_mhz": "SM clock limit, MHz",
    "driver": "driver",
    "runtime": "CUDA or ROCm",
    "torch": "torch",
    "blas": "BLAS",
    "allow_fp16_reduced_precision_reduction": "fp16 reduced precision",
    "allow_bf16_reduced_precision_reduction": "bf16 reduced precision",
    "code_version": "orchestrator",
}
"""Facts of a Shard that say where it was measured, and what a reader calls them."""
_COLUMNS = tuple(dict.fromkeys((*SHARD, "family_id", "device_kind", *_TELEMETRY, *_WHEN, *ENVIRONMENT)))
_GEMM = ("gpu", "gemm_id", "kind", "b", "m", "n", "k", "dtype", "layout")


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRun:
    """A run. rows: the ranking's. shards: what is known of each Shard, in order of time.

    families_of: how many Families each device measured. layouts: of the Gemms, by id.
    """

    name: str
    path: str
    manifest: Mapping[str, Any]
    ranking: Ranking
    rows: Sequence[Row]
    shards: Sequence[Row]
    families_of: Mapping[str, int]
    layouts: Mapping[str, str]

    @property
    def config(self) -> Mapping[str, Any]:
        """The resolved configuration that the manifest keeps; nothing where there is none."""
        found: Mapping[str, Any] = self.manifest.get("config", {})
        return found

    @property
    def gpus(self) -> tuple[str, ...]:
        """The GPU models that measured."""
        return tuple(sorted({row["gpu"] for row in self.shards}))


def open_runs(
    words: Sequence[str], directory: str, spool: str | None = None, *, include_suspects: bool = False
) -> list[ReportRun]:
    """Open and rank what each word means: path, URI, name or latest.

    Raises:
        StoreError: there is no such run; SeveralErrors where that is so of several.
        InvalidValueError: one comes twice.
    """
    stores = each_of(lambda word: find_run(word, directory, spool), words)
    seen: dict[str, str] = {}
    for word, store in zip(words, stores, strict=True):
        path = str(store.path.resolve())
        if path in seen:
            raise InvalidValueError(f"'{seen[path]}' and '{word}' are the same run: {path}")
        seen[path] = word
    names = [store.name for store in stores]
    told = [name if names.count(name) == 1 else str(store.path) for name, store in zip(names, stores, strict=True)]
    return [read_run(store, name, include_suspects=include_suspects) for name, store in zip(told, stores, strict=True)]


def read_run(store: RunStore, name: str, *, include_suspects: bool = False) -> ReportRun:
    """Rank a run and read what its Shards carry beside the samples; ``name`` is what the report calls it."""
    ranking = rank(store, include_suspects=include_suspects)
    facts = store.reader().facts(tuple(dict.fromkeys((*_COLUMNS, *_GEMM)))).table
    distinct = facts.group_by(["uuid", "family_id"]).aggregate([]).to_pylist()
    families: dict[str, int] = {}
    for row in distinct:
        if not is_canary(row["family_id"]):
            families[row["uuid"]] = families.get(row["uuid"], 0) + 1
    gemms = facts.group_by(["gemm_id", "layout"]).aggregate([]).to_pylist()
    return ReportRun(
        name=name,
        path=str(store.path),
        manifest=store.manifest(),
        ranking=ranking,
        rows=ranking.table.to_pylist(),
        shards=_shards(facts),
        families_of=families,
        layouts={row["gemm_id"]: row["layout"] for row in gemms},
    )


def _shards(facts: pa.Table) -> list[Row]:
    """The first facts row of each Shard, the earliest Shard first."""
    numbered = facts.select(list(SHARD)).append_column("place", pa.array(np.arange(facts.num_rows)))
    first = numbered.group_by(list(SHARD)).aggregate([("place", "min")])["place_min"]
    rows: list[Row] = facts.select(list(_COLUMNS)).take(first).to_pylist()
    return sorted(rows, key=lambda row: (str(row["started_utc"]), *(row[name] for name in SHARD)))
