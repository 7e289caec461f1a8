"""An Engine in which everything goes wrong now and then: workers die and hang, nodes come and go, devices turn slow."""

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.engine import Engine, Event, Failure, Placed, Report, Result, Returned
from orchestrator.lanes import lane_of
from orchestrator.queue import Assignment
from tasks.records import DeviceInfo, Progress
from tests.fakes import FakeClock

MAX_SUBMITTED = 20_000
MAX_CLOCK_S = 20_000.0


@dataclass(kw_only=True)
class Odds:
    """How likely each fault is, per Bundle or per start; and what happens to whole devices and nodes, and when."""

    dies: float = 0.0
    hangs: float = 0.0
    spoilt: float = 0.0
    start_fails: float = 0.0
    open_hangs: float = 0.0
    oom: float = 0.0
    poison: frozenset[str] = frozenset()  # Gemms that take down every worker which runs them
    slow_from: dict[str, float] = field(default_factory=dict)  # uuid -> when it becomes 30% slower
    joins: dict[str, float] = field(default_factory=dict)  # place -> when it is there (default: from the start)
    leaves: dict[str, float] = field(default_factory=dict)  # place -> when it is gone for good
    notice_s: float = 0.0  # how long the cluster goes on listing it


@dataclass(kw_only=True)
class _Worker:
    place: str
    device: DeviceInfo | None = None
    running: deque[Assignment] = field(default_factory=deque)
    alive: bool = True


