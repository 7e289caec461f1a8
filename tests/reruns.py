"""Copies of a run as if it were measured again: from its own samples, with a Family slowed down."""

from collections.abc import Callable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from orchestrator.columns import SHARD_SCHEMA
from orchestrator.store import RunStore

Row = dict[str, Any]
Factor = Callable[[Row], float]
"""By what the seconds of a sample row are multiplied."""


def again(
    source: RunStore,
    target: Path,
    *,
    seed: int = 0,
    factor: Factor = lambda row: 1.0,
    facts: Mapping[str, Any] | None = None,
) -> RunStore:
    """A run whose rounds are drawn, with replacement, from those of ``source`` in which the same Gemms took part."""
    random = np.random.default_rng(seed)
    store = RunStore.create(target.parent, target.name, {})
    for path in source.shard_paths():
        rows: list[Row] = pq.read_table(path).to_pylist()
        changed = [{**row, **(facts or {})} for row in rows if row["record"] == "facts"]
        changed += _drawn([row for row in rows if row["record"] == "sample"], random, factor)
        store.write_shard(pa.Table.from_pylist(changed, schema=SHARD_SCHEMA))
    return store


def _drawn(samples: list[Row], random: np.random.Generator, factor: Factor) -> list[Row]:
    rounds = [list(rows) for _, rows in groupby(samples, key=lambda row: row["round"])]
    drawn: list[Row] = []
    for _, phase in groupby(rounds, key=len):
        alike = list(phase)
        for own in alike:
            other = alike[int(random.integers(len(alike)))]
            drawn += [{**row, "round": own[0]["round"], "seconds": row["seconds"] * factor(row)} for row in other]
    return drawn
