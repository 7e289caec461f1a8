"""How a device measures: the settings of the timing protocols, with their defaults."""

import math
from dataclasses import dataclass

PROTOCOLS = ("interleaved", "seed", "sequential")
BASELINES = ("seed", "sequential")
"""How others measure, to compare with: one shape after another, without rounds in which drift would cancel."""

L2_REGIMES = ("rotate", "hot", "flush")
POWER_REGIMES = ("sustained", "burst")
GOALS = ("full", "top")
"""What the rounds are for: the whole order, or a best Candidate that is within ``tie_pct`` of every other."""
PROTOCOL_VERSION = {"interleaved": 1, "seed": 1, "sequential": 1}
"""Raised when a protocol's procedure changes: rankings never mix versions."""

COOL_S = 10.0
"""Rest before a Family that was throttled is measured again."""

BURST_IDLE_S = 0.02
"""``timing.power=burst``: rest before each visit, on a GPU."""

L2_REUSE = 3
"""Bytes touched between two uses of the same byte, in units of the last-level cache."""

LOOK_GROWTH = 1.4
"""The order is looked at after the least rounds, then each time that the rounds have grown by this factor."""

TOP_ROUNDS = 5
"""``timing.goal=top``: rounds before the first look, or ``min_rounds`` where these are fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Settings of a measurement. Units are in the names; see docs/measurement.md for what they do."""

    protocol: str = "interleaved"
    l2: str = "rotate"
    power: str = "sustained"
    min_rounds: int = 10
    max_rounds: int = 100
    max_seconds: float = 1.5  # beyond the least rounds
    tie_pct: float = 0.5
    race_pct: float = 10.0
    confidence: float = 0.95
    lead_calls: int | None = None  # None: 1 where a visit has several calls, 0 where it is one long call
    visit_us: float = 500.0
    soak_min_s: float = 3.0
    soak_max_s: float = 30.0
    warmup_s: float = 30.0  # of the protocol sequential
    seed: int = 0
    redo_throttled: int = 2
    goal: str = "full"

    @property
    def least_rounds(self) -> int:
        """Rounds before a Family may stop."""
        return self.min_rounds if self.goal == "full" else min(TOP_ROUNDS, self.min_rounds)

    @property
    def cache(self) -> str:
        """What a timed call finds in the L2 cache, as it is recorded: ``l2``, except where the protocol flushes it."""
        return "flush" if self.protocol == "sequential" else self.l2

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds the order is looked at; every look may stop them, so each has its share of error."""
        if self.protocol in BASELINES:
            return (1,)
        found = [self.least_rounds]
        while found[-1] < self.max_rounds:
            found.append(min(self.max_rounds, math.ceil(found[-1] * LOOK_GROWTH)))
        return tuple(found)
