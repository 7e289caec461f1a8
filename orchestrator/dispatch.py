"""The driver's loop: workers where there are devices, Bundles as workers free up, every end recorded once."""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.crew import Crew
from orchestrator.engine import Engine, Failure, Placed, Report, Result
from orchestrator.progress import Board
from orchestrator.queue import Assignment, BundleQueue
from tasks.records import DeviceInfo, Progress

log = logging.getLogger(__name__)

TICK_S = 0.5
STAFF_EVERY_S = 0.5
"""How often the crew is looked over when nothing has happened to it."""
PLACES_EVERY_S = 1.5
DRAIN_S = 5.0
"""How long an interrupted sweep waits for the Bundles in flight."""


class Recorder(Protocol):
    """Where ends go: each Bundle's exactly once."""

    def measured(self, assignment: Assignment, result: Result) -> None:
        """Keep a result."""

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        """Keep the fact that a Bundle could not be measured."""


@dataclass(kw_only=True)
class Dispatcher:
    """One sweep over any Engine. ``run`` returns when all Bundles have ended, or with the reason why not.

    accepts: whether a device, by what it reports of itself, is one that was asked for.
    stop: becomes true when the user interrupts.
    start_timeout_s: how long the sweep may be without any ready worker.
    """

    engine: Engine
    queue: BundleQueue
    recorder: Recorder
    board: Board
    accepts: Callable[[DeviceInfo], bool]
    stop: Callable[[], bool] = lambda: False
    max_workers: int | None = None
    start_timeout_s: float = 60.0
    clock: Callable[[], float] = time.monotonic
    crew: Crew = field(default_factory=Crew)
    devices: dict[str, DeviceInfo] = field(default_factory=dict)  # every accepted device, by UUID
    _places: Mapping[str, int] = field(default_factory=dict)
    _places_at: float = float("-inf")
    _staff_at: float = float("-inf")

    def run(self) -> str:
        """Run the sweep; return "" when all Bundles have ended or the user stopped it, else what is in the way.

        All workers are stopped when this returns or raises.
        """
        ready_at = self.clock()
        try:
            while self.queue.unfinished and not self.stop():
                now = self.clock()
                if now >= self._staff_at:
                    self._staff(now)
                    self._hand_out()
                ready_at = now if self.crew.ready else ready_at
                if problem := self._hopeless(now - ready_at):
                    return problem
                self._step(TICK_S)
            self._drain()
            return ""
        finally:
            self._dismiss()

    def _step(self, timeout: float) -> None:
        for event in self.engine.wait(timeout):
            self._on(event.worker, event.report)
        self.board.tick()

    def _staff(self, now: float) -> None:
        """Start workers where devices are free; let those go that nobody asked for."""
        self._staff_at = now + STAFF_EVERY_S
        if now - self._places_at >= PLACES_EVERY_S:
            self._places, self._places_at = self.engine.places(), now
        need = self.queue.unfinished if self.max_workers is None else min(self.queue.unfinished, self.max_workers)
        for place in self.crew.starts(self._places, need, now):
            self.crew.add(self.engine.start(place), place, now)
        for name in self.crew.releasable():
            self._end(name)
        self.board.waiting(self.crew.waiting(now))

    def _hand_out(self) -> None:
        for worker in self.crew.ready if self.queue.waiting else ():
            if self.queue.assigned(worker) is None:
                self._give(worker)

    def _give(self, worker: str) -> None:
        if self.stop():
            return
        if assignment := self.queue.take(worker, self.crew.ready[worker].uuid, self.crew.devices):
            self.engine.submit(assignment)
            self.board.started(worker, assignment.bundle)

    def _hopeless(self, seconds_without: float) -> str:
        """Why no worker will come, or "" while there is hope."""
        if self.crew.ready:
            return ""
        if not self.crew.starting and not any(self.crew.room(self._places).values()):
            return self._nothing_usable()
        if seconds_without < self.start_timeout_s:
            return ""
        busy = 0 if self.crew.failures else sum(not member.placed for member in self.crew.starting)
        reason = f"{busy} GPU{'s' * (busy > 1)} stayed busy elsewhere" if busy else "no device could be opened"
        return f"no worker was ready within cluster.start_timeout_s={self.start_timeout_s:g}: {reason}{self._causes()}"

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
                self.board.advanced(worker, report)
            case Result():
                self._measured(worker, report)
            case Placed():
                member.placed = True
            case DeviceInfo():
                self._opened(worker, report)
            case Failure() if member.device is None:
                self._start_failed(worker, report)
            case Failure():
                self._lost(worker, member.device, report)

    def _opened(self, worker: str, device: DeviceInfo) -> None:
        if device.uuid in self.crew.devices:
            message = f"{device.gpu} {device.uuid} on {device.host} already has a worker"
            self._start_failed(worker, Failure(status="worker_died", message=message))
        elif not self.accepts(device):
            self.crew.refuse(worker, device)
            self._staff_at = self.clock()
        else:
            self.crew.accept(worker, device)
            self.devices[device.uuid] = device
            self.board.opened(worker, device)
            self._give(worker)

    def _start_failed(self, worker: str, failure: Failure) -> None:
        log.info("a worker could not start: %s\n%s", failure.message, failure.detail)
        self.engine.stop(worker)
        self.crew.fail(worker, failure.message, self.clock())
        self._staff_at = self.clock()

    def _measured(self, worker: str, result: Result) -> None:
        assignment = self.queue.finish(worker)
        # The device's next work goes out before this result is written: it must not wait for the disk.
        self._give(worker)
        if assignment is not None:
            self.recorder.measured(assignment, result)
            self.board.ended(assignment.bundle, failed=len(result.failed), worker=worker)

    def _lost(self, worker: str, device: DeviceInfo, failure: Failure) -> None:
        """End a worker that died or is spoilt; its Bundle is tried again, or recorded as lost."""
        self._end(worker)
        self._staff_at = self.clock()
        lost = self.queue.assigned(worker)
        ended = self.queue.lose(worker)
        what = f"{failure.status} on {device.host} {device.uuid}: {failure.message}"
        log.info("%s\n%s", what, failure.detail)
        if ended is not None:
            self.recorder.given_up(ended, device, failure)
            self.board.note(f"{ended.bundle_id} given up: {what}")
            self.board.ended(ended.bundle, failed=len(ended.bundle.gemms), worker=worker)
        elif lost is not None:
            self.board.note(f"{lost.bundle_id} will be tried again: {what}")

    def _drain(self) -> None:
        """After an interruption: keep what has been measured of the Bundles in flight."""
        workers = [name for name in self.crew.ready if self.queue.assigned(name) is not None]
        if workers:
            self.board.note("stopping: keeping what is measured so far; Ctrl-C again stops at once")
        for name in workers:
            self.engine.interrupt(name)
        until = self.clock() + DRAIN_S
        while self.queue.running and (left := until - self.clock()) > 0:
            self._step(min(left, TICK_S))

    def _end(self, worker: str) -> None:
        self.engine.stop(worker)
        self.crew.remove(worker)
        self.board.closed(worker)

    def _dismiss(self) -> None:
        for name in list(self.crew.members):
            self._end(name)
