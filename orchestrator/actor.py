"""A Worker as Ray runs it: Assignments come and reports go as bytes."""

import pickle
from collections.abc import Iterator

from orchestrator.parcel import packed
from orchestrator.worker import Worker, WorkerSpec


class Actor:
    """Ray's side of one Worker."""

    worker: type[Worker] = Worker

    def __init__(self, spec: WorkerSpec) -> None:
        self._worker = self.worker(spec)

    def open(self) -> Iterator[bytes]:
        """Report as ``Worker.open``."""
        # Not `yield from`: Ray's streaming drives a generator by send(), which an iterator has not.
        for report in self._worker.open():
            yield packed([report])

    def adopt(self, spec: WorkerSpec) -> Iterator[bytes]:
        """Report as ``Worker.adopt``."""
        for report in self._worker.adopt(spec):
            yield packed([report])

    def rest(self) -> None:
        """Rest as ``Worker.rest``."""
        self._worker.rest()

    def measure(self, parcel: bytes) -> Iterator[bytes]:
        """Measure packed Assignments; report as ``Worker.measure``."""
        for reports in self._worker.measure(pickle.loads(parcel)):
            yield packed(reports)

    def interrupt(self) -> None:
        """Interrupt as ``Worker.interrupt``."""
        self._worker.interrupt()
