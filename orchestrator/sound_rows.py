"""What every row of a Shard has that can be read, so that those who read it need not ask."""

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from orchestrator.errors import shorten
from tasks.gemm import ELEMENT_BYTES, KINDS, LAYOUTS, kind_of

_KEY = ("bundle_id", "attempt", "uuid", "gemm_id")
_DEVICE = ("device_kind", "gpu", "host", "sm_count", "memory_bytes")
_FAMILY = ("family_id", "role", "batch", "part", "status")
_MEASURING = ("protocol", "protocol_version", "l2", "power", "rounds", "plan_hash")

KNOWN: Mapping[str, tuple[str, ...]] = {"kind": KINDS, "dtype": tuple(ELEMENT_BYTES), "layout": LAYOUTS}
"""What of a Gemm is a name, and the names that there are; a later version may know more."""
SHOWN = 3
"""Values that a complaint names."""

_ONE = pc.scalar(1)
_MOMENTS = tuple(pa.scalar(datetime(year, 1, 1, tzinfo=UTC), pa.timestamp("us", tz="UTC")) for year in (2, 9999))
"""Between these Python has dates in every time zone."""
_ZERO = pc.scalar(0.0)


def _there(*names: str) -> dict[str, pc.Expression]:
    return {name: pc.field(name).is_valid() for name in names}


def _kind() -> pc.Expression:
    """What multiplies two matrices of a dtype, or a batch of them: ``Gemm`` takes no other."""
    batched, alone = pc.field("kind") == "bmm", pc.field("b") == _ONE
    dtypes = {kind: [name for name in ELEMENT_BYTES if kind_of(name) == kind] for kind in KINDS}
    own = [(pc.field("kind") == kind) & pc.field("dtype").isin(names) for kind, names in dtypes.items() if names]
    return batched | (alone & reduce(or_, own))


def _positive(name: str, kind: pa.DataType) -> pc.Expression:
    """Whether it is a number above 0 that is finite."""
    zero, infinite = (pc.scalar(pa.scalar(value, kind)) for value in (0.0, math.inf))
    return (pc.field(name) > zero) & (pc.field(name) < infinite)


_RECORD = {"record": pc.field("record").isin(["facts", "sample"])}
FACTS: Mapping[str, pc.Expression] = {
    **_RECORD,
    **_there(*_KEY, *_DEVICE, *_FAMILY, *_MEASURING),
    **{name: pc.field(name) >= _ONE for name in ("tp", "b", "m", "n", "k", "looks")},
    **{name: pc.field(name).isin(names) for name, names in KNOWN.items() if name != "kind"},
    "kind": _kind(),
    "started_utc": (pc.field("started_utc") >= pc.scalar(_MOMENTS[0]))
    & (pc.field("started_utc") < pc.scalar(_MOMENTS[1])),
    "flops": pc.field("flops") == reduce(pc.multiply, [pc.scalar(2), *map(pc.field, ("b", "m", "n", "k"))]),
    "value": pc.if_else(pc.field("axis").is_valid(), pc.field("value"), pc.field("d_ff")) >= _ONE,  # null in version 1
    "tie_pct": pc.field("tie_pct") >= _ZERO,
    "confidence": (pc.field("confidence") > _ZERO) & (pc.field("confidence") < pc.scalar(1.0)),
}
"""What must be true of a facts row, by the column that it is about; null is not true."""

SAMPLE: Mapping[str, pc.Expression] = {
    **_RECORD,
    **_there(*_KEY, "round"),
    "seconds": _positive("seconds", pa.float64()),
    "slowdown": pc.coalesce(_positive("slowdown", pa.float32()), pc.scalar(True)),
}
"""What must be true of a sample row."""


def all_true(conditions: Mapping[str, pc.Expression]) -> pc.Expression:
    """Whether all of these are true of a row."""
    return pc.coalesce(reduce(and_, conditions.values()), pc.scalar(False))


def complaint(dataset: ds.Dataset, conditions: Mapping[str, pc.Expression], rows: pc.Expression | None = None) -> str:
    """Name the columns in which some of the rows are not as they must be; nothing where all are.

    rows: which to look at. Of names that are not known it says which they are, and which are known.
    """
    columns = {name: all_true({name: each}) for name, each in conditions.items()}
    found = dataset.to_table(columns=columns, filter=rows)
    wrong = [name for name in columns if not pc.all(found[name], min_count=0).as_py()]
    if not wrong:
        return ""
    unknown = {name: _unknown(dataset, name, rows) for name in wrong if name in KNOWN}
    if any(unknown.values()):  # what they are of, a kind that fits no unknown dtype, is no fault of its own
        wrong = [name for name in wrong if unknown.get(name) != []]
    told = [name + _told(name, unknown.get(name)) for name in wrong]
    return f"rows without a value, or with an impossible one, in: {', '.join(told)}"


def _unknown(dataset: ds.Dataset, name: str, rows: pc.Expression | None) -> list[str]:
    strange = pc.field(name).is_valid() & ~pc.field(name).isin(KNOWN[name])
    found = dataset.to_table(columns=[name], filter=strange if rows is None else rows & strange)
    return sorted(set(found[name].to_pylist()))


def _told(name: str, unknown: list[str] | None) -> str:
    if not unknown:
        return ""
    shown = ", ".join(f"'{shorten(value)}'" for value in unknown[:SHOWN]) + ("…" if len(unknown) > SHOWN else "")
    return f" ({shown}, of a later version or damaged; known are {', '.join(KNOWN[name])})"
