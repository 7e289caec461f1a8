"""How many short Bundles a worker gets in one call."""

from dataclasses import dataclass, field

CALL_S = 0.25
"""What a call of several Bundles should take, so that its own cost is little of it."""
MOST = 16
"""More Bundles a call save nothing worth the while; their Shards are all in memory when they come back."""


@dataclass(kw_only=True)
class Pace:
    """Seconds that each worker's last call took for a Bundle; with its cost, by the driver's clock."""

    call_s: float = CALL_S
    most: int = MOST
    _begun: dict[str, tuple[int, float]] = field(default_factory=dict)
    _seconds: dict[str, float] = field(default_factory=dict)

    def begin(self, worker: str, count: int, now: float) -> None:
        """Note a call of ``count`` Bundles."""
        self._begun[worker] = count, now

    def end(self, worker: str, now: float) -> None:
        """Note that all Bundles of the worker's call have ended."""
        if worker in self._begun:
            count, began = self._begun.pop(worker)
            self._seconds[worker] = (now - began) / count

    def forget(self, worker: str) -> None:
        """Forget the worker's pace: something failed, and its next call is of one Bundle."""
        self._begun.pop(worker, None)
        self._seconds.pop(worker, None)

    def room(self, worker: str, share: int) -> int:
        """How many Bundles the next call may have, of its ``share``: one where the last ones were not short."""
        seconds = self._seconds.get(worker, self.call_s)
        fit = self.most if seconds * self.most <= self.call_s else int(self.call_s / seconds)
        return max(1, min(fit, share))
