"""Ctrl-C and SIGTERM: the first asks the sweep to stop, the second stops it at once."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """How often the user has asked to stop."""

    def __init__(self) -> None:
        self.count = 0

    def requested(self) -> bool:
        """Whether the user has asked to stop."""
        return self.count > 0

    def handle(self, signum: int, frame: FrameType | None) -> None:
        """Count; from the second on, raise KeyboardInterrupt wherever the program is."""
        self.count += 1
        if self.count > 1:
            raise KeyboardInterrupt


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Handle the signals while this is open. Enter it after ``ray.init``, which sets handlers of its own."""
    interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # only the main thread may handle signals
        return
    before = {number: signal.signal(number, interrupts.handle) for number in SIGNALS}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
