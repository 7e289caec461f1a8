"""Directories that a user may not use, also where the tests run as root, who may use all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NOBODY = 65534


@contextmanager
def closed(directory: Path, mode: int) -> Iterator[None]:
    """Give a directory this mode until the end, and be a user whom that stops."""
    before = directory.stat().st_mode
    directory.chmod(mode)
    root = os.geteuid() == 0
    if root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if root:
            os.seteuid(0)
        directory.chmod(before)
