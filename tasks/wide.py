"""From coarse to fine: which of very many Candidates are worth measuring at all.

A first level measures a few Candidates of each alignment class. A class is left out where all of them failed or are
far behind the best; of the others a second level measures as many, spread evenly, and a third those that lie beside one
that is near the best. Those that look best of all these race, LEVEL of them. Two assumptions, not bounds: a class has
no Candidate that is more than CLASS_PCT faster than the fastest of those tried first; between two neighbours in a class
there is none that is more than NEAR_PCT faster than both.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from tasks.family import Candidate, Family
from tasks.gemm import largest_power_of_two
from tasks.location import MIN_ROUNDS, Floats

if TYPE_CHECKING:
    from tasks.comparison import Comparison

WIDE = 256
"""A Family of more Candidates is searched from coarse to fine; of fewer each is measured."""

LEVEL_ROUNDS = MIN_ROUNDS
"""Rounds of a level: the fewest that tell how far apart two Candidates are."""

LEVELS = 3
"""Levels before the race."""

CLASS_SAMPLE = 8
"""Candidates of each class in the first level."""

LEVEL = 128
"""Candidates that each further level adds, and that race in the end: those that look best so far."""

CLASS_PCT = 10.0
NEAR_PCT = 2.0

FINEST = 128
"""Elements: no kernel is known to care for a larger power of two in what it is given."""


def alignment_class(candidate: Candidate) -> int:
    """The largest power of two, up to FINEST, that divides what one rank holds of the chosen dimension."""
    return min(FINEST, largest_power_of_two(candidate.local_dim or candidate.value))


class Search:
    """One Family's way through the levels. Candidates are indices into ``family.candidates``."""

    def __init__(self, family: Family) -> None:
        self._classes: dict[int, list[int]] = defaultdict(list)
        for i, candidate in enumerate(family.candidates):
            self._classes[alignment_class(candidate)].append(i)
        self._size = len(family.candidates)
        self._baseline = [i for i, candidate in enumerate(family.candidates) if candidate.baseline]
        self._known: set[int] = set()
        self._left_out: dict[int, float] = {}
        self._depth = 0

    @property
    def wide(self) -> bool:
        """Whether there are levels before the race."""
        return self._size > WIDE

    def first(self) -> list[int]:
        """The Candidates to begin with: all where they are few."""
        if not self.wide:
            return self._added(range(self._size))
        ends = [0, self._size - 1]  # the smallest and the largest: what any of the others takes, one of them takes
        return self._added([*ends, *self._baseline, *self._spread(CLASS_SAMPLE * len(self._classes))])

    def following(self, comparison: "Comparison") -> tuple[list[int], bool]:
        """What to measure after a level that gave ``comparison``, and whether that is the race."""
        from tasks.racing import behind_at_least  # not for a plan, which asks for the sizes alone

        self._depth += 1
        behind = behind_at_least(comparison)
        near = [i for i in comparison.order if behind[i] <= math.log1p(NEAR_PCT / 100)]
        if self._depth == 1:
            self._leave_out(behind)
            more = self._spread(LEVEL)
        elif self._depth < LEVELS:
            more = self._beside(near)
        else:
            return near[:LEVEL], True
        return [*near, *self._added(more)], False

    def why_not(self, i: int) -> str:
        """Why Candidate ``i`` was not measured."""
        for name, members in self._classes.items():
            if name in self._left_out and i in members:
                of = f"multiples of {name}" if name == FINEST else f"multiples of {name}, not of {2 * name},"
                behind = self._left_out[name]
                if math.isinf(behind):
                    return f"none of the {of} that were tried could be measured"
                return f"{of} were {100 * math.expm1(behind):.0f}% or more behind the best"
        if self._depth < LEVELS:
            return "the search ended before its turn"
        return f"not beside one that was within {NEAR_PCT:g}% of the best"

    def _leave_out(self, behind: Floats) -> None:
        for name, members in self._classes.items():
            tried = [math.inf if np.isnan(behind[i]) else float(behind[i]) for i in members if i in self._known]
            if min(tried) > math.log1p(CLASS_PCT / 100):
                self._left_out[name] = min(tried)

    def _open(self) -> list[list[int]]:
        return [members for name, members in self._classes.items() if name not in self._left_out]

    def _spread(self, most: int) -> list[int]:
        """About so many of what is left, as many of each class, evenly over its values."""
        return [i for members, share in _shares(self._open(), most) for i in evenly(members, share)]

    def _beside(self, near: Sequence[int]) -> list[int]:
        """Those between the neighbours in its class of each that is near the best, until there are LEVEL."""
        place = {i: (members, at) for members in self._open() for at, i in enumerate(members)}
        found: dict[int, None] = {}
        for i in near:
            if i in place:
                members, at = place[i]
                found.update(dict.fromkeys(self._gap(members, at, -1)))
                found.update(dict.fromkeys(self._gap(members, at, 1)))
            if len(found) >= LEVEL:
                break
        return list(found)[:LEVEL]

    def _gap(self, members: Sequence[int], at: int, step: int) -> Iterable[int]:
        """Members from ``at`` to the next one that is known, both excluded, nearest first."""
        at += step
        while 0 <= at < len(members) and members[at] not in self._known:
            yield members[at]
            at += step

    def _added(self, candidates: Iterable[int]) -> list[int]:
        added = [i for i in dict.fromkeys(candidates) if i not in self._known]
        self._known.update(added)
        return added


def evenly(members: Sequence[int], count: int) -> list[int]:
    """``count`` of the members, evenly spread, the first and the last among them; all where they are fewer."""
    if count >= len(members):
        return list(members)
    places = np.linspace(0, len(members) - 1, count).round().astype(int)
    return [members[place] for place in dict.fromkeys(places.tolist())]


def _shares(classes: Sequence[Sequence[int]], most: int) -> Iterable[tuple[Sequence[int], int]]:
    """Share ``most`` out over the classes; what a small one does not need, the others get."""
    left = most
    for place, members in enumerate(sorted(classes, key=len)):
        share = min(len(members), left // (len(classes) - place))
        left -= share
        yield members, share
