"""Texts that a user names: read no further than any such text goes, for ``/dev/zero`` has no end."""

from pathlib import Path

from orchestrator.errors import InvalidValueError

MOST_BYTES = 64 * 2**20


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
