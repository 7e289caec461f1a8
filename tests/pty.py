"""A command in a terminal of a given width: a real pseudo-terminal."""

import fcntl
import os
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

ROOT = Path(__file__).parents[1]


def in_terminal(command: list[str], *, columns: int, **environment: str) -> tuple[int, str]:
    """Run a command in a terminal; return its exit code and what it drew. Only PATH is left of the environment."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    known = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "LANG": "C.UTF-8"}
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env={**known, **environment}, cwd=ROOT, close_fds=True
    )
    os.close(theirs)
    drawn = bytearray()
    with suppress(OSError):  # how reading ends when the last writer has closed its side
        while piece := os.read(ours, 65536):
            drawn += piece
    os.close(ours)
    return process.wait(), drawn.decode()


def plain(drawn: str) -> list[str]:
    """The lines without colours and moves of the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", drawn).replace("\r", "\n").splitlines()


def coloured(drawn: str) -> bool:
    """Whether a colour is set: weights of the font are none."""
    return bool(re.search(r"\x1b\[(?:[0-9]+;)*[349][0-9]", drawn))
