"""Who measures what next: bundles, attempts and their ends. Pure logic, without Ray and without a clock."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from tasks.family import Bundle


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One attempt (1, 2, …) at one Bundle, handed to one worker."""

    bundle: Bundle
    attempt: int
    worker: str
    device: str

    @property
    def bundle_id(self) -> str:
        """The Bundle's id."""
        return self.bundle.bundle_id


class BundleQueue:
    """Hands every Bundle out until it has ended, heaviest (most FLOPs) first; each ends exactly once.

    A Bundle ends by ``finish``. A lost attempt (``lose``) puts it back until ``attempts`` are used up; a second attempt
    goes to another device as long as one is alive. Bundles with one id are one Bundle.
    """

    def __init__(self, bundles: Iterable[Bundle], *, attempts: int = 2) -> None:
        if attempts < 1:
            raise ValueError(f"`attempts >= 1` must hold, but got {attempts}")
        distinct = {bundle.bundle_id: bundle for bundle in bundles}
        self._attempts = attempts
        self._fresh = deque(sorted(distinct.values(), key=lambda bundle: -bundle.flops))
        self._again: list[Assignment] = []
        self._running: dict[str, Assignment] = {}
        self._lost_on: dict[str, set[str]] = {}
        self._ended: set[str] = set()
        self.total = len(distinct)

    @property
    def waiting(self) -> int:
        """Bundles that no worker has."""
        return len(self._fresh) + len(self._again)

    @property
    def running(self) -> int:
        """Bundles that a worker has."""
        return len(self._running)

    @property
    def unfinished(self) -> int:
        """Bundles that have not ended."""
        return self.total - len(self._ended)

    def take(self, worker: str, device: str, alive: frozenset[str]) -> Assignment | None:
        """Give ``worker`` its next attempt, or None where there is nothing for it now.

        alive: the devices that could take an attempt. One that already lost a Bundle gets it again only when
        every device alive has lost it too.
        """
        if worker in self._running:
            raise ValueError(f"{worker} already has {self._running[worker].bundle_id}")
        bundle, attempt = self._next(device, alive)
        if bundle is None:
            return None
        assignment = Assignment(bundle=bundle, attempt=attempt, worker=worker, device=device)
        self._running[worker] = assignment
        return assignment

    def finish(self, worker: str) -> Assignment | None:
        """End what ``worker`` has; None where it has nothing (its attempt was given up before)."""
        assignment = self._running.pop(worker, None)
        if assignment is not None:
            self._ended.add(assignment.bundle_id)
            self._lost_on.pop(assignment.bundle_id, None)
        return assignment

    def lose(self, worker: str) -> Assignment | None:
        """Put back what ``worker`` has, and return None; or end it and return it where its attempts are used up."""
        assignment = self._running.get(worker)
        if assignment is None:
            return None
        if assignment.attempt >= self._attempts:
            return self.finish(worker)
        del self._running[worker]
        self._lost_on.setdefault(assignment.bundle_id, set()).add(assignment.device)
        self._again.append(assignment)
        return None

    def assigned(self, worker: str) -> Assignment | None:
        """What ``worker`` has now."""
        return self._running.get(worker)

    def _next(self, device: str, alive: frozenset[str]) -> tuple[Bundle | None, int]:
        for index, lost in enumerate(self._again):
            lost_on = self._lost_on[lost.bundle_id]
            if device not in lost_on or alive <= lost_on:
                del self._again[index]
                return lost.bundle, lost.attempt + 1
        return (self._fresh.popleft(), 1) if self._fresh else (None, 0)
