"""What a person reads of a ranking: per Family the baseline and the best Candidates, as text cells."""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from orchestrator.figures import UNKNOWN
from orchestrator.shape_code import SHAPE, axis_name, value_name
from tasks.settings import BASELINES, Timing

Row = dict[str, Any]

LEAST_PLAIN = 1e-3
"""TFLOP/s below this are written with an exponent."""
LEGEND = (
    "±: half the interval of the cost relative to the best, as a share of it. tie: those of group 1 cannot be told "
    "from the best, those of a later group not from the best one in it. align: the largest power of two that divides "
    "what one rank holds of the dimension: d_ff / tp, head_dim, padded v / tp, batch * seq; of a shape h, "
    "d_ff / tp and head_dim."
)

NO_INTERVALS = {
    "seed": "one figure a shape: no intervals",
    "sequential": "one shape after another: no intervals, and what drifted is part of the figures",
}
"""What a ranking by a protocol without rounds cannot say."""
ONE_ROUND = "one round: no intervals, who ties goes by the figures alone"

_COLUMNS = ("TFLOP/s", "±", "vs baseline", "tie")
_FOLLOWING = {"a": ("head_dim",), "h": ("head_dim", "d_ff")}
"""Dimensions worth a column of their own beside the one that is chosen, where they change with it."""
_FAMILY = ("gpu", "protocol", "protocol_version", "l2", "power", "family_id")
DIMENSIONS = ("h", "d_ff", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers", "tp", "batch", "seq")
"""What a Family's title names, where all its Candidates share it."""
_READ = (
    *(*_FAMILY, *DIMENSIONS, "role", "dtype", "passes", "axis", "value", "baseline", "params", "mlp_params"),
    *("align_local", "rank", "tie_group", "relative", "relative_low", "relative_high", "speedup", "speedup_low"),
    *("speedup_high", "tflops", "seconds", "rounds", "resolved", "stop_reason", "throttled", "status", "message"),
    "parts",
)
"""Columns that are read: to make Python values of the others takes as long again."""
_LAYERS = ("layers, ms",)
_MOST_PART_COLUMNS = 2  # as many as fit into 80 columns
_LONGEST_MESSAGE = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class TextTable:
    """A table for reading; all cells are plain text. leads: whether the first row is one to compare with."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    leads: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyTable(TextTable):
    """One Family for reading; the first row is the baseline where ``has_baseline``."""

    @property
    def has_baseline(self) -> bool:
        """Whether the Family's baseline is there."""
        return self.leads


def family_tables(ranking: pa.Table, top: int) -> Iterator[FamilyTable]:
    """Yield one table per Family of a ranking (RANKING_SCHEMA), in its order: the baseline, then the best ``top``."""
    rows = ranking.select(list(_READ)).to_pylist()
    for _, family in itertools.groupby(rows, key=lambda row: tuple(row[name] for name in _FAMILY)):
        yield _family_table(list(family), top)


def status_counts(ranking: pa.Table) -> dict[str, int]:
    """Candidates per status, ``ok`` first, then the most frequent."""
    return in_order(Counter(ranking["status"].to_pylist()))


def in_order(counts: Mapping[str, int]) -> dict[str, int]:
    """Return Candidates per status, ``ok`` first, then the most frequent."""
    return dict(sorted(counts.items(), key=lambda item: (item[0] != "ok", -item[1], item[0])))


def tflops(value: float) -> str:
    """Four significant digits from 100 on, else three: a CPU reaches less than 1.

    >>> tflops(633.42), tflops(45.17), tflops(0.04318), tflops(0.0000318)
    ('633.4', '45.2', '0.0432', '3.2e-05')
    """
    if value <= 0:
        return "0"
    if value < LEAST_PLAIN:
        return f"{value:.1e}"
    rounded = float(f"{value:.2e}")  # first: 99.96 has the digits of 100
    digits = 4 if rounded >= 100 else 3
    return f"{value:.{max(digits - 1 - math.floor(math.log10(rounded)), 0)}f}"


def parameters(count: int) -> str:
    """Write a parameter count in thousands, millions or billions.

    >>> parameters(786_432), parameters(134_209_536), parameters(1_409_286_144)
    ('786,432', '134.21M', '1.409B')
    """
    if count < 1_000_000:
        return f"{count:,}"
    return f"{count / 1e6:.2f}M" if count < 1_000_000_000 else f"{count / 1e9:,.3f}B"


def stop_reasons(row: Row) -> list[str]:
    """Why a Family ended before it was through: before its order was resolved, or the seed's figures were all there.

    Of one that ended resolved, and by the rounds in flight no longer was, that.
    """
    told = (row["stop_reason"] or "").split(", ")
    if told == ["resolved"] and not row["resolved"]:
        return ["it was before its last rounds"]
    return [reason for reason in told if reason not in ("", "resolved", "fixed")]


def best_found(row: Row) -> bool:
    """Whether a Family ended where ``timing.goal=top`` wanted it to: its best is known, the order of the others not."""
    return not row["resolved"] and stop_reasons(row) == ["best_found"]


def _family_table(rows: Sequence[Row], top: int) -> FamilyTable:
    baseline = [row for row in rows if row["baseline"]]
    ranked = [row for row in rows if row["rank"] is not None and not row["baseline"]]
    # The estimated best first, wherever its tie group puts it: the others are compared with it.
    best = sorted(ranked, key=lambda row: row["relative"] != 1.0)[:top]
    parts, first = _part_names(rows), rows[0]
    following = _following(rows)
    params = "params" if first["mlp_params"] is None else "mlp_params"
    whole = _LAYERS if first["axis"] == SHAPE else ()
    return FamilyTable(
        title=_title(rows),
        columns=(axis_name(first["axis"]), *following, *_COLUMNS, *whole, params, "align", *parts),
        rows=tuple(_cells(row, following, parts) for row in baseline + best),
        leads=bool(baseline),
        notes=(*_state(rows), *_ties(rows), *_fastest(rows), *_failures(rows)),
    )


def _title(rows: Sequence[Row]) -> str:
    first, rounds = rows[0], max(row["rounds"] or 0 for row in rows)
    names = [name for name in DIMENSIONS if first[name] is not None and len({row[name] for row in rows}) == 1]
    point = " ".join(f"{name}={first[name]}" for name in names if name != first["axis"])
    passes = "" if first["passes"] == "fwd" else f" {first['passes']}"
    return (
        f"{first['role']} {point} {first['dtype']}{passes}, {first['gpu']}, {rounds} round{'' if rounds == 1 else 's'}"
    )


def _following(rows: Sequence[Row]) -> tuple[str, ...]:
    names = _FOLLOWING.get(rows[0]["axis"], ())
    return tuple(name for name in names if len({row[name] for row in rows}) > 1)


def _state(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what a reader must know before trusting the order; nothing where all is as it should be."""
    first = rows[0]
    reasons = ", ".join(stop_reasons(first))
    if first["protocol"] in BASELINES:
        yield NO_INTERVALS[first["protocol"]]
        if reasons:
            yield f"not all: {reasons}"
    elif best_found(first):
        yield "the best is found; the order of the others is not resolved"
    elif not first["resolved"] and any(row["rank"] is not None for row in rows):
        yield "not resolved" + (f": {reasons}" if reasons else "")
        if sum(row["rank"] is not None for row in rows) > 1 and max(row["rounds"] or 0 for row in rows) == 1:
            yield ONE_ROUND
    default = Timing()
    regime = [f"{name} {first[name]}" for name in ("protocol", "l2", "power") if first[name] != getattr(default, name)]
    if regime:
        yield ", ".join(regime)
    if first["throttled"]:
        yield "throttled: the device slowed down for heat or power faults while it measured"


def _ties(rows: Sequence[Row]) -> Iterator[str]:
    tied = [row["params"] for row in rows if row["tie_group"] == 1]
    if len(tied) > 1:
        first = "; those with fewer parameters first" if len(set(tied)) > 1 else ""
        yield f"{len(tied) - 1} cannot be told from the best{first}"


def _failures(rows: Sequence[Row]) -> Iterator[str]:
    failed = [row for row in rows if row["rank"] is None]
    if failed:
        counts = ", ".join(
            f"{count} {status}" for status, count in in_order(Counter(row["status"] for row in failed)).items()
        )
        message = " ".join(failed[0]["message"].split())
        short = message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"
        yield f"not measured: {counts}; {axis_name(failed[0]['axis'])} {_value(failed[0])}: {short}"


def _fastest(rows: Sequence[Row]) -> Iterator[str]:
    """Say which shape takes the least time in all, where that is surely less than what the best per FLOP takes.

    Times beside the best's are those of ``relative``, in which no drift is.
    """
    timed = [row for row in rows if row["axis"] == SHAPE and row["relative_high"] is not None]
    if not timed:
        return
    best = min(timed, key=lambda row: row["relative"])
    work = best["tflops"] * best["seconds"]

    def beside(row: Row, cost: str) -> float:
        return float(row[cost] * row["tflops"] * row["seconds"] / work)

    least = min(timed, key=lambda row: beside(row, "relative"))
    if beside(least, "relative_high") < 1:
        less = (1 - beside(least, "relative")) * 100
        yield (
            f"all layers take the least time as {_value(least)}: {less:.1f}% less than the best per FLOP, with "
            f"{parameters(least['params'])} parameters to its {parameters(best['params'])}"
        )


def _value(row: Row) -> str:
    return value_name(row["axis"], row["value"])


def _milliseconds(row: Row) -> str:
    """What the Gemms of all layers take."""
    if row["seconds"] is None or row["layers"] is None:
        return UNKNOWN
    return f"{row['seconds'] * row['layers'] * 1e3:.4g}"


def _part_names(rows: Sequence[Row]) -> tuple[str, ...]:
    """Names of the parts to show beside the whole: none where the whole is the only one."""
    names = tuple(part["part"] for part in max((row["parts"] or [] for row in rows), key=len))
    return names if 1 < len(names) <= _MOST_PART_COLUMNS else ()


def _cells(row: Row, following: Sequence[str], parts: Sequence[str]) -> tuple[str, ...]:
    known = {part["part"]: part["tflops"] for part in row["parts"] or []}
    return (
        _value(row),
        *(UNKNOWN if row[name] is None else str(row[name]) for name in following),
        UNKNOWN if row["tflops"] is None else tflops(row["tflops"]),
        _uncertainty(row),
        _versus_baseline(row),
        UNKNOWN if row["tie_group"] is None else str(row["tie_group"]),
        *([_milliseconds(row)] if row["axis"] == SHAPE else []),
        UNKNOWN if row["params"] is None else parameters(row["params"]),
        str(row["align_local"]),
        *(tflops(known[name]) if name in known else UNKNOWN for name in parts),
    )


def _uncertainty(row: Row) -> str:
    low, high = row["relative_low"], row["relative_high"]
    if low is None or high is None:
        return UNKNOWN
    if low == high == 1.0:
        return "best"
    percent = (high - low) / 2 / row["relative"] * 100
    return f"{percent:.2f}%" if percent < 100 else ">100%"


def _versus_baseline(row: Row) -> str:
    """Say how much faster per FLOP; ``tie`` where the interval cannot tell it from the baseline."""
    if row["baseline"]:
        return "baseline" if row["rank"] is not None else str(row["status"])
    if row["speedup"] is None:
        return UNKNOWN
    low, high = row["speedup_low"], row["speedup_high"]
    if low is not None and high is not None and low <= 1.0 <= high:
        return "tie"
    return f"{(row['speedup'] - 1) * 100:+.1f}%"
