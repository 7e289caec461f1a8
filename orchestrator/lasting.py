"""Streams whose reader may leave while a sweep runs."""

import io
from contextlib import suppress
from typing import TextIO


class Lasting(io.TextIOBase):
    """A stream whose reader may leave, or a terminal that may be closed.

    Then nothing is told any more, and the work goes on.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_terminal = stream.isatty()  # one that is closed would say no, and be written to in another way

    def write(self, text: str) -> int:
        """Write, if that is still possible."""
        with suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flush, if that is still possible."""
        with suppress(OSError):
            self._stream.flush()

    def fileno(self) -> int:
        """The stream's, of which rich asks the size."""
        return self._stream.fileno()

    def isatty(self) -> bool:
        """Whether it was a terminal."""
        return self._is_terminal

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The stream's, which decides what is drawn."""
        return self._stream.encoding