class ChaosEngine(Engine):
    """Events at times of a fake clock; everything is drawn from one seed.

    It checks what must never be: two attempts of one Bundle at once in a lane, a second assignment to a busy or
    an ended worker, an endless run.
    """

    def __init__(
        self, places: dict[str, list[DeviceInfo]], odds: Odds, seed: int, clock: FakeClock, placement: str = "split"
    ) -> None:
        self.submitted: list[Assignment] = []
        self.workers: dict[str, _Worker] = {}
        self._placement = placement
        self._devices = places
        self._free = {place: deque(devices) for place, devices in places.items()}
        self._odds = odds
        self._random = random.Random(seed)
        self._clock = clock
        self._names = itertools.count()
        self._ties = itertools.count()
        self._events: list[tuple[float, int, str, Report]] = []
        self._gone: set[str] = set()

    def places(self) -> dict[str, int]:
        """Return the nodes that are there now."""
        self._let_nodes_go()
        return {place: len(devices) for place, devices in self._devices.items() if self._listed(place)}

    def start(self, place: str) -> str:
        """Start a worker; it waits for a device where all are taken."""
        name = f"w{next(self._names)}"
        self.workers[name] = _Worker(place=place)
        if self._present(place):
            self._open_next(place)
        else:
            self._later(0.5 + self._odds.notice_s, name, Failure(status="worker_died", message="the node is gone"))
        return name

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Decide what comes of them."""
        self.submitted += assignments
        assert len(self.submitted) < MAX_SUBMITTED, "too many attempts: this never ends"
        name = assignments[0].worker
        worker = self.workers[name]
        assert not worker.running, f"{name} is busy"
        assert worker.device is not None
        for assignment in assignments:
            assert assignment.worker == name
            self._check_alone(assignment, worker.device)
            assert not assignment.is_canary or len(assignments) == 1
        worker.running.extend(assignments)
        if not worker.alive:
            self._later(0.01, name, Failure(status="worker_died", message="was dead already"))
            return
        self._later(0.001, name, Progress(bundle_id=assignments[0].bundle_id, state="prepare"))
        self._run(assignments, worker.device)

    def interrupt(self, worker: str) -> None:
        """Answer with what there is; a worker that hangs does not."""
        if self.workers[worker].running and self._random.random() < 0.8:
            self._later(0.1, worker, Result(shard=b"", failed=()))
            self._later(0.1, worker, Returned())

    def stop(self, worker: str) -> None:
        """Free the device, for one that waits for it."""
        ended = self.workers.pop(worker, None)
        if ended is not None and ended.device is not None:
            self._free[ended.place].append(ended.device)
            self._open_next(ended.place)

    def wait(self, timeout: float) -> list[Event]:
        """Let time pass until something happens."""
        until = self._clock.now + timeout
        self._clock.now = min(until, max(self._clock.now, self._events[0][0])) if self._events else until
        assert self._clock.now < MAX_CLOCK_S, "this takes too long"
        self._let_nodes_go()
        found: list[Event] = []
        while self._events and self._events[0][0] <= self._clock.now:
            _, _, name, report = heapq.heappop(self._events)
            worker = self.workers.get(name)
            if worker is None or (not worker.alive and not isinstance(report, Failure)):
                continue
            if isinstance(report, Result | Returned):
                if not worker.running:
                    continue  # an interrupted one has answered already
                worker.running.popleft()
            if isinstance(report, Failure | Returned):
                worker.running.clear()
            found.append(Event(worker=name, report=report))
        return found

    def _run(self, items: Sequence[Assignment], device: DeviceInfo) -> None:
        """Report Results as they come or together; those that wait may be lost with the process."""
        at, held, name = 0.0, 0, items[0].worker
        for item in items:
            at += 0.3 if item.is_canary else 0.5 + 2 * self._random.random()
            report = self._outcome(item, device, at)
            held += 1
            if isinstance(report, Result) and item is not items[-1] and self._random.random() < 0.5:
                continue
            if isinstance(report, Result):
                self._later(at, name, *[report] * held)
                held = 0
                continue
            if report is None or report.bundle_id or self._random.random() < 0.5:
                self._later(at, name, *[Result(shard=b"", failed=())] * (held - 1))
            if report is not None:
                self._later(at, name, report)
            return

    def _outcome(self, item: Assignment, device: DeviceInfo, at: float) -> Result | Failure | None:
        """What one comes to: a Failure of a process that has ended names no Bundle; None: it hangs."""
        chance, odds = self._random.random, self._odds
        if item.is_canary:
            seconds = 1.3 if self._slow(device) else 1.0
            reading = None if chance() < odds.dies else seconds * (1 + 0.002 * chance())
            return Result(shard=b"", failed=(), canary_s=reading)
        if poisoned := [gemm for gemm in item.care.wanted(item.bundle.gemms) if gemm.gemm_id in odds.poison]:
            if item.care.one_by_one:
                trying = Progress(bundle_id=item.bundle_id, state="try", trying=poisoned[0].gemm_id)
                self._later(at / 2, item.worker, trying)
            return Failure(status="worker_died", message="poison")
        if chance() < odds.dies:
            return Failure(status="worker_died", message="died")
        if chance() < odds.spoilt:
            return Failure(status="illegal_access", message="CUDA error", bundle_id=item.bundle_id)
        if chance() < odds.oom and not item.care.last:
            return Failure(status="oom", message="too large", bundle_id=item.bundle_id)
        return None if chance() < odds.hangs else Result(shard=b"", failed=())

    def _check_alone(self, item: Assignment, device: DeviceInfo) -> None:
        lane = lane_of(device, self._placement)
        for other in self.workers.values():
            if other.device is None or lane_of(other.device, self._placement) != lane:
                continue
            same = any(running.bundle_id == item.bundle_id for running in other.running)
            assert item.is_canary or not same, f"{item.bundle_id} runs twice at once"

    def _slow(self, device: DeviceInfo) -> bool:
        return self._clock.now >= self._odds.slow_from.get(device.uuid, float("inf"))

    def _present(self, place: str) -> bool:
        joined = self._clock.now >= self._odds.joins.get(place, 0.0)
        return joined and self._clock.now < self._odds.leaves.get(place, float("inf"))

    def _listed(self, place: str) -> bool:
        gone = self._odds.leaves.get(place, float("inf")) + self._odds.notice_s
        return self._clock.now >= self._odds.joins.get(place, 0.0) and self._clock.now < gone

    def _let_nodes_go(self) -> None:
        """Nobody hears of the end of an idle worker."""
        for place, at in self._odds.leaves.items():
            if self._clock.now >= at and place not in self._gone:
                self._gone.add(place)
                for name, worker in self.workers.items():
                    if worker.place == place:
                        worker.alive = False
                        if worker.running or worker.device is None:
                            self._later(self._random.random(), name, Failure(status="worker_died", message="node"))

    def _open_next(self, place: str) -> None:
        waiting = [n for n, worker in self.workers.items() if worker.place == place and worker.device is None]
        for name in waiting:
            if not self._free[place] or not self._present(place):
                return
            device = self.workers[name].device = self._free[place].popleft()
            self._later(0.2, name, Placed())
            if self._random.random() < self._odds.start_fails:
                self._later(0.4, name, Failure(status="worker_died", message="cannot open"))
            elif self._random.random() >= self._odds.open_hangs:
                self._later(0.4 + self._random.random(), name, device)

    def _later(self, seconds: float, name: str, *reports: Report) -> None:
        for report in reports:
            heapq.heappush(self._events, (self._clock.now + seconds, next(self._ties), name, report))


@dataclass
class Book:
    """A Recorder that counts ends by Bundle."""

    ends: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    canaries: int = 0

    def measured(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        """Count."""
        if assignment.is_canary:
            self.canaries += 1
        else:
            self.ends[assignment.bundle_id] += 1

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        """Count."""
        self.ends[assignment.bundle_id] += 1
        self.failed[assignment.bundle_id] += 1

    def storm(self) -> str:
        """Never."""
        return ""
