"""What a run measured of d_ff: the Families that a model's MLP can be looked up in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

Row = Mapping[str, Any]

ROLES: Mapping[str, tuple[str, ...]] = {"swiglu": ("mlp", "mlp_gate_up"), "gelu": ("mlp_up",)}
"""The roles that tell of an MLP, the best first."""
AXIS = "d_ff"
_FAMILY = ("gpu", "protocol", "protocol_version", "l2", "power", "family_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """How much faster per FLOP, in percent, with the bounds of its interval where there are any."""

    percent: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredValue:
    """One d_ff of a Family. relative: cost per FLOP over the best's; tie_group 1: cannot be told from the best."""

    d_ff: int
    rank: int
    tie_group: int
    relative: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFamily:
    """The d_ff that competed on one GPU model for one h and tp. preference: 0 for the role that tells the most."""

    gpu: str
    role: str
    preference: int
    h: int
    tp: int
    batch: int
    seq: int | None
    dtype: str
    values: tuple[MeasuredValue, ...]

    def find(self, d_ff: int) -> MeasuredValue | None:
        """Return what was measured of a d_ff."""
        return next((value for value in self.values if value.d_ff == d_ff), None)

    @property
    def winners(self) -> tuple[int, ...]:
        """The d_ff that cannot be told from the best."""
        return tuple(value.d_ff for value in self.values if value.tie_group == 1)

    def gain(self, old: int, new: int) -> Gain | None:
        """Return how much faster per FLOP ``new`` is than ``old``; None where one of them was not measured."""
        before, after = self.find(old), self.find(new)
        if before is None or after is None:
            return None
        return Gain(
            percent=_percent(before.relative, after.relative),
            low=None if before.low is None or after.high is None else _percent(before.low, after.high),
            high=None if before.high is None or after.low is None else _percent(before.high, after.low),
        )


def families(rows: Iterable[Row], mlp: str) -> tuple[MeasuredFamily, ...]:
    """Return the Families of a ranking (rows of RANKING_SCHEMA, in its order) that tell of this kind of MLP."""
    roles = ROLES[mlp]
    measured = [row for row in rows if row["rank"] is not None and row["role"] in roles and _is_of_d_ff(row)]
    groups = groupby(measured, key=lambda row: tuple(row[name] for name in _FAMILY))
    return tuple(_family(list(group), roles) for _, group in groups)


def _is_of_d_ff(row: Row) -> bool:
    """A ranking may be of another dimension; one that does not say is of d_ff."""
    return (row.get("axis") or AXIS) == AXIS


def _family(rows: Sequence[Row], roles: Sequence[str]) -> MeasuredFamily:
    first = rows[0]
    return MeasuredFamily(
        **{name: first[name] for name in ("gpu", "role", "h", "tp", "batch", "seq", "dtype")},
        preference=roles.index(first["role"]),
        values=tuple(_value(row) for row in rows),
    )


def _value(row: Row) -> MeasuredValue:
    return MeasuredValue(
        d_ff=row["d_ff"],
        rank=row["rank"],
        tie_group=row["tie_group"],
        relative=row["relative"],
        low=row["relative_low"],
        high=row["relative_high"],
    )


def _percent(before: float, after: float) -> float:
    return (before / after - 1) * 100
