"""Texts that are read from a path: read no further than any such text goes, for ``/dev/zero`` has no end."""

from pathlib import Path

from orchestrator.errors import InvalidValueError

MOST_BYTES = 64 * 2**20


def read_kept(path: Path) -> str:
    """Return a UTF-8 text that this program wrote: of a file alone, for a pipe in its place would be waited for.

    Raises:
        InvalidValueError: it is something else.
        OSError, ValueError: as ``Path.read_text``.
    """
    if path.exists() and not path.is_file():
        raise InvalidValueError("it is no regular file")
    return path.read_text(encoding="utf-8")


def read_text(path: Path, most: int = MOST_BYTES) -> str:
    """Return a UTF-8 text of at most so many bytes, of a file or a pipe.

    Raises:
        InvalidValueError: it is longer.
        OSError, ValueError: as ``Path.read_text``.
    """
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise InvalidValueError(f"has more than {most / 2**20:g} MiB")
    return content.decode("utf-8")
