"""The boundary between the driver's loop and whatever runs its workers: Ray, or a simulation in one process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.queue import Assignment
from tasks.records import DeviceInfo, GemmFacts, Progress


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """A worker's process runs; its device is being opened."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Spent:
    """Seconds of a device's work."""

    prepare_s: float = 0.0
    soak_s: float = 0.0
    measuring_s: float = 0.0

    def __add__(self, other: "Spent") -> "Spent":
        """Return the sum of each."""
        return Spent(
            prepare_s=self.prepare_s + other.prepare_s,
            soak_s=self.soak_s + other.soak_s,
            measuring_s=self.measuring_s + other.measuring_s,
        )

    @property
    def whole_s(self) -> float:
        """All of it."""
        return self.prepare_s + self.soak_s + self.measuring_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One Bundle as measured: its Shard's file, and the Gemms that were not measured.

    canary_s: of a canary, its reading (orchestrator.canary); None where it failed. spent: what it took.
    """

    shard: bytes  # as ``orchestrator.store.shard_file`` encodes it
    failed: tuple[GemmFacts, ...]
    canary_s: float | None = None
    spent: Spent = field(default_factory=Spent)


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """A worker that cannot go on: plain text only, for nothing exotic may cross a process boundary.

    status: one of ``tasks.records.STATUSES``. detail: a traceback for the log. bundle_id: what it was at; "" where its
    process has ended, or had no Bundle.
    """

    status: str
    message: str
    detail: str = ""
    bundle_id: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Returned:
    """An interrupted worker has not begun what is left of its call."""


Report = Placed | DeviceInfo | Progress | Result | Failure | Returned


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """What one worker reports."""

    worker: str
    report: Report


class Engine(Protocol):
    """Starts workers at places (nodes), gives them Bundles and passes on what they report."""

    def places(self) -> Mapping[str, int]:
        """Return how many workers each place can hold, of the places that are there now."""

    def start(self, place: str) -> str:
        """Ask for one worker at ``place`` and return its name. It reports Placed, then DeviceInfo or Failure."""

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Have a worker measure them in their order; there is at least one, and all are of one worker.

        It reports Progress, then a Result of each. It stops at a Failure, or at Returned once it was interrupted. Of a
        worker that dies the last Results may be lost.
        """

    def interrupt(self, worker: str) -> None:
        """Ask a worker to report what it has measured of its Bundle so far as its Result."""

    def stop(self, worker: str) -> None:
        """End a worker's process at once, whatever it does. It reports nothing more."""

    def wait(self, timeout: float) -> list[Event]:
        """Return what was reported, after at most ``timeout`` seconds. A worker that died reports a Failure."""
