"""A stream that outlives its reader."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from rich.console import Console

from orchestrator.lasting import Lasting


@contextmanager
def opened(number: int) -> Iterator[TextIO]:
    stream = open(number, "w", encoding="utf-8")  # noqa: SIM115 - what is left in it cannot be written at its end
    yield stream
    with suppress(OSError):
        stream.close()


def test_what_nobody_reads_any_more_is_no_error() -> None:
    reader, writer = os.pipe()
    with opened(writer) as stream:
        lasting = Lasting(stream)
        assert lasting.write("heard\n") == 6
        lasting.flush()
        assert os.read(reader, 100) == b"heard\n"
        os.close(reader)
        for _ in range(2):
            assert lasting.write("unheard\n") == 8
            lasting.flush()


def test_a_terminal_that_was_closed_is_still_taken_for_one() -> None:
    master, terminal = os.openpty()
    with opened(terminal) as stream:
        lasting = Lasting(stream)
        console = Console(file=lasting, width=80)  # type: ignore[arg-type]
        os.close(master)
        console.print("unheard")
        assert (lasting.isatty(), lasting.encoding, lasting.fileno()) == (True, "utf-8", terminal)


def test_what_is_no_terminal_is_none() -> None:
    assert not Lasting(io.StringIO()).isatty()
