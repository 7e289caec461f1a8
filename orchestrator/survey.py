"""Where in a run's files the rows of each Family and Shard lie: what a ranking knows before it reads the rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from numpy.typing import NDArray

from orchestrator.columns import SHARD_SCHEMA
from orchestrator.reading import ShardFile, UnsoundError
from orchestrator.sound_rows import FACTS, SAMPLE, complaint

Ints = NDArray[np.int64]
Row = dict[str, Any]

SHARD = ("uuid", "bundle_id", "attempt")
STRINGS = frozenset(field.name for field in SHARD_SCHEMA if field.type == pa.string() and field.name != "record")
"""Read as dictionaries: most have a few values."""
SOUND = {"facts": FACTS, "sample": SAMPLE}


def rows_of(file: ShardFile, record: str, columns: Sequence[str]) -> pa.Table:
    """Read these columns of a file's rows of one record; strings are dictionary-encoded.

    Raises:
        UNREADABLE: the file is damaged.
    """
    names = frozenset(file.fragment.physical_schema.names)
    there = [name for name in columns if name in names]
    encoded = [name for name in there if name in STRINGS]
    opened = pq.ParquetFile(file.path, read_dictionary=encoded, page_checksum_verification=True)
    groups = [_of_group(opened, number, record, there) for number in range(opened.num_row_groups)]
    table = pa.concat_tables(groups) if groups else SHARD_SCHEMA.empty_table().select(there)
    for name in columns:
        if name not in there:  # in a file of a former version
            table = table.append_column(name, pa.nulls(table.num_rows, SHARD_SCHEMA.field(name).type))
    return table.select(list(columns)).unify_dictionaries().combine_chunks()


def _of_group(opened: pq.ParquetFile, number: int, record: str, columns: list[str]) -> pa.Table:
    kinds = opened.read_row_group(number, columns=["record"])["record"]
    own = pc.equal(kinds, record)
    if not pc.all(pc.is_in(kinds, pa.array(list(SOUND))), min_count=0).as_py():
        raise UnsoundError("rows without a value, or with an impossible one, in: record")
    if not pc.any(own, min_count=0).as_py():
        return opened.schema_arrow.empty_table().select(columns)
    table = opened.read_row_group(number, columns=columns)
    return table if pc.all(own).as_py() else table.filter(own)


def require_sound(table: pa.Table, record: str) -> None:
    """Raise UnsoundError where a row lacks what every row of the record has."""
    conditions = {name: each for name, each in SOUND[record].items() if name != "record"}
    if wrong := complaint(ds.dataset(table), conditions):
        raise UnsoundError(wrong)


def checked(record: str) -> list[str]:
    """Return the columns that ``require_sound`` looks at, but for ``record``."""
    more = ["axis", "d_ff"] if record == "facts" else []
    return [name for name in (*SOUND[record], *more) if name != "record"]


def stretches(file: int, table: pa.Table) -> pa.Table:
    """Return one row for each stretch of equal rows, strings decoded; with ``file``, ``start`` and ``rows``."""
    changes = np.zeros(table.num_rows, dtype=bool)
    changes[:1] = True
    for column in table.columns:
        values = codes(column)
        changes[1:] |= values[1:] != values[:-1]
    starts = np.flatnonzero(changes)
    found = table.take(pa.array(starts))
    plain = [c.cast(pa.string()) if pa.types.is_dictionary(c.type) else c for c in found.columns]
    return pa.table(
        {
            **dict(zip(table.column_names, plain, strict=True)),
            "file": pa.array(np.full(len(starts), file)),
            "start": pa.array(starts),
            "rows": pa.array(np.diff(starts, append=table.num_rows)),
        }
    )


def codes(column: pa.ChunkedArray | pa.Array) -> Ints:
    """Return whole numbers that are equal where values of a column are: of strings, of whole numbers, of booleans."""
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):  # of no chunk
        return np.zeros(0, dtype=np.int64)
    if pa.types.is_string(array.type):
        array = array.dictionary_encode()
    if pa.types.is_dictionary(array.type):
        array = array.indices
    least = np.iinfo(np.int64).min
    return np.asarray(array.cast(pa.int64()).fill_null(least).to_numpy(zero_copy_only=False))


def shards(facts: pa.Table, samples: pa.Table) -> tuple[Ints, Ints]:
    """Return a number for the Shard of each row of facts, and of samples."""
    names = [named(table) for table in (facts, samples)]
    both = codes(pa.chunked_array([chunk for each in names for chunk in each.chunks], pa.string()))
    return both[: facts.num_rows], both[facts.num_rows :]


def named(table: pa.Table, columns: Sequence[str] = SHARD) -> pa.ChunkedArray:
    """Return one name for the values of several columns."""
    return pc.binary_join_element_wise(*(table[name].cast(pa.string()) for name in columns), "\0")


@dataclass(frozen=True, kw_only=True, slots=True)
class Survey:
    """facts, samples: a row for each stretch of rows of one Family, or Shard, that lie together in a file."""

    facts: pa.Table
    samples: pa.Table


def survey(number: int, file: ShardFile, columns: Sequence[str]) -> Survey:
    """Look through a file, the ``number``-th. columns: of the facts; rows in which one differs are another stretch.

    Raises:
        UNREADABLE: it is damaged.
    """
    facts = stretches(number, rows_of(file, "facts", columns))
    return Survey(facts=facts, samples=stretches(number, rows_of(file, "sample", SHARD)))


def nothing(columns: Sequence[str]) -> pa.Table:
    """Return what ``stretches`` does for no rows."""
    return stretches(0, SHARD_SCHEMA.empty_table().select(list(columns)))
