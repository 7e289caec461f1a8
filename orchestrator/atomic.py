"""Files that appear whole or not at all: a temporary name in the same directory, fsync, rename, fsync of both."""

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from orchestrator.errors import StoreError

_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")


def write_atomic(path: Path, content: bytes, check: Callable[[Path], None] | None = None) -> None:
    """Write ``content`` to ``path`` so that a reader sees the old file, the new one, or none: never a part of it.

    check: is given the written file before it gets its name; if it raises, the file never gets it.

    Raises:
        StoreError: the directory cannot be written, the disk is full, …; nothing of the new file is left.
    """
    with replacing(path, check) as file:
        file.write(content)


@contextmanager
def replacing(path: Path, check: Callable[[Path], None] | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write what takes the place of ``path`` when all is written, as ``write_atomic`` does it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # after an interrupt too; it is not there where all went well
            temporary.unlink(missing_ok=True)


def sweep_temporaries(root: Path) -> list[Path]:
    """Remove what a killed writer left under ``root``; return the removed paths.

    Raises:
        StoreError: a left-over cannot be removed.
    """
    torn = [path for path in sorted(root.rglob(".*.tmp")) if _TEMPORARY.fullmatch(path.name)]
    for path in torn:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(f"cannot remove the unfinished file {path}: {error.strerror or error}") from error
    return torn


def sync_directory(directory: Path) -> None:
    """Make the rename itself durable: without it a power cut may forget the new name."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
