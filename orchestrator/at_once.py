"""Of the Families of a run that is in memory, the regular ones ranked at once."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from orchestrator.regular import ranked
from orchestrator.survey import shards
from orchestrator.timed import Families, Ints, ranges, timed

BATCH = 400_000
"""Samples after which a batch of Families ends."""


def ranked_at_once(
    facts: pa.Table, samples: pa.Table, families: Mapping[int, Sequence[int]]
) -> tuple[list[pa.Table], list[Ints]]:
    """Rank the regular ones: rows of RANKING_SCHEMA, a Family's together; and each row's Family's number.

    families: by number, the rows of ``facts`` of each, all of one Shard that has samples.
    """
    shard, sampled = shards(facts, samples)
    by_shard = np.argsort(sampled, kind="stable")
    own = shard[[rows[0] for rows in families.values()]]
    start = np.searchsorted(sampled[by_shard], own)
    count = np.searchsorted(sampled[by_shard], own, side="right") - start
    numbers, rows = np.array(list(families)), [np.array(each) for each in families.values()]
    batch = np.cumsum(count) // BATCH
    tables, owners = [], []
    for label in np.unique(batch):
        chosen = np.flatnonzero(batch == label)
        begins, first, which = np.unique(start[chosen], return_index=True, return_inverse=True)
        lengths = count[chosen][first]  # of a Shard, which the Families of a Bundle share
        place, width = (np.concatenate([rows[i] for i in chosen]), np.array([len(rows[i]) for i in chosen]))
        found = timed(
            Families(
                facts=facts.take(pa.array(place)),
                samples=samples.take(pa.array(by_shard[ranges(begins, lengths)])),
                number=numbers[chosen],
                start=np.cumsum(width) - width,
                rows=width,
                sample_start=(np.cumsum(lengths) - lengths)[which],
                sample_rows=lengths[which],
            )
        )
        for form in np.unique(found.form[found.form >= 0]).tolist():
            table, number = ranked(found, form)
            tables.append(table)
            owners.append(number)
    return tables, owners
