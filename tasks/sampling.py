"""Rounds in fresh random order until the order is resolved: pure logic, no device and no clock of its own."""

import math
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tasks import drift
from tasks.comparison import Comparison
from tasks.drift import Ints
from tasks.family import Bundle, Family
from tasks.location import MIN_ROUNDS, Floats
from tasks.racing import race
from tasks.records import Sample
from tasks.settings import EARLY_ROUNDS, Timing
from tasks.statistics import FAR, compare


class Sampler:
    """Decides which Gemms a round visits, in which order, and when to stop.

    ``live`` are indices into ``bundle.gemms`` that can be measured; the others failed before the first round, or
    ``join`` later, once it is known that they are worth it. The
    caller asks for ``next_round()``, measures it, hands the samples to ``record`` and reads ``stop_reason``.
    """

    def __init__(self, bundle: Bundle, timing: Timing, live: Sequence[int], first_round: int = 0) -> None:
        self._bundle = bundle
        self._timing = timing
        self._alone = all(len(family.candidates) == 1 for family in bundle.families)  # nobody to race against
        self._looks = replace(timing, goal="full").looks if self._alone else timing.looks
        self._index = {gemm.gemm_id: i for i, gemm in enumerate(bundle.gemms)}
        self._live = list(live)
        self._random = random.Random(f"{timing.seed}:{bundle.bundle_id}:{first_round}")
        self._visits: list[Sample] = []  # in the order of time
        self._turns: list[int] = []  # the round of each, from 0 on
        self._slowdown: Floats | None = None  # of each visit, where it is known by now
        self._rounds = 0
        self._first = self._planned = first_round
        self._joined = 0  # rounds recorded when the last ones joined
        self._level: int | None = None  # so many rounds in which nobody leaves, before others join
        self._left_at = 0  # rounds that the first Candidate to leave was in: the others get the least rounds after them
        self._least_s: float | None = None  # when the least rounds were done
        self._most_s = timing.most_seconds  # beyond them
        self.resolved = False  # the goal is reached: the order of all, or who is best

    @property
    def rounds(self) -> int:
        """Rounds recorded so far."""
        return self._rounds

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
        return (self._timing.lone_rounds if self._alone else self._timing.least_rounds) + self._left_at

    @property
    def may_plan(self) -> bool:
        """Whether another round may be enqueued, counting those in flight."""
        most = self._timing.max_rounds if self._level is None else self._level
        return self._planned - self._first - self._joined < most

    def join(self, live: Sequence[int], level: int | None = None, *, searched: bool = False) -> None:
        """From the next round on visit these, until they are compared; or for so many rounds that are only a level.

        No round may be in flight. searched: whether they are what levels have left, or will leave.
        """
        self._most_s = self._timing.search_seconds if searched else self._timing.most_seconds
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
        self._visits.extend(samples)
        self._turns.extend([self._rounds] * len(samples))
        self._rounds += 1
        self._slowdown = None
        if self._level is None and self.together in self._looks:
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
        if elapsed_s - (self._least_s or 0.0) + round_s > self._most_s:
            return "max_seconds"
        return None

    def comparison(self, family: Family, since: int = 0) -> Comparison:
        """The Family's Candidates compared by the rounds so far, from ``since`` on; a cost is its parts' sum."""
        seconds = np.full((self._rounds, len(self._bundle.gemms)), np.nan)
        gemms, taken = self._visited()
        seconds[self._turns, gemms] = taken / self._slowdowns()
        cost = self._log_cost(family, seconds[since:])
        racing = np.arange(since, self._rounds) >= (self._rounds if self._level else self._joined)
        timing = self._timing
        return compare(cost, timing.tie_pct, timing.confidence, len(timing.looks), racing=racing)

    @property
    def samples(self) -> list[Sample]:
        """All samples so far, each with how slow the device was just then."""
        return [
            replace(sample, slowdown=slowdown)
            for sample, slowdown in zip(self._visits, self._slowdowns().tolist(), strict=True)
        ]

    def _log_cost(self, family: Family, seconds: Floats) -> Floats:
        """Log of seconds per FLOP of each Candidate, by ``seconds[..., gemms]``; NaN where a part is missing."""
        each = [
            sum(seconds[..., self._index[part.gemm.gemm_id]] for part in candidate.parts) / candidate.flops
            for candidate in family.candidates
        ]
        return np.asarray(np.log(np.stack(each, axis=-1)))

    def _visited(self) -> tuple[Ints, Floats]:
        """Gemm and seconds of each visit."""
        gemms = np.array([self._index[sample.gemm_id] for sample in self._visits], dtype=np.int64)
        return gemms, np.array([sample.seconds for sample in self._visits])

    def _slowdowns(self) -> Floats:
        """How slow the device was at each visit, as far as the visits tell by now."""
        if self._slowdown is None:
            self._slowdown = self._found_slowdowns() if self._visits else np.ones(0)
        return self._slowdown

    def _found_slowdowns(self) -> Floats:
        gemms, seconds = self._visited()
        turns, log_seconds = np.array(self._turns), np.log(seconds)
        stretch = drift.stretches(gemms, turns)
        found = [
            self._slowdowns_of(gemms[here], turns[here], log_seconds[here])
            for here in (stretch == each for each in range(stretch[-1] + 1))
        ]
        return np.concatenate(found)

    def _slowdowns_of(self, gemms: Ints, turns: Ints, log_seconds: Floats) -> Floats:
        """Of the visits of one stretch."""
        measured, column = np.unique(gemms, return_inverse=True)
        _, turns = np.unique(turns, return_inverse=True)
        own = drift.typical(column, turns, log_seconds)
        seconds = np.full(len(self._bundle.gemms), np.nan)
        seconds[measured] = np.exp(own)
        return drift.slowdown(column, turns, log_seconds, own, self._kinds(seconds)[measured])

    def _kinds(self, seconds: Floats) -> Ints:
        """Which Gemms respond to the clocks alike: those of one part, of Candidates that are not FAR behind.

        Those that are far behind are other kernels, and draw less power.
        """
        kinds = np.full(len(self._bundle.gemms), drift.OTHER)
        names: dict[str, int] = {}
        for family in self._bundle.families:
            cost = self._log_cost(family, seconds)
            near = cost <= np.nanmin(cost, initial=np.inf) + FAR
            for candidate in np.flatnonzero(near):
                for part in family.candidates[candidate].parts:
                    kinds[self._index[part.gemm.gemm_id]] = names.setdefault(part.name, len(names))
        return kinds

    def _look(self, *, alone: bool = True) -> None:
        """alone: whether those that are far behind leave alone, before the others are judged."""
        through, slow = self.together >= self._least_rounds, self._timing.goal == "full"
        wanted: set[int] = set()
        for family in self._bundle.families:
            if self._timing.goal == "top":
                staying, found, far = self._top(family, alone=alone)
                slow |= far
            else:
                staying, found = self._contenders(self.comparison(family))
            through &= found
            for c in staying:
                wanted.update(self._index[p.gemm.gemm_id] for p in family.candidates[c].parts)
        live = [i for i in self._live if i in wanted]
        if alone and slow and self._timing.goal == "top" and len(live) == len(self._live):
            self._look(alone=False)  # another Family wants them all: they stay, and the rounds are what they will be
            return
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

    def _top(self, family: Family, *, alone: bool = True) -> tuple[list[int], bool, bool]:
        """Candidates that may still tie with the best; whether one is known to tie with all; whether slow ones leave.

        Where some are far behind, the chip runs otherwise without them: they leave alone, and the others are judged by
        the rounds from then on, once there are enough of these.
        """
        if self._left_at and self.together < self._left_at + self._timing.least_rounds:
            live = set(self._live)
            parts = [{self._index[part.gemm.gemm_id] for part in candidate.parts} for candidate in family.candidates]
            return [c for c, indices in enumerate(parts) if indices <= live], False, False
        comparison = self.comparison(family, self._joined + self._left_at if self._left_at else 0)
        early = self.together < self._timing.least_rounds
        found = race(comparison, EARLY_ROUNDS if early else MIN_ROUNDS)
        if found is None:
            return comparison.order, not comparison.order, False
        behind = comparison.effect - np.nanmin(comparison.effect)
        far = found.out & comparison.stayed & (behind > FAR)  # not those that an earlier level has left
        if far.any() and alone and not self._left_at:
            return [i for i in comparison.order if not far[i]], False, True
        if early:
            return comparison.order, False, False
        return [i for i in comparison.order if not found.out[i]], found.decided, False

    @property
    def _far(self) -> float:
        return math.log1p(self._timing.race_pct / 100)
