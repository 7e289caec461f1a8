"""Who is busy since when: deadlines of Bundles, and the Gemm that each worker runs alone."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tasks.records import Progress

LOOK_EVERY_S = 0.25
AWAY_S = 2.0
"""Who has not looked for longer was stopped, or waited for a disk: that time is not the workers'."""


@dataclass(kw_only=True, slots=True)
class _Shift:
    limit: Callable[[], float]
    since: float
    began: bool
    seconds: float | None = None  # what ``limit`` says, once somebody has asked
    trying: str | None = None

    @property
    def until(self) -> float:
        if self.seconds is None:
            self.seconds = self.limit()
        return self.since + self.seconds


class Watch:
    """Book-keeping of running Bundles. Holds no clock: ``now`` is handed in, seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._shifts: dict[str, _Shift] = {}
        self._looked_at = self._seen_at = float("-inf")

    def begin(self, worker: str, limit: Callable[[], float], now: float, *, began: bool = False) -> None:
        """Note that ``worker`` has the seconds of ``limit`` for a Bundle from now on.

        limit: called only for a Bundle that is still running at the next look, for an estimate takes longer than
        handing out a short one. began: whether it is known to be at work.
        """
        self._shifts[worker] = _Shift(limit=limit, since=now, began=began)

    def heard(self, worker: str, progress: Progress, now: float) -> None:
        """Note a sign of life; where Gemms run one by one, each has the whole time."""
        shift = self._shifts.get(worker)
        if shift is None:
            return
        shift.trying, shift.began = progress.trying, True
        if progress.trying is not None:
            shift.since = now

    def began(self, worker: str) -> bool:
        """Whether there was a sign of life since ``worker`` got its Bundle."""
        return worker in self._shifts and self._shifts[worker].began

    def end(self, worker: str) -> str | None:
        """Forget ``worker``; return the id of the Gemm that it ran alone, or None."""
        shift = self._shifts.pop(worker, None)
        return None if shift is None else shift.trying

    def expired(self, now: float) -> Iterator[tuple[str, float]]:
        """Yield the workers whose time is over, with the seconds that they had. Call it at every turn of the loop."""
        away, self._seen_at = now - self._seen_at, now
        if AWAY_S < away < float("inf"):
            # What they have reported meanwhile, their results perhaps, is still unread.
            for shift in self._shifts.values():
                shift.since += away - AWAY_S  # so that a loop which is always slow still finds who hangs
        if now - self._looked_at < LOOK_EVERY_S:
            return
        self._looked_at = now
        for worker, shift in [(name, shift) for name, shift in self._shifts.items() if now > shift.until]:
            yield worker, shift.until - shift.since
