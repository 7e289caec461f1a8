"""Rounds in fresh random order until the order is resolved: pure logic, no device and no clock of its own."""

import math
import random
from collections.abc import Sequence

import numpy as np

from tasks.family import Bundle, Family
from tasks.records import Sample
from tasks.settings import Timing
from tasks.statistics import Comparison, compare


class Sampler:
    """Decides which Gemms a round visits, in which order, and when to stop.

    ``live`` are indices into ``bundle.gemms`` that can be measured; the others failed before the first round. The
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
        self._left_at = 0  # rounds that the first Candidate to leave was in: the others get the least rounds after them
        self._least_s: float | None = None  # when the least rounds were done
        self.samples: list[Sample] = []
        self.resolved = False

    @property
    def rounds(self) -> int:
        """Rounds recorded so far."""
        return len(self._seconds)

    @property
    def live(self) -> tuple[int, ...]:
        """Indices of the Gemms that the next round visits."""
        return tuple(self._live)

    @property
    def _least_rounds(self) -> int:
        return self._timing.min_rounds + self._left_at

    @property
    def may_plan(self) -> bool:
        """Whether another round may be enqueued, counting those in flight."""
        return self._planned - self._first < self._timing.max_rounds

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
        if self.rounds in self._timing.looks:
            self._look()

    def stop_reason(self, elapsed_s: float, round_s: float) -> str | None:
        """Why to stop now, or None: ``elapsed_s`` since the first round began, ``round_s`` likely for the next."""
        if not self._live:
            return "nothing"
        if self._least_s is None and self.rounds >= self._timing.min_rounds:
            self._least_s = elapsed_s
        if self.rounds < min(self._least_rounds, self._timing.max_rounds):
            return None
        if self.resolved:
            return "resolved"
        if self.rounds >= self._timing.max_rounds:
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
        comparisons = [(family, self.comparison(family)) for family in self._bundle.families]
        self.resolved = self.rounds >= self._least_rounds and all(found.resolved for _, found in comparisons)
        wanted: set[int] = set()
        for family, comparison in comparisons:
            for c in self._contenders(comparison):
                wanted.update(self._index[p.gemm.gemm_id] for p in family.candidates[c].parts)
        staying = [i for i in self._live if i in wanted]
        if len(staying) < len(self._live) and not self._left_at:
            self._left_at = self._planned - self._first  # it is in those in flight too
        self._live = staying

    def _contenders(self, comparison: Comparison) -> list[int]:
        """Candidates that may still be within ``race_pct`` of the best: the others leave the rounds for good."""
        if not comparison.order:
            return []
        estimate, half = comparison.against(comparison.order[0], comparisons=len(comparison.order) - 1)
        limit = math.log1p(self._timing.race_pct / 100)
        return [i for i in comparison.order if not estimate[i] - half[i] > limit]
