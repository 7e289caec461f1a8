"""Who measures what next: bundles, attempts and their ends. Pure logic, without Ray and without a clock."""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from tasks.care import Care
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.records import GemmFacts

MAX_UNBEGUN = 16
"""So many attempts at a Bundle may be lost before they began without counting: their workers were dead already.

When a node dies, all its idle workers may be handed the Bundle, one after the other, until the cluster notices."""

MAX_LOST = 8
"""After so many Gemms of one Bundle that took their worker down, the rest of the Bundle is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """One attempt at one Bundle, handed to one worker.

    attempt: 1, 2, … over all drivers that worked on the run: it names the Shard. canary: how many canaries the device
    has done, None where there are none.
    """

    bundle: Bundle
    attempt: int
    worker: str
    device: str
    care: Care = field(default_factory=Care)
    canary: int | None = None
    is_canary: bool = False

    @property
    def bundle_id(self) -> str:
        """The Bundle's id."""
        return self.bundle.bundle_id


@dataclass(kw_only=True, slots=True)
class _Case:
    """What has become of a Bundle so far.

    tries: attempts by this queue; attempt: the last one's number; fresh: it was never put back.
    """

    bundle: Bundle
    attempt: int
    tries: int = 0
    fresh: bool = True
    unbegun: int = 0
    care: Care = field(default_factory=Care)
    lost_on: set[str] = field(default_factory=set)
    never_on: set[str] = field(default_factory=set)


