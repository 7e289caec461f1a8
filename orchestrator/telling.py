"""What a worker's measuring thread says, for another thread that passes it on to the driver."""

import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from orchestrator.engine import Failure, Result, Returned
from tasks.records import Progress

Told = Progress | Result | Failure | Returned

PROGRESS_EVERY_S = 0.5
GATHER_S = 0.05
"""Results of Bundles that take less are passed on together: passing one on takes as long as a short Bundle."""
TOLD_S = 10.0
SENT_S = 0.02
"""What a report takes, at most, from the process to the driver's host once Ray has it."""


class Telling:
    """Reports on their way from the measuring thread.

    It goes on at once, except after a Progress that names the Gemm which runs alone now, or says that none does any
    more: should the process die next, the driver must know. Any other Progress waits until PROGRESS_EVERY_S after the
    last report, and is dropped where more can be said by then: of a short Bundle there is nothing to tell but its end.
    A Result waits until GATHER_S after the last report.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Told | None] = SimpleQueue()
        # That it prepares, a worker has said before it begins.
        self._limited = rate_limited(self._queue.put, PROGRESS_EVERY_S, state="prepare")
        self._trying: str | None = None
        self._awaited: Progress | None = None
        self._sent = threading.Event()
        self._passed_at = time.monotonic()  # the worker has just said that it begins
        self._ended = False

    def progress(self, progress: Progress) -> None:
        """Hand a Progress over."""
        if progress.trying == self._trying:
            self._limited(progress)
            return
        self._trying, self._awaited = progress.trying, progress
        self._sent.clear()
        self._queue.put(progress)
        self._sent.wait(TOLD_S)

    def put(self, report: Result | Failure | Returned) -> None:
        """Hand any other report over."""
        self._queue.put(report)

    def end(self) -> None:
        """Say that nothing more will come."""
        self._queue.put(None)

    def get(self) -> list[Told]:
        """Wait for what is to be passed on next; nothing at the end."""
        found: list[Told] = []
        while not self._ended:
            patience = self._patience(found) if found else None
            if patience is not None and patience <= 0:
                break
            try:
                report = self._queue.get(timeout=patience)
            except Empty:
                break
            if found and isinstance(found[-1], Progress):
                found.pop()  # more can be said
            if report is None:
                self._ended = True
                break
            found.append(report)
            if report is self._awaited:
                break
        return found

    def passed_on(self, reports: list[Told]) -> None:
        """Note that Ray has the reports."""
        self._passed_at = time.monotonic()
        if reports[-1] is self._awaited:
            time.sleep(SENT_S)
            self._sent.set()

    def _patience(self, found: list[Told]) -> float:
        """How many seconds ``found`` may still wait for more."""
        alone = len(found) == 1 and isinstance(found[0], Progress)
        return self._passed_at + (PROGRESS_EVERY_S if alone else GATHER_S) - time.monotonic()


def rate_limited(
    send: Callable[[Progress], None], every_s: float, clock: Callable[[], float] = time.monotonic, state: str = ""
) -> Callable[[Progress], None]:
    """Pass on a change of state at once and everything else at most every ``every_s`` seconds.

    Whatever wakes another thread of the process costs the measuring thread time. state: what is known already.
    """
    last_state, last_time = state, clock() if state else 0.0

    def on_progress(progress: Progress) -> None:
        nonlocal last_state, last_time
        now = clock()
        if progress.state != last_state or now - last_time >= every_s:
            last_state, last_time = progress.state, now
            send(progress)

    return on_progress
