"""Rounds in fresh random order until the order is resolved: pure logic, no device and no clock of its own."""

import math
import random
from collections.abc import Sequence

import numpy as np

from tasks.family import Bundle, Family
from tasks.racing import race
from tasks.records import Sample
from tasks.settings import Timing
from tasks.statistics import Comparison, compare


class Sampler:
    """Decides which Gemms a round visits, in which order, and when to stop.

    ``live`` are indices into ``bundle.gemms`` that can be measured; the others failed before the first round, or
    ``join`` later, once it is known that they are worth it. The
    caller asks for ``next_round()``, measures it, hands the samples to ``record`` and reads ``stop_reason``.
    """

    def __init__(self, bundle: Bundle, timing: Timing, live: Sequence[int], first_round: int = 0) -> None:
        self._bundle = bundle
        self._timing = timing
        self._index = {gemm.gemm_id: i for i, gemm in enumerate(bundle.gemms)}
        self._live = list(live)
        self._random = random.Random(f"{timing.seed}:{bundle.bundle_id}:{first_round}")
        self._seconds: list[dict[int, float]] = []
        self._first = self._planned = first_round
        self._joined = 0  # rounds recorded when the last ones joined
        self._level: int | None = None  # so many rounds in which nobody leaves, before others join
        self._left_at = 0  # rounds that the first Candidate to leave was in: the others get the least rounds after them
        self._least_s: float | None = None  # when the least rounds were done
        self.samples: list[Sample] = []
        self.resolved = False  # the goal is reached: the order of all, or who is best

    @property
    def rounds(self) -> int:
        """Rounds recorded so far."""
        return len(self._seconds)

    @property
    def together(self) -> int:
        """Rounds recorded since the last Gemms joined."""
        return self.rounds - self._joined

    @property
    def live(self) -> tuple[int, ...]:
        """Indices of the Gemms that the next round visits."""
        return tuple(self._live)

    @property
    def _least_rounds(self) -> int:
        alone = all(len(family.candidates) == 1 for family in self._bundle.families)  # nobody to race against
        return (self._timing.lone_rounds if alone else self._timing.least_rounds) + self._left_at

    @property
    def may_plan(self) -> bool:
        """Whether another round may be enqueued, counting those in flight."""
        most = self._timing.max_rounds if self._level is None else self._level
        return self._planned - self._first - self._joined < most

    def join(self, live: Sequence[int], level: int | None = None) -> None:
        """From the next round on visit these, until they are compared; or for so many rounds that are only a level.

        No round may be in flight.
        """
        self._live, self._level, self._joined = list(live), level, self.rounds
        self._left_at, self._least_s, self.resolved = 0, None, False

    def next_round(self) -> tuple[int, tuple[int, ...]]:
        """Return (round number, indices of the live Gemms in a fresh random order)."""
        number, self._planned = self._planned, self._planned + 1
        order = list(self._live)
        self._random.shuffle(order)
        return number, tuple(order)

    def record(self, samples: Sequence[Sample]) -> None:
        """Take one round's samples; none is ever dropped."""
        self.samples.extend(samples)
        self._seconds.append({self._index[s.gemm_id]: s.seconds for s in samples})
        if self._level is None and self.together in self._timing.looks:
            self._look()

    def stop_reason(self, elapsed_s: float, round_s: float) -> str | None:
        """Why to stop now, or None: ``elapsed_s`` since the first round began, ``round_s`` likely for the next."""
        if not self._live:
            return "nothing"
        if self._level is not None:
            return "level" if self.together >= self._level else None
        if self._least_s is None and self.together >= self._timing.least_rounds:
            self._least_s = elapsed_s
        if self.together < min(self._least_rounds, self._timing.max_rounds):
            return None
        if self.resolved:
            return "resolved" if self._timing.goal == "full" else "best_found"
        if self.together >= self._timing.max_rounds:
            return "max_rounds"
        if elapsed_s - (self._least_s or 0.0) + round_s > self._timing.max_seconds:
            return "max_seconds"
        return None

    def comparison(self, family: Family) -> Comparison:
        """The Family's Candidates compared by all rounds so far; the cost of a Candidate is its parts' sum."""
        parts = [[self._index[p.gemm.gemm_id] for p in candidate.parts] for candidate in family.candidates]
        cost = np.full((self.rounds, len(parts)), np.nan)
        for r, seconds in enumerate(self._seconds):
            for c, indices in enumerate(parts):
                if all(i in seconds for i in indices):
                    cost[r, c] = math.log(sum(seconds[i] for i in indices) / family.candidates[c].flops)
        return compare(cost, self._timing.tie_pct, self._timing.confidence, len(self._timing.looks))

    def _look(self) -> None:
        through, slow = self.together >= self._least_rounds, self._timing.goal == "full"
        wanted: set[int] = set()
        for family in self._bundle.families:
            comparison = self.comparison(family)
            staying, found = self._top(comparison) if self._timing.goal == "top" else self._contenders(comparison)
            through, slow = through and found, slow or self._slow_leave(comparison, staying)
            for c in staying:
                wanted.update(self._index[p.gemm.gemm_id] for p in family.candidates[c].parts)
        live = [i for i in self._live if i in wanted]
        if len(live) < len(self._live) and slow and not self._left_at:
            self._left_at = self._planned - self._first - self._joined  # it is in those in flight too
        self._live, self.resolved = live, through

    def _contenders(self, comparison: Comparison) -> tuple[list[int], bool]:
        """Candidates that may still be within ``race_pct`` of the best, and whether the order is resolved.

        The others leave the rounds for good.
        """
        if not comparison.order:
            return [], comparison.resolved
        estimate, half = comparison.against(comparison.order[0], comparisons=len(comparison.order) - 1)
        return [i for i in comparison.order if not estimate[i] - half[i] > self._far], comparison.resolved

    def _top(self, comparison: Comparison) -> tuple[list[int], bool]:
        """Candidates that may still tie with the best, and whether one is known to be within a tie of all."""
        found = race(comparison)
        if found is None:
            return comparison.order, not comparison.order
        return [i for i in comparison.order if not found.out[i]], found.decided

    @property
    def _far(self) -> float:
        return math.log1p(self._timing.race_pct / 100)

    def _slow_leave(self, comparison: Comparison, staying: Sequence[int]) -> bool:
        """Whether one leaves that is so slow that the others run otherwise without it."""
        leaving = np.setdiff1d(comparison.measured, staying)
        return bool((comparison.effect[leaving] - np.nanmin(comparison.effect, initial=np.inf) > self._far).any())
