"""What ``check`` says: a verdict for each rule, with the values that would pass."""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.check_case import Case
from orchestrator.check_measured import Gain

PASS, WARN, FAIL, SKIP = "pass", "warn", "fail", "skip"
STATUSES = (PASS, WARN, FAIL, SKIP)
"""skip: the rule does not apply, or what it needs is not known."""
_BADNESS = {SKIP: 0, PASS: 0, WARN: 1, FAIL: 2}


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """How one rule judges a Case.

    value: the number that was judged. levers: the dimensions that may be changed to pass, the first one first.
    among: the only values to look at, where not every value will do.
    """

    status: str
    value: int | float | None
    reason: str
    levers: tuple[str, ...] = ()
    among: tuple[int, ...] = ()

    def is_worse_than(self, other: "Verdict") -> bool:
        """Return whether the status is worse."""
        return _BADNESS[self.status] > _BADNESS[other.status]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShapeRule:
    """A rule about the shape of a model. number: of the six rules, ``+`` for the others.

    judge: None where the model has nothing that the rule is about.
    """

    name: str
    number: str
    title: str
    judge: Callable[[Case], Verdict | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Suggestion:
    """A value that passes. parameters: what the change adds; percent: of the model. gain: as measured."""

    dimension: str
    value: int
    parameters: int
    percent: float
    gain: Gain | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A rule, its verdict, and the nearest values that pass it and make no other rule worse."""

    rule: str
    number: str
    title: str
    status: str
    value: int | float | None
    reason: str
    suggestions: tuple[Suggestion, ...] = ()
