"""Where the seconds of a command go, one part after another."""

import time
from collections.abc import Callable, Mapping

from orchestrator.engine import Spent

PARTS = {
    "plan": "plan",
    "ray": "Ray",
    "device": "device",
    "prepare": "prepare",
    "soak": "soak",
    "measure": "measure",
    "other": "other",
    "end": "end",
    "rank": "rank",
}
"""What a command's time is told by, and how it is shown.

plan: until Ray is started. ray: until the driver is connected. device: until the first device is open. prepare, soak,
measure: of the device that worked longest. other: between its Bundles, and waiting for other devices. end: from the
sweep's last Bundle until Ray has ended. rank: ranking and writing.
"""


class Laps:
    """A stopwatch whose laps have names; a lap begins where the last one ended. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._at = clock()
        self.seconds: dict[str, float] = {}

    def end(self, name: str, at: float | None = None) -> None:
        """End the lap ``name``, now or at a moment that has passed since it began."""
        now = self._clock() if at is None else max(at, self._at)
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self._at
        self._at = now

    def measured(self, ready_at: float | None, spent: Spent) -> None:
        """End the laps of a sweep: its first device was open at ``ready_at``, and one device has spent ``spent``."""
        self.end("device", ready_at)
        began = self._at
        self.end("other")
        whole = self._at - began
        parts = {"prepare": spent.prepare_s, "soak": spent.soak_s, "measure": spent.measuring_s}
        self.seconds.update(parts, other=max(0.0, whole - sum(parts.values())))

    def rounded(self) -> dict[str, float]:
        """The seconds to three places, in the order of PARTS."""
        return {name: round(self.seconds[name], 3) for name in PARTS if name in self.seconds}


def told(seconds: Mapping[str, float]) -> str:
    """Return the parts in one line, with their sum before them."""
    parts = ", ".join(f"{PARTS[name]} {value:.1f}" for name, value in seconds.items() if name in PARTS)
    return f"{sum(seconds.values()):.1f} s: {parts}"
