"""Files of an export that appear together or not at all."""

import os
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from orchestrator.atomic import write_atomic
from orchestrator.errors import ExportError, StoreError

_LISTED = 5


def write(out: Path, files: Mapping[str, bytes], *, force: bool = False, sources: Sequence[Path] = ()) -> None:
    """Write ``files``, by their path under ``out``; what else is there stays.

    They are written whole beside their places first, and then moved. A move that fails, or is interrupted, is undone
    with those before it.

    Raises:
        ExportError: one of them is there already and ``force`` does not hold, one would lie in one of ``sources``, or
            the disk refuses.
    """
    places = {name: out / name for name in files}
    _refuse(places, sources, force=force)
    made: list[Path] = []
    try:
        _make(out, made)
        with tempfile.TemporaryDirectory(prefix=".export.", dir=out) as staging:
            _stage(Path(staging), files)
            _move(Path(staging), places, made)
        made.clear()
    except (OSError, StoreError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ExportError(f"cannot write the export to {out}: {reason or error}") from error
    finally:
        for path in reversed(made):
            with suppress(OSError):  # somebody has put something there meanwhile
                path.rmdir()


def _refuse(places: Mapping[str, Path], sources: Sequence[Path], *, force: bool) -> None:
    for source in sources:
        for place in places.values():
            if place.resolve().is_relative_to(source.resolve()):
                raise ExportError(f"{place} is part of {source}, which is only read: choose another --out or --as")
    for place in places.values():
        if place.is_dir():
            raise ExportError(f"{place} is a folder: choose another --out")
    there = [str(path) for path in places.values() if os.path.lexists(path)]
    if there and not force:
        more = f" and {len(there) - _LISTED} more" if len(there) > _LISTED else ""
        raise ExportError(f"not overwritten without --force: {', '.join(there[:_LISTED])}{more}")


def _stage(staging: Path, files: Mapping[str, bytes]) -> None:
    for number, content in enumerate(files.values()):
        write_atomic(staging / f"new.{number}", content)


def _move(staging: Path, places: Mapping[str, Path], made: list[Path]) -> None:
    moved: list[tuple[Path, Path]] = []
    try:
        for number, place in enumerate(places.values()):
            _make(place.parent, made)
            old = staging / f"old.{number}"
            moved.append((place, old))
            if os.path.lexists(place):
                os.replace(place, old)
            os.replace(staging / f"new.{number}", place)
    except BaseException:  # an interrupt, too, leaves what was there before; it is raised again
        for number, (place, old) in reversed(list(enumerate(moved))):
            if os.path.lexists(old):
                os.replace(old, place)
            elif not (staging / f"new.{number}").exists():
                place.unlink()
        raise


def _make(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it; remember which were not there."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir()
        made.append(path)
