"""The samples of each Shard as one matrix: rounds by Gemms."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Seconds = npt.NDArray[np.float64]


@dataclass(frozen=True, order=True, slots=True)
class ShardKey:
    """Which Shard: one attempt at one Bundle on one device."""

    uuid: str
    bundle_id: str
    attempt: int


def shard_key(row: Mapping[str, Any]) -> ShardKey:
    """Name the Shard that a row came from."""
    return ShardKey(row["uuid"], row["bundle_id"], row["attempt"])


@dataclass(frozen=True, kw_only=True, slots=True)
class Visits:
    """Seconds per call of one Shard: ``seconds[round, column]``, NaN where a round did not visit the Gemm.

    They are what a call takes at the pace that the device had over the round (``paced``).
    """

    columns: dict[str, int]
    seconds: Seconds
    rounds: npt.NDArray[np.int64]

    def since(self, first_round: int) -> "Visits":
        """Return the visits of this round and later ones."""
        kept = self.rounds >= first_round
        return Visits(columns=self.columns, seconds=self.seconds[kept], rounds=self.rounds[kept])

    def averaged(self) -> "Visits":
        """Return one round: the mean of each Gemm over those that visited it."""
        counts = np.isfinite(self.seconds).sum(axis=0)
        sums = np.where(np.isfinite(self.seconds), self.seconds, 0.0).sum(axis=0)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        return Visits(columns=self.columns, seconds=means[None, :], rounds=self.rounds[:1])

    def of(self, gemm_ids: Iterable[str]) -> Seconds:
        """Return ``[rounds, len(gemm_ids)]``; a Gemm without samples is a column of NaN."""
        padded = np.column_stack([self.seconds, np.full(len(self.seconds), np.nan)])
        return padded[:, [self.columns.get(gemm_id, -1) for gemm_id in gemm_ids]]


COLUMNS = ("uuid", "bundle_id", "attempt", "gemm_id", "round", "seconds", "slowdown")
"""What of the sample rows is needed here."""


def visits_by_shard(samples: pa.Table) -> dict[ShardKey, Visits]:
    """Split sample rows (SHARD_SCHEMA, at least COLUMNS) by Shard, each as a matrix."""
    keys = list(COLUMNS[:3])
    lists = [(name, "list") for name in COLUMNS[3:]]
    # One thread: the order inside a group is then that of the rows.
    groups = samples.group_by(keys, use_threads=False).aggregate(lists)
    return {
        ShardKey(*(groups[name][i].as_py() for name in keys)): _matrix(
            *(groups[f"{name}_list"][i].values for name, _ in lists)
        )
        for i in range(groups.num_rows)
    }


def paced(seconds: pa.Array | pa.ChunkedArray, slowdown: pa.Array | pa.ChunkedArray) -> Seconds:
    """Seconds of a call at the pace of its whole round, from the columns of the sample rows."""
    pace: Seconds = pc.fill_null(slowdown, 1.0).to_numpy(zero_copy_only=False).astype(np.float64)
    return np.asarray(seconds.to_numpy(zero_copy_only=False) / pace)


def _matrix(gemm_ids: pa.Array, rounds: pa.Array, seconds: pa.Array, slowdown: pa.Array) -> Visits:
    encoded = gemm_ids.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    distinct, row = np.unique(rounds.to_numpy(zero_copy_only=False), return_inverse=True)
    matrix = np.full((len(distinct), len(names)), np.nan)
    matrix[row, encoded.indices.to_numpy(zero_copy_only=False)] = paced(seconds, slowdown)
    return Visits(columns={name: i for i, name in enumerate(names)}, seconds=matrix, rounds=distinct)
