"""Points that are not measured, and why; a reason is written when somebody reads it."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from orchestrator.lazy import Lazy
from tasks.family import FamilyKey


@dataclass(frozen=True, kw_only=True, slots=True)
class Skip(FamilyKey):
    """Points that are not measured, and why: one Point, or a whole Family where ``value`` is None."""

    value: int | None
    points: int
    kind: str  # the reason without its numbers, for counting
    reason: str


class SkipPart(Protocol):
    """The Skips of one role and dtype, in their order."""

    def __len__(self) -> int:
        """How many there are."""

    def skip(self, place: int) -> Skip:
        """One of them."""

    def counts(self) -> dict[str, int]:
        """How many Points there are of each kind, in the order in which the kinds come."""

    def places(self, kind: str) -> Iterable[int]:
        """Where those of a kind are."""


class Skips(Lazy[Skip]):
    """All Skips of an expansion, part after part."""

    def __init__(self, parts: Iterable[SkipPart]) -> None:
        """Take the parts."""
        self._parts = list(parts)
        self._ends = list(accumulate(map(len, self._parts)))
        super().__init__(self._ends[-1] if self._ends else 0, self._skip)

    def counts(self) -> dict[str, int]:
        """How many Points are skipped for each kind of reason, in the order in which the kinds come."""
        found: dict[str, int] = {}
        for part in self._parts:
            for kind, count in part.counts().items():
                found[kind] = found.get(kind, 0) + count
        return found

    def of(self, kind: str) -> Iterator[Skip]:
        """Yield those of one kind."""
        for part in self._parts:
            yield from map(part.skip, part.places(kind))

    def _skip(self, place: int) -> Skip:
        part = bisect_right(self._ends, place)
        return self._parts[part].skip(place - (self._ends[part - 1] if part else 0))


def reasons(skips: Skips) -> dict[str, int]:
    """How many Points are skipped for each kind of reason, most first."""
    return dict(sorted(skips.counts().items(), key=lambda item: -item[1]))
