"""What a run measured: the Families that a model's dimensions can be looked up in."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from types import MappingProxyType
from typing import Any

from orchestrator.model import Model

Row = Mapping[str, Any]

MLP_ROLES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"swiglu": ("mlp", "mlp_gate_up"), "gelu": ("mlp_gelu", "mlp_up")}
)
"""The roles that tell of a dense layer's d_ff, the best first."""
D_FF = "d_ff"
FORWARD = "fwd"
_FAMILY = ("gpu", "protocol", "protocol_version", "l2", "power", "family_id")
_DIMENSIONS = ("h", "a", "kv", "head_dim", "d_ff", "v", "experts", "topk")
_FOLLOWERS = ("kv", "head_dim")
"""Dimensions that may change with the one that is chosen."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Gain:
    """How much faster per FLOP, in percent, with the bounds of its interval where there are any."""

    percent: float
    low: float | None
    high: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredValue:
    """One Candidate. dimensions: what the ranking says of its model.

    relative: cost per FLOP over the best's; tie_group 1: cannot be told from the best. speedup: over the baseline, with
    its interval, which is that pair's own; None where the Family has no baseline.
    """

    value: int
    dimensions: tuple[tuple[str, int], ...]
    rank: int
    tie_group: int
    relative: float
    low: float | None
    high: float | None
    baseline: bool = False
    speedup: tuple[float | None, float | None, float | None] = (None, None, None)

    def is_of(self, model: Model, without: Sequence[str] = ()) -> bool:
        """Return whether every known dimension, but for those of ``without``, is the model's."""
        return all(getattr(model, name) == size for name, size in self.dimensions if name not in without)


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredFamily:
    """The values of one dimension of a model that competed on one GPU model.

    preference: 0 for the role that tells the most of this dimension.
    """

    dimension: str
    preference: int
    gpu: str
    role: str
    tp: int
    batch: int
    seq: int | None
    dtype: str
    values: tuple[MeasuredValue, ...]

    def is_about(self, model: Model) -> bool:
        """Return whether the model differs from those measured in no more than the chosen dimension."""
        return self.values[0].is_of(model, without=(self.dimension, *_FOLLOWERS))

    def find(self, model: Model) -> MeasuredValue | None:
        """Return what was measured of a model."""
        return next((value for value in self.values if value.is_of(model)), None)

    @property
    def winners(self) -> tuple[int, ...]:
        """The values that cannot be told from the best."""
        return tuple(value.value for value in self.values if value.tie_group == 1)

    def gain(self, old: Model, new: Model) -> Gain | None:
        """Return how much faster per FLOP ``new`` is than ``old``; None where one of them was not measured."""
        before, after = self.find(old), self.find(new)
        if before is None or after is None:
            return None
        speedup, low, high = after.speedup
        if before.baseline and speedup is not None:
            return Gain(percent=(speedup - 1) * 100, low=_percent(low), high=_percent(high))
        return Gain(
            percent=(before.relative / after.relative - 1) * 100,
            low=None if before.low is None or after.high is None else (before.low / after.high - 1) * 100,
            high=None if before.high is None or after.low is None else (before.high / after.low - 1) * 100,
        )


def families(rows: Iterable[Row], mlp: str) -> tuple[MeasuredFamily, ...]:
    """Return the Families of a ranking (rows of RANKING_SCHEMA, in its order) that tell of a model with this MLP."""
    measured = [row for row in rows if row["rank"] is not None and (row.get("passes") or FORWARD) == FORWARD]
    groups = groupby(measured, key=lambda row: tuple(row[name] for name in _FAMILY))
    return tuple(family for _, group in groups for family in _families(list(group), mlp))


def _families(rows: Sequence[Row], mlp: str) -> Iterator[MeasuredFamily]:
    first = rows[0]
    axis = first.get("axis") or D_FF  # a ranking that does not say is of d_ff
    for dimension, (of, roles) in _tellers(mlp).items():
        if axis == of and first["role"] in roles and (first.get("ep") or 1) == 1:
            yield MeasuredFamily(
                dimension=dimension,
                preference=roles.index(first["role"]),
                **{name: first[name] for name in ("gpu", "role", "tp", "batch", "seq", "dtype")},
                values=tuple(_value(row, of, dimension) for row in rows),
            )


def _tellers(mlp: str) -> Mapping[str, tuple[str, tuple[str, ...]]]:
    """Return, for each dimension of a model, what a ranking calls it and the roles that tell of it, the best first."""
    return {
        D_FF: (D_FF, MLP_ROLES[mlp]),
        "expert_d_ff": (D_FF, ("experts", "expert_gate_up")),
        "a": ("a", ("attn", "attention")),
        "kv": ("kv", ("attn", "qkv")),
        "v": ("v", ("logits",)),
    }


def _value(row: Row, axis: str, dimension: str) -> MeasuredValue:
    known = {name: row[name] for name in _DIMENSIONS if row.get(name) is not None}
    renamed = {dimension if name == axis else name: size for name, size in known.items()}
    return MeasuredValue(
        value=renamed[dimension],
        dimensions=tuple(renamed.items()),
        rank=row["rank"],
        tie_group=row["tie_group"],
        relative=row["relative"],
        low=row["relative_low"],
        high=row["relative_high"],
        baseline=bool(row.get("baseline")),
        speedup=(row.get("speedup"), row.get("speedup_low"), row.get("speedup_high")),
    )


def _percent(speedup: float | None) -> float | None:
    return None if speedup is None else (speedup - 1) * 100
