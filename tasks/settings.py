"""How a device measures: the settings of the timing protocols, with their defaults."""

import math
from dataclasses import dataclass

PROTOCOLS = ("interleaved", "seed", "sequential")
BASELINES = ("seed", "sequential")
"""How others measure, to compare with: one shape after another, without rounds in which drift would cancel."""

L2_REGIMES = ("rotate", "hot", "flush")
OWN_CACHE = {"seed": "hot", "sequential": "flush"}
"""What protocols leave in the cache that do not ask ``l2``: one calls on the same operands, one flushes before."""

POWER_REGIMES = ("sustained", "burst")
GOALS = ("full", "top")
"""What the rounds are for: the whole order, or a best Candidate that is within ``tie_pct`` of every other."""
PROTOCOL_VERSION = {"interleaved": 5, "seed": 1, "sequential": 1}
"""Raised when a protocol's procedure changes: rankings never mix versions."""

COOL_S = 10.0
"""Rest before a Family that was throttled is measured again."""

SOAK_MIN_S = 1.5
"""Least load before the first Family, where ``soak_min_s`` does not say otherwise."""

BURST_IDLE_S = 0.02
"""``timing.power=burst``: rest before each visit."""

LAUNCH_S, AWAKE_S = 0.5e-3, 2e-3
"""Seconds of flushes in which a GPU's next timed call is launched; the second where the host has rested too."""

L2_REUSE = 3
"""Bytes touched between two uses of the same byte, in units of the last-level cache."""

LOOK_GROWTH = 1.4
"""The order is looked at after the least rounds, then each time that the rounds have grown by this factor."""

MIN_ROUNDS = {"full": 10, "top": 4}
"""Rounds before the first look, by the goal, where ``min_rounds`` does not say. One alone gets those of ``full``."""

EARLY_ROUNDS = 2
"""By the goal ``top``, where ``min_rounds`` does not say: rounds after which those that are far behind leave."""

MAX_SECONDS = {"full": 1.5, "top": 1.0}
"""Seconds beyond the least rounds, by the goal, where ``max_seconds`` does not say."""

SEARCH_SECONDS = 2.5
"""The same for the race of very many Candidates that a search from coarse to fine has left (tasks.wide)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Settings of a measurement. Units are in the names; see docs/measurement.md for what they do."""

    protocol: str = "interleaved"
    l2: str = "rotate"
    power: str = "sustained"
    min_rounds: int | None = None  # None: by the goal
    max_rounds: int = 100
    max_seconds: float | None = None  # beyond the least rounds; None: by the goal
    tie_pct: float = 0.5
    race_pct: float = 10.0
    confidence: float = 0.95
    lead_calls: int | None = None  # None: 1 where a visit has several calls, 0 where it is one long call
    visit_us: float = 500.0
    soak_min_s: float = SOAK_MIN_S
    soak_max_s: float = 30.0
    warmup_s: float = 30.0  # of the protocol sequential
    seed: int = 0
    redo_throttled: int = 2
    goal: str = "top"

    @property
    def least_rounds(self) -> int:
        """Rounds before a Family may stop."""
        return self._least(self.goal)

    @property
    def lone_rounds(self) -> int:
        """Rounds before one may stop that has nobody to race against."""
        return self._least("full")

    @property
    def most_seconds(self) -> float:
        """Seconds beyond the least rounds after which a Family stops."""
        return MAX_SECONDS[self.goal] if self.max_seconds is None else self.max_seconds

    @property
    def search_seconds(self) -> float:
        """Seconds beyond the least rounds after which the race at the end of a search stops."""
        return SEARCH_SECONDS if self.max_seconds is None else self.max_seconds

    def _least(self, goal: str) -> int:
        return min(self.max_rounds, MIN_ROUNDS[goal]) if self.min_rounds is None else self.min_rounds

    @property
    def cache(self) -> str:
        """What a timed call finds in the L2 cache, as it is recorded: ``l2``, except under a protocol of its own."""
        return OWN_CACHE.get(self.protocol, self.l2)

    @property
    def regime(self) -> str:
        """Power regime as it is recorded: ``power``, except of others' protocols, which rest before no call."""
        return "sustained" if self.protocol in BASELINES else self.power

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many rounds the order is looked at; every look may stop them, so each has its share of error."""
        if self.protocol in BASELINES:
            return (1,)
        early = self.goal == "top" and self.min_rounds is None and self.least_rounds > EARLY_ROUNDS
        found = [*([EARLY_ROUNDS] if early else []), self.least_rounds]
        while found[-1] < self.max_rounds:
            found.append(min(self.max_rounds, math.ceil(found[-1] * LOOK_GROWTH)))
        return tuple(found)
