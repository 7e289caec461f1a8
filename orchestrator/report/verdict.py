"""What a Family's ranking comes to, in one sentence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.shape_code import axis_name, value_name
from orchestrator.tables import NO_INTERVALS, best_found, parameters, stop_reasons, tflops
from tasks.settings import BASELINES

Row = dict[str, Any]

LISTED = 6
"""Values of a tie group that a sentence names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A Family's outcome. best: the value that costs the least per FLOP; None where nothing was measured.

    tied: the values that cannot be told from it, itself left out. lean: of all these the one with the fewest
    parameters. gain: how much faster than the baseline, 0.03 is 3%, 0 where it is the best itself; None without
    one. distinct: whether the interval tells the best from the baseline. resolved: whether the order is. state:
    what to know before believing the order.
    """

    axis: str
    best: int | None
    tflops: float | None
    tied: tuple[int, ...]
    lean: int | None
    baseline: int | None
    gain: float | None
    distinct: bool
    measured: int
    failed: int
    resolved: bool
    state: str
    sentence: str


def verdict(rows: Sequence[Row]) -> Verdict:
    """Judge the rows of one Family on one GPU model as a ranking has them."""
    ranked = [row for row in rows if row["rank"] is not None]
    failed = [row for row in rows if row["rank"] is None]
    baseline = next((row for row in rows if row["baseline"]), None)
    axis = rows[0]["axis"]
    if not ranked:
        return _nothing(axis, baseline, failed)
    best = min(ranked, key=lambda row: (row["relative"], row["value"]))
    tied = tuple(row["value"] for row in ranked if row["tie_group"] == 1 and row is not best)
    gain = None if best["speedup"] is None else best["speedup"] - 1
    found = Verdict(
        axis=axis,
        best=best["value"],
        tflops=best["tflops"],
        tied=tied,
        lean=next(row["value"] for row in ranked if row["tie_group"] == 1),
        baseline=None if baseline is None else baseline["value"],
        gain=gain,
        distinct=_distinct(best),
        measured=len(ranked),
        failed=len(failed),
        resolved=_resolved(ranked[0]),
        state=_state(ranked[0]),
        sentence="",
    )
    parts = [_lead(found, best), *_ties(found, ranked), *_notes(found, failed)]
    return replace(found, sentence=". ".join(parts) + ".")


def _nothing(axis: str, baseline: Row | None, failed: Sequence[Row]) -> Verdict:
    return Verdict(
        axis=axis,
        best=None,
        tflops=None,
        tied=(),
        lean=None,
        baseline=None if baseline is None else baseline["value"],
        gain=None,
        distinct=False,
        measured=0,
        failed=len(failed),
        resolved=True,
        state="",
        sentence=f"Nothing was measured: {_counted(failed)}.",
    )


def _distinct(best: Row) -> bool:
    low, high = best["speedup_low"], best["speedup_high"]
    told_apart = low is None or high is None or not low <= 1 <= high
    return best["speedup"] is not None and not best["baseline"] and told_apart


def _lead(found: Verdict, best: Row) -> str:
    lead = f"{axis_name(found.axis)} {_named(found, best['value'])} is best at {tflops(best['tflops'])} TFLOP/s"
    if best["baseline"]:
        return f"{lead}; it is the baseline"
    if found.baseline is None:
        return f"{lead}; there is no baseline"
    if found.gain is None:
        return f"{lead}; the baseline {_named(found, found.baseline)} was not measured"
    if not found.distinct:
        return f"{lead}; it cannot be told from the baseline {_named(found, found.baseline)}"
    return f"{lead}, {found.gain * 100:+.1f}% over the baseline {_named(found, found.baseline)}"


def _named(found: Verdict, value: int) -> str:
    return value_name(found.axis, value)


def _ties(found: Verdict, ranked: Sequence[Row]) -> list[str]:
    """Say who cannot be told from the best, and which of them is the cheapest to keep."""
    if not found.tied:
        return ["No other is as fast"] if found.measured > 1 else []
    if found.measured == len(found.tied) + 1 and found.measured > LISTED:
        text = f"None of the {found.measured} can be told from another"
    else:
        shown = ", ".join(_named(found, value) for value in sorted(found.tied)[:LISTED])
        more = f" and {len(found.tied) - LISTED} more" if len(found.tied) > LISTED else ""
        text = f"{shown}{more} cannot be told from it"
    lean = next(row for row in ranked if row["value"] == found.lean)
    alike = len({row["params"] for row in ranked if row["tie_group"] == 1}) == 1
    if found.lean == found.best or lean["params"] is None or alike:
        return [text]
    return [f"{text}; of these {_named(found, lean['value'])} has the fewest parameters ({parameters(lean['params'])})"]


def _notes(found: Verdict, failed: Sequence[Row]) -> list[str]:
    return [*([found.state] if found.state else []), *([f"Not measured: {_counted(failed)}"] if failed else [])]


def _counted(failed: Sequence[Row]) -> str:
    counts = Counter(row["status"] for row in failed)
    return ", ".join(f"{count} {status}" for status, count in counts.most_common())


def _resolved(row: Row) -> bool:
    """Whether the order is resolved; a protocol without rounds has none to resolve."""
    return bool(row["resolved"]) or row["protocol"] in BASELINES


def _state(row: Row) -> str:
    if row["throttled"]:
        return "The device was throttled meanwhile"
    reasons = ", ".join(stop_reasons(row))
    if row["protocol"] in BASELINES:
        return NO_INTERVALS[row["protocol"]].capitalize() + (f"; not all ({reasons})" if reasons else "")
    if best_found(row):
        return "The best is found; the order of the others is not resolved"
    if not _resolved(row):
        return "The order was not resolved" + (f" ({reasons})" if reasons else "")
    return ""
