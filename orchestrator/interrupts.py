"""Ctrl-C, SIGTERM and a closed terminal: the first asks the sweep to stop, the second stops it at once."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPTED = 130
"""The exit code of what was interrupted."""


class Interrupts:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.count = 0

    def requested(self) -> bool:
        """Whether the user has asked to stop."""
        return self.count > 0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Count; the second raises KeyboardInterrupt wherever the program is, the third ends the process as it is."""
        self.count += 1
        if self.count > 2:
            os._exit(INTERRUPTED)
        if self.count > 1:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Handle the signals while this is open. Enter it after ``ray.init``, which sets handlers of its own.

    A signal that is ignored (by ``nohup``, or in a job in the background) stays ignored.
    """
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # only the main thread may handle signals
        return
    heeded = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, interrupts.handle) for number in heeded}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def held_back() -> Iterator[None]:
    """Let a signal wait until this is closed: what OmegaConf does while it unwinds turns an interrupt into its errors.

    A second one does not wait. Meant for moments; where signals end the process they still do.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    waiting: list[int] = []

    def handle(signum: int, frame: FrameType | None) -> None:
        waiting.append(signum)
        if len(waiting) > 1:
            raise KeyboardInterrupt

    heeded = [number for number in SIGNALS if callable(signal.getsignal(number))]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if waiting:
            signal.raise_signal(waiting[0])


@contextmanager
def starting() -> Iterator[None]:
    """While Ray starts, a signal ends the process at once: there is nothing yet that an end could cost.

    An exception, raised wherever the main thread happens to be, may leave a lock of Python's or Ray's behind for which
    others then wait for ever; and Ray's own handler of SIGTERM makes another exit code. So a thread looks for signals.
    A closed terminal's is held back until Ray has started: what Ray starts inherits that, and outlives the terminal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # as a signal's handler must find it
    outside = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    watcher = threading.Thread(target=_end_at_signal, args=(reader,), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(outside)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(writer)
        watcher.join()
        os.close(reader)


def _end_at_signal(reader: int) -> None:
    while number := os.read(reader, 1):  # nothing: the start is over
        if number[0] in SIGNALS:
            os.write(2, b"interrupted\n")
            os._exit(INTERRUPTED)