class BundleQueue:
    """Hands every Bundle out until it has ended, heaviest (most FLOPs) first; each ends exactly once.

    A Bundle ends by ``finish``. A lost attempt (``lose``) puts it back until ``attempts`` are used up; a second attempt
    goes to another device as long as one is alive, and runs the Gemms one by one. A Gemm that takes its worker down
    then is given up, and the Bundle goes on without it. ``reopen`` puts back one that ended by a device that turned out
    to be bad. Bundles with one id are one Bundle.
    """

    def __init__(
        self, bundles: Iterable[Bundle], *, attempts: int = 2, earlier: Mapping[str, int] | None = None
    ) -> None:
        """Take ``bundles``; ``earlier``: by their ids, how many attempts there were before this queue."""
        if attempts < 1:
            raise ValueError(f"`attempts >= 1` must hold, but got {attempts}")
        before = earlier or {}
        distinct = {bundle.bundle_id: bundle for bundle in bundles}
        self._attempts = attempts
        self._fresh = deque(
            _Case(bundle=bundle, attempt=before.get(bundle.bundle_id, 0))
            for bundle in sorted(distinct.values(), key=lambda bundle: -bundle.flops)
        )
        self._again: list[_Case] = []
        self._running: dict[str, deque[tuple[Assignment, _Case]]] = {}  # no worker is there with nothing
        self._ended: dict[str, _Case] = {}
        self.total = len(distinct)

    @property
    def waiting(self) -> int:
        """Bundles that no worker has."""
        return len(self._fresh) + len(self._again)

    @property
    def again(self) -> int:
        """Those of them that had an attempt already: for these it matters which devices there are."""
        return len(self._again)

    @property
    def running(self) -> int:
        """Bundles that a worker has."""
        return sum(map(len, self._running.values()))

    @property
    def unfinished(self) -> int:
        """Bundles that have not ended."""
        return self.total - len(self._ended)

    def take(
        self,
        worker: str,
        device: str,
        alive: frozenset[str],
        *,
        limit: Gemm | None = None,
        canary: int | None = None,
    ) -> Assignment | None:
        """Give ``worker`` its next attempt, or None where there is nothing for it now.

        alive: the devices that could take an attempt. One that already lost a Bundle gets it again only when
        every device alive has lost it too. limit, canary: see Care and Assignment.
        """
        if worker in self._running:
            raise ValueError(f"{worker} already has {self._running[worker][0][0].bundle_id}")
        case = self._next(device, alive)
        return None if case is None else self._hand(case, worker, device, limit, canary)

    def behind(self, worker: str, most: int) -> list[Assignment]:
        """Give ``worker`` up to ``most`` further Bundles for after the one that it has just taken.

        There are none behind one that was put back: it may take the worker down.
        """
        first, case = self._running[worker][0]
        count = min(most, len(self._fresh)) if case.fresh else 0
        cases = [self._fresh.popleft() for _ in range(count)]
        return [self._hand(case, worker, first.device, first.care.limit, first.canary) for case in cases]

    def finish(self, worker: str) -> Assignment | None:
        """End what ``worker`` is at; None where it has nothing (its attempt was given up before)."""
        if worker not in self._running:
            return None
        assignment, case = self._pop(worker)
        self._ended[assignment.bundle_id] = case
        return assignment

    def lose(
        self,
        worker: str,
        status: str = "worker_died",
        message: str = "",
        guilty: str | None = None,
        *,
        began: bool = True,
    ) -> Assignment | None:
        """Put back what ``worker`` has, and return None; or end the one that it is at where its attempts are used up.

        guilty: the id of the Gemm that ran alone when the worker was lost; it is given up. began: whether it is known
        that the worker had begun the one that it is at; if not, that Bundle is not to blame. Those behind never are.
        """
        if worker not in self._running:
            return None
        ended = self._blame(worker, status, message, guilty, began)
        self.give_back(worker)
        return ended

    def give_back(self, worker: str) -> None:
        """Put back what ``worker`` has and has not begun: it does not count as an attempt."""
        for _, case in self._running.pop(worker, ()):
            case.tries -= 1
            self._put_back(case)

    def _blame(self, worker: str, status: str, message: str, guilty: str | None, began: bool) -> Assignment | None:
        assignment, case = self._running[worker][0]
        if not began and case.unbegun < MAX_UNBEGUN:
            self._pop(worker)
            case.unbegun, case.tries = case.unbegun + 1, case.tries - 1
            self._put_back(case)
            return None
        if guilty is not None:
            facts = GemmFacts(gemm_id=guilty, status=status, message=message)
            case.care = replace(case.care, lost=(*case.care.lost, facts))
            spent = len(case.care.lost) > MAX_LOST or not case.care.wanted(case.bundle.gemms)
        else:
            spent = case.tries >= self._attempts
        if spent:
            self.finish(worker)
            return replace(assignment, care=case.care)
        self._pop(worker)
        case.care = replace(case.care, one_by_one=case.care.one_by_one or status != "oom")
        case.lost_on.add(assignment.device)
        self._put_back(case)
        return None

    def reopen(self, bundle_ids: Iterable[str], device: str) -> list[Bundle]:
        """Put ended Bundles back, never again for ``device``; return those that had ended."""
        cases = [self._ended.pop(bundle_id) for bundle_id in bundle_ids if bundle_id in self._ended]
        for case in cases:
            case.tries = 0
            case.never_on.add(device)
            self._put_back(case)
        return [case.bundle for case in cases]

    def drop(self, alive: frozenset[str]) -> list[Bundle]:
        """End the reopened Bundles that none of the devices ``alive`` may take; return them."""
        hopeless = [case for case in self._again if alive and alive <= case.never_on]
        for case in hopeless:
            self._again.remove(case)
            self._ended[case.bundle.bundle_id] = case
        return [case.bundle for case in hopeless]

    def assigned(self, worker: str) -> Assignment | None:
        """What ``worker`` is at."""
        found = self._running.get(worker)
        return None if found is None else found[0][0]

    def held(self, worker: str) -> int:
        """How many Bundles ``worker`` has."""
        return len(self._running.get(worker, ()))

    def _hand(self, case: _Case, worker: str, device: str, limit: Gemm | None, canary: int | None) -> Assignment:
        case.attempt += 1
        case.tries += 1
        care = replace(case.care, last=case.tries >= self._attempts, limit=limit)
        assignment = Assignment(
            bundle=case.bundle, attempt=case.attempt, worker=worker, device=device, care=care, canary=canary
        )
        self._running.setdefault(worker, deque()).append((assignment, case))
        return assignment

    def _put_back(self, case: _Case) -> None:
        case.fresh = False
        self._again.append(case)

    def _pop(self, worker: str) -> tuple[Assignment, _Case]:
        held = self._running[worker]
        taken = held.popleft()
        if not held:
            del self._running[worker]
        return taken

    def _next(self, device: str, alive: frozenset[str]) -> _Case | None:
        for index, case in enumerate(self._again):
            if device not in case.never_on and (device not in case.lost_on or alive - case.never_on <= case.lost_on):
                del self._again[index]
                return case
        return self._fresh.popleft() if self._fresh else None
