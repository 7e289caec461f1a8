"""What every row of a Shard has that can be read, so that those who read it need not ask."""

from collections.abc import Mapping
from functools import reduce
from operator import and_

import pyarrow.compute as pc

_KEY = ("bundle_id", "attempt", "uuid", "gemm_id")
_DEVICE = ("device_kind", "gpu", "host", "sm_count", "memory_bytes")
_FAMILY = ("family_id", "role", "batch", "dtype", "layout", "part", "kind", "status")
_MEASURING = ("protocol", "protocol_version", "l2", "power", "rounds", "started_utc", "plan_hash")

_ONE = pc.scalar(1)
_ZERO = pc.scalar(0.0)


def _there(*names: str) -> dict[str, pc.Expression]:
    return {name: pc.field(name).is_valid() for name in names}


_RECORD = {"record": pc.field("record").isin(["facts", "sample"])}
FACTS: Mapping[str, pc.Expression] = {
    **_RECORD,
    **_there(*_KEY, *_DEVICE, *_FAMILY, *_MEASURING),
    **{name: pc.field(name) >= _ONE for name in ("tp", "b", "m", "n", "k", "flops", "looks")},
    "value": pc.if_else(pc.field("axis").is_valid(), pc.field("value"), pc.field("d_ff")) >= _ONE,  # null in version 1
    "tie_pct": pc.field("tie_pct") >= _ZERO,
    "confidence": (pc.field("confidence") > _ZERO) & (pc.field("confidence") < pc.scalar(1.0)),
}
"""What must be true of a facts row, by the column that it is about; null is not true."""

SAMPLE: Mapping[str, pc.Expression] = {
    **_RECORD,
    **_there(*_KEY, "round"),
    "seconds": pc.field("seconds") > _ZERO,
}
"""What must be true of a sample row."""


def all_true(conditions: Mapping[str, pc.Expression]) -> pc.Expression:
    """Whether all of these are true of a row."""
    return pc.coalesce(reduce(and_, conditions.values()), pc.scalar(False))
