"""Sends a run's files to its store while the sweep goes on: one thread, in the order in which they were written."""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import StoreError
from orchestrator.patience import Backoff
from orchestrator.remote import Remote
from orchestrator.spool import note_synced

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """What the store does not have: how many files, and why the last try failed."""

    files: int
    reason: str


class Mirror:
    """Sends files until the store has them; a store that fails is tried again for ever, until ``close``.

    A file goes after all that were written before it, so nothing in the store speaks of a Shard that is not there.
    A file that is written again while it waits goes once, at the end of the queue.
    """

    def __init__(
        self, run: Path, remote: Remote, *, backoff: Backoff | None = None, say: Callable[[str], None] = log.warning
    ) -> None:
        """Start the thread. ``say`` is told when the store begins to fail and when it is back."""
        self._run = run
        self._remote = remote
        self._backoff = backoff or Backoff()
        self._say = say
        self._changed = threading.Condition()
        self._waiting: dict[str, int] = {}  # in the order of writing; the number tells one writing from the next
        self._writes = 0
        self._sent: set[str] = set()
        self._failures = 0
        self._reason = "not tried yet"
        self._settled = time.monotonic()  # when a file was last done with
        self._hurried = self._closed = False
        self._thread = threading.Thread(target=self._work, name="mirror", daemon=True)
        self._thread.start()

    def add(self, path: Path) -> None:
        """Queue a file that was just written; returns at once."""
        name = path.relative_to(self._run).as_posix()
        with self._changed:
            self._writes += 1
            self._waiting.pop(name, None)
            self._waiting[name] = self._writes
            self._changed.notify_all()

    def flush(self, patience_s: float) -> Left | None:
        """Wait until the store has everything: None; or until no file has got through for ``patience_s``."""
        with self._changed:
            self._hurried = True
            self._settled = time.monotonic()
            self._changed.notify_all()
            while self._waiting and self._thread.is_alive():
                rest = self._settled + patience_s - time.monotonic()
                if rest <= 0:
                    break
                self._changed.wait(rest)
            return self.left()

    def left(self) -> Left | None:
        """Say what has not been sent."""
        with self._changed:
            return Left(files=len(self._waiting), reason=self._reason) if self._waiting else None

    def sent(self) -> frozenset[str]:
        """Names of the files that the store got from here."""
        with self._changed:
            return frozenset(self._sent)

    def close(self, patience_s: float = 0.0) -> None:
        """Send nothing more; a request under way gets ``patience_s`` and is then left to itself."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join(patience_s)

    def _work(self) -> None:
        while (task := self._next()) is not None:
            name, write = task
            try:
                sent = self._send(name)
            except StoreError as error:
                self._failed(str(error))
            else:
                self._done(name, write, sent=sent)

    def _next(self) -> tuple[str, int] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            return None if self._closed else next(iter(self._waiting.items()))

    def _send(self, name: str) -> bool:
        """Send one file; False where it is gone, because its run was discarded."""
        try:
            content = (self._run / name).read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise StoreError(f"cannot read {self._run / name}: {error.strerror or error}") from error
        self._remote.write(name, content)
        note_synced(self._run, {name: content})
        return True

    def _done(self, name: str, write: int, *, sent: bool) -> None:
        with self._changed:
            if self._waiting.get(name) == write:
                del self._waiting[name]
            if sent:
                self._sent.add(name)
            back = self._failures > 0
            self._failures = 0
            self._settled = time.monotonic()
            self._changed.notify_all()
        if back:
            self._say(f"{self._remote.address} takes files again")

    def _failed(self, reason: str) -> None:
        with self._changed:
            self._failures += 1
            self._reason = reason
            first = self._failures == 1
        if first:
            self._say(f"{reason}; the sweep goes on, its files wait in {self._run}")
        with self._changed:
            pause_s = self._backoff.pause_s(self._failures)
            # Whoever waits for the end is in a hurry: one try at once.
            self._changed.wait_for(lambda: self._closed or self._hurried, pause_s)
            self._hurried = False
