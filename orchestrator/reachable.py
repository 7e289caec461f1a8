"""Whether a path is there, where a user may have written anything: what cannot be looked at counts as not there."""

from pathlib import Path


def exists(path: Path) -> bool:
    """Return whether something has this path."""
    try:
        return path.exists()
    except (OSError, ValueError):  # no permission, too long, or a character that no name can have
        return False


def is_file(path: Path) -> bool:
    """Return whether it is a regular file."""
    return exists(path) and path.is_file()


def is_dir(path: Path) -> bool:
    """Return whether it is a directory."""
    return exists(path) and path.is_dir()
