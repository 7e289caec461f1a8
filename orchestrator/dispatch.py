"""The driver's loop: workers where there are devices, Bundles as workers free up, every end recorded once."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.canaries import Canaries
from orchestrator.crew import Crew
from orchestrator.engine import Engine, Failure, Placed, Report, Result, Returned
from orchestrator.lanes import Lanes
from orchestrator.pace import Pace
from orchestrator.progress import Board
from orchestrator.queue import Assignment, BundleQueue
from orchestrator.watch import Watch
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, Progress

log = logging.getLogger(__name__)

TICK_S = 0.5
STAFF_EVERY_S = 0.5
"""How often the crew is looked over when nothing has happened to it."""
PLACES_EVERY_S = 1.5
SHARE = 2
"""A call takes at most one of so many parts of a worker's share of what is left."""
DRAIN_S = 5.0
"""How long an interrupted sweep waits for the Bundles in flight."""


class Recorder(Protocol):
    """Where ends go: each Bundle's exactly once."""

    def measured(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        """Keep a result, also a canary's. The device waits for its next work as long as this takes."""

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        """Keep the fact that a Bundle could not be measured."""

    def storm(self) -> str:
        """Why so much has failed that the sweep should stop, or ""."""


def _no_deadline(bundle: Bundle, device: DeviceInfo) -> float:
    return float("inf")


@dataclass(kw_only=True)
class Dispatcher:
    """One sweep over any Engine. ``run`` returns when all Bundles have ended, or with the reason why not.

    accepts: whether a device, by what it reports of itself, is one that was asked for.
    stop: becomes true when the user interrupts.
    start_timeout_s: how long the sweep may be without a worker for what is left, and a device may take to open.
    deadline_s: after how many seconds a Bundle on a device counts as hanging.
    every_device: whether each device that comes may bring work of its own (a new model, or its own copy of all).
    leave: lets a worker that has nothing to do live on for the next sweep, if it can; None: none does.
    """

    engine: Engine
    lanes: Lanes
    recorder: Recorder
    board: Board
    canaries: Canaries
    accepts: Callable[[DeviceInfo], bool]
    stop: Callable[[], bool] = lambda: False
    max_workers: int | None = None
    every_device: bool = False
    start_timeout_s: float = 60.0
    deadline_s: Callable[[Bundle, DeviceInfo], float] = _no_deadline
    leave: Callable[[str], bool] | None = None
    pace: Pace = field(default_factory=Pace)
    clock: Callable[[], float] = time.monotonic
    crew: Crew = field(default_factory=Crew)
    devices: dict[str, DeviceInfo] = field(default_factory=dict)  # every accepted device, by UUID
    ready_at: float | None = None  # when the first of them was open, by the clock
    left: list[DeviceInfo] = field(default_factory=list)  # devices of workers that live on
    _watch: Watch = field(default_factory=Watch)
    _limits: dict[str, Gemm] = field(default_factory=dict)  # the smallest Gemm that ran out of memory, by GPU model
    _alive: dict[int, frozenset[str]] = field(default_factory=dict)  # by lane, until the crew changes
    _places: Mapping[str, int] = field(default_factory=dict)
    _places_at: float = float("-inf")
    _staff_at: float = float("-inf")
    _draining: bool = False

    def run(self) -> str:
        """Run the sweep; return "" when all Bundles have ended or the user stopped it, else what is in the way.

        All workers are stopped when this returns or raises.
        """
        ready_at = self.clock()
        try:
            while self._under_way() and not self.stop():
                now = self.clock()
                if now >= self._staff_at:
                    self._staff(now)
                    self._hand_out()
                ready_at = now if self._able() else ready_at
                if problem := self._hopeless(now - ready_at) or self.recorder.storm():
                    self._drain()
                    return problem
                self._step(TICK_S)
            self._drain()
            self._leave()
            return ""
        finally:
            self._dismiss()

    def _under_way(self) -> bool:
        if self.lanes.unfinished or self.canaries.running:
            return True
        return self.every_device and self.crew.expected(self.clock()) > 0

    def _step(self, timeout: float) -> None:
        for event in self.engine.wait(timeout):
            self._on(event.worker, event.report)
        for worker, seconds in self._watch.expired(self.clock()):
            device = self.crew.ready[worker]
            self._lost(worker, device, Failure(status="timeout", message=f"not done after {seconds:.0f} s"))
        self.board.tick()

    def _staff(self, now: float) -> None:
        """Start workers where devices are free; let those go that nobody asked for."""
        self._staff_at = now + STAFF_EVERY_S
        if now - self._places_at >= PLACES_EVERY_S:
            self._places, self._places_at = self.engine.places(), now
        retired = sum(self.canaries.retired(device) for device in self.crew.ready.values())
        need = sum(self._places.values()) if self.every_device else self.lanes.unfinished + retired
        need = need if self.max_workers is None else min(need, self.max_workers)
        self._let_go(now)
        for place in self.crew.starts(self._places, need, now):
            self.crew.add(self.engine.start(place), place, now)
        for name in self.crew.releasable():
            self._end(name)
        self.board.waiting(self.crew.waiting(now))

    def _let_go(self, now: float) -> None:
        """End workers that will report nothing more: of nodes that have left, and those whose device does not open."""
        for name in [name for name in self.crew.ready if self.crew.members[name].place not in self._places]:
            gone = Failure(status="worker_died", message="its node has left the cluster")
            self._lost(name, self.crew.ready[name], gone)
        for name in self.crew.overdue(now, self.start_timeout_s):
            message = f"its device did not open within cluster.start_timeout_s={self.start_timeout_s:g}"
            self._start_failed(name, Failure(status="timeout", message=message))

    def _hand_out(self) -> None:
        for worker in self.crew.ready if self.lanes.waiting else ():
            if self._assigned(worker) is None:
                self._give(worker)
        if self.lanes.waiting and not self.crew.expected(self.clock()):
            for queue in self.lanes:
                for bundle in queue.drop(self._alive_in(queue)):
                    self.board.note(f"{bundle.bundle_id}: no other device is there to measure it again")

    def _give(self, worker: str) -> None:
        if self._draining or self.stop():
            return
        device = self.crew.ready[worker]
        assignments = self._next(worker, device)
        if assignments:
            self.engine.submit(assignments)
            self.pace.begin(worker, len(assignments), self.clock())
            self._begin(worker, device, assignments[0].bundle)

    def _begin(self, worker: str, device: DeviceInfo, bundle: Bundle, *, known: bool = False) -> None:
        self._watch.begin(worker, lambda: self.deadline_s(bundle, device), self.clock(), began=known)
        self.board.started(worker, bundle)

    def _next(self, worker: str, device: DeviceInfo) -> list[Assignment]:
        """A canary alone, or a Bundle; with others behind it where the device's Bundles are short."""
        queue = self.lanes.of(device)
        if self._several and self.canaries.due(device, idle=False):
            return [self.canaries.take(worker, device)]
        if not self.canaries.retired(device):
            limit, canary = self._limits.get(device.gpu), self.canaries.count(device.uuid)
            alive = self._alive_in(queue) if queue.again else frozenset[str]()
            if taken := queue.take(worker, device.uuid, alive, limit=limit, canary=canary):
                return [taken, *queue.behind(worker, self._room(worker, device) - 1)]
        if self._several and self.canaries.due(device, idle=True):
            return [self.canaries.take(worker, device)]
        return []

    def _room(self, worker: str, device: DeviceInfo) -> int:
        """How many Bundles the worker's next call may have: no canary waits for one, and all have work to the end."""
        left = self.lanes.of(device).waiting + 1
        room = self.pace.room(worker, -(-left // (SHARE * len(self.crew.ready))))
        before_canary = self.canaries.room(device) if self._several else None
        return room if before_canary is None else min(room, before_canary)

    @property
    def _several(self) -> bool:
        """Whether there are devices to compare: one alone tells nothing by its canary."""
        return sum(self._places.values()) > 1 and self.max_workers != 1

    def _alive_in(self, queue: BundleQueue) -> frozenset[str]:
        """The devices that take from ``queue`` and are not known to be bad."""
        if id(queue) not in self._alive:
            members = (d for d in self.crew.ready.values() if self.lanes.of(d) is queue)
            self._alive[id(queue)] = frozenset(d.uuid for d in members if not self.canaries.retired(d))
        return self._alive[id(queue)]

    def _assigned(self, worker: str) -> Assignment | None:
        return self.canaries.assigned(worker) or self.lanes.of(self.crew.ready[worker]).assigned(worker)

    def _able(self) -> bool:
        """Whether a worker is there that may measure what is left."""
        left = (device for device in self.crew.ready.values() if self.lanes.of(device).unfinished)
        return self.canaries.running > 0 or any(not self.canaries.retired(device) for device in left)

    def _hopeless(self, seconds_without: float) -> str:
        """Why no worker will come, or "" while there is hope."""
        if self._able():
            return ""
        if not self.crew.ready and not self.crew.starting and not any(self.crew.room(self._places).values()):
            return self._nothing_usable()
        if seconds_without < self.start_timeout_s:
            return ""
        if self.crew.ready:
            return self._stranded()
        busy = 0 if self.crew.failures else sum(not member.placed for member in self.crew.starting)
        reason = f"{busy} GPU{'s' * (busy > 1)} stayed busy elsewhere" if busy else "no device could be opened"
        return f"no worker was ready within cluster.start_timeout_s={self.start_timeout_s:g}: {reason}{self._causes()}"

    def _stranded(self) -> str:
        """Why nobody takes what is left, though there are workers."""
        bad = [device for device in self.crew.ready.values() if self.canaries.retired(device)]
        lines = [f"\n  {device.gpu} {device.uuid}: {self.canaries.reason(device)}" for device in bad]
        found = [f"only devices are left that their canaries show to be bad{''.join(lines)}"] if bad else []
        manned = {id(self.lanes.of(device)) for device in self.crew.ready.values()}
        unmanned = {name: q.unfinished for name, q in self.lanes.items() if q.unfinished and id(q) not in manned}
        found += [f"no device is left for {name}, which lacks {count} bundles" for name, count in unmanned.items()]
        return "\n".join(found) + (self._causes() if unmanned else "")

    def _nothing_usable(self) -> str:
        refused = [name for devices in self.crew.refused.values() for name in devices.values()]
        if refused and not self.crew.failures:
            found = ", ".join(f"{refused.count(name)} x {name}" for name in dict.fromkeys(refused))
            return f"no device is one that was asked for; found {found}"
        return f"no device is left to measure on{self._causes()}"

    def _causes(self) -> str:
        return "".join(f"\n  {message}" for message in dict.fromkeys(self.crew.failures[-3:]))

    def _on(self, worker: str, report: Report) -> None:
        member = self.crew.members.get(worker)
        if member is None:
            return  # it was stopped while its report was on the way
        match report:
            case Progress():
                self._watch.heard(worker, report, self.clock())
                self.board.advanced(worker, report)
            case Result() if member.device is not None:
                self._measured(worker, member.device, report)
            case Placed():
                member.placed, member.since = True, self.clock()
            case DeviceInfo():
                self._opened(worker, report)
            case Returned() if member.device is not None:
                self._returned(worker, member.device)
            case Failure() if member.device is not None:
                self._lost(worker, member.device, report)
            case Failure():
                self._start_failed(worker, report)

    def _opened(self, worker: str, device: DeviceInfo) -> None:
        if device.uuid in self.crew.devices:
            message = f"{device.gpu} {device.uuid} on {device.host} already has a worker"
            if message not in self.crew.failures:
                self.board.note(f"{message}: is one GPU counted twice?")
            self._start_failed(worker, Failure(status="worker_died", message=message))
        elif not self.accepts(device):
            self.crew.refuse(worker, device)
            self._staff_at = self.clock()
        else:
            self.crew.accept(worker, device)
            self._alive.clear()
            self.devices[device.uuid] = device
            self.ready_at = self.clock() if self.ready_at is None else self.ready_at
            self.board.opened(worker, device)
            self._give(worker)

    def _start_failed(self, worker: str, failure: Failure) -> None:
        log.info("a worker could not start: %s\n%s", failure.message, failure.detail)
        self.engine.stop(worker)
        self.crew.fail(worker, failure.message, self.clock())
        self._staff_at = self.clock()

    def _measured(self, worker: str, device: DeviceInfo, result: Result) -> None:
        self._watch.end(worker)
        canary = self.canaries.finish(worker, device, result.canary_s)
        assignment = canary or self.lanes.of(device).finish(worker)
        if assignment is not None and canary is None:
            self.canaries.ended(assignment, device)
            self._learn(assignment, device, result)
        elif canary is not None:
            self._judge(device)
        if assignment is not None:
            self.recorder.measured(assignment, device, result)
        self._go_on(worker, device, failed=bool(result.failed))
        if assignment is not None:
            self.board.ended(assignment.bundle, failed=len(result.failed), worker=worker, counts=canary is None)

    def _go_on(self, worker: str, device: DeviceInfo, *, failed: bool) -> None:
        """After a Result: the worker is at the next Bundle of its call, or gets a new call."""
        if failed:
            self.pace.forget(worker)
        if following := self.lanes.of(device).assigned(worker):
            self._begin(worker, device, following.bundle, known=True)
            return
        self.pace.end(worker, self.clock())
        self._give(worker)

    def _returned(self, worker: str, device: DeviceInfo) -> None:
        self._watch.end(worker)
        self.lanes.of(device).give_back(worker)
        self._give(worker)

    def _learn(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        """Remember the smallest Gemm that the device's model has no memory for."""
        gone = {facts.gemm_id for facts in result.failed if facts.status == "oom"}
        if not gone:
            return
        known = [self._limits[device.gpu]] if device.gpu in self._limits else []
        found = [*known, *(gemm for gemm in assignment.bundle.gemms if gemm.gemm_id in gone)]
        if found:
            self._limits[device.gpu] = min(found, key=lambda gemm: gemm.bytes)

    def _judge(self, device: DeviceInfo) -> None:
        """After a canary: put back what devices that turned out to be bad have measured, for others to measure."""
        if not self.canaries.any_bad(device.gpu):
            return
        self._alive.clear()
        for bad, bundle_ids in self.canaries.suspects(device.gpu):
            queue = self.lanes.of(bad)
            again = queue.reopen(bundle_ids, bad.uuid)
            where = f"{bad.gpu} {bad.uuid} on {bad.host}"
            self.board.note(f"suspect: {where}: {self.canaries.reason(bad)}; {len(again)} bundles are measured again")
            self.board.reopened(again)
            self._staff_at = self.clock()

    def _lost(self, worker: str, device: DeviceInfo, failure: Failure) -> None:
        """End a worker that died, hangs or is spoilt; its Bundle is tried again, or recorded as lost."""
        queue = self.lanes.of(device)
        # Who dies with several Bundles has not said at which: the last Results may be lost.
        seen = self._watch.began(worker) and queue.held(worker) < 2
        began = failure.status == "timeout" or bool(failure.bundle_id) or seen
        guilty = self._watch.end(worker)
        self.canaries.lose(worker, device)
        self._end(worker)
        self._staff_at, self._places_at = self.clock(), float("-inf")
        lost = queue.assigned(worker)
        ended = queue.lose(worker, failure.status, failure.message, guilty, began=began)
        what = f"{failure.status} on {device.host} {device.uuid}: {failure.message}"
        log.info("%s\n%s", what, failure.detail)
        if ended is not None:
            self.recorder.given_up(ended, device, failure)
            self.board.note(f"{ended.bundle_id} given up: {what}")
            self.board.ended(ended.bundle, failed=len(ended.bundle.gemms), worker=worker)
        elif lost is not None:
            then = f"goes on without {guilty}" if guilty else "will be tried again"
            self.board.note(f"{lost.bundle_id} {then}: {what}")

    def _drain(self) -> None:
        """At an early end: keep what has been measured of the Bundles in flight."""
        self._draining = True
        workers = [name for name in self.crew.ready if self._assigned(name) is not None]
        if workers and self.stop():
            self.board.note("stopping: keeping what is measured so far; Ctrl-C again stops at once")
        for name in workers:
            self.engine.interrupt(name)
        until = self.clock() + DRAIN_S
        while (self.lanes.running or self.canaries.running) and (left := until - self.clock()) > 0:
            self._step(min(left, TICK_S))

    def _end(self, worker: str) -> None:
        self.engine.stop(worker)
        self.crew.remove(worker)
        self._alive.clear()
        self._watch.end(worker)
        self.board.closed(worker)

    def _leave(self) -> None:
        """After a sweep that nobody stopped: have workers that are free and sound live on."""
        if self.leave is None or self.stop():
            return
        sound = {name: each for name, each in self.crew.ready.items() if not self.canaries.retired(each)}
        for name, device in sound.items():
            if self._assigned(name) is None and self.leave(name):
                self.crew.remove(name)
                self.left.append(device)

    def _dismiss(self) -> None:
        for name in list(self.crew.members):
            self._end(name)
