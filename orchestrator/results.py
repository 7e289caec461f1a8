"""Where a sweep's run goes: a local directory, or a store with a local spool before it."""

import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.address import is_uri
from orchestrator.errors import StoreError, shorten
from orchestrator.schema import Run

if TYPE_CHECKING:
    from orchestrator.store import RunStore


class Results(Protocol):
    """The directory of the runs, as a sweep uses it."""

    def check(self, name: str | None) -> None:
        """Raise StoreError where a run (of this name, if the user gave one) cannot be created."""

    def create(self, name: str, manifest: Mapping[str, Any]) -> "RunStore":
        """Make a run."""

    def open(self, text: str) -> "RunStore":
        """Open the run that ``text`` means, to go on writing it."""

    def finish(self) -> list[str]:
        """Bring the run to where the user wants it; return a line for each thing that keeps it from there."""


@contextmanager
def results(run: Run) -> Iterator[Results]:
    """Open the place that ``run.dir`` names. A body that breaks off is finished too, and what is left is told."""
    if not is_uri(run.dir):
        yield LocalResults(run.dir)
        return
    from orchestrator.spooled_results import SpooledResults

    place = SpooledResults(run)
    try:
        yield place
    finally:
        place.close()


class LocalResults:
    """Runs under a local directory."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def check(self, name: str | None) -> None:
        """Raise StoreError where the directory cannot be written, or the name is taken."""
        check_directory(Path(self._directory))
        if name is not None and (Path(self._directory) / name).exists():
            run = Path(self._directory) / name
            raise StoreError(
                f"run {run} exists already: choose another run.name, or go on with it by resume={shlex.quote(str(run))}"
            )

    def create(self, name: str, manifest: Mapping[str, Any]) -> "RunStore":
        """Make a run."""
        from orchestrator.store import RunStore

        return RunStore.create(self._directory, name, manifest)

    def open(self, text: str) -> "RunStore":
        """Open the run that ``text`` means."""
        from orchestrator.runs import find_run

        return find_run(text, self._directory)

    def finish(self) -> list[str]:
        """It is where it belongs."""
        return []


def check_directory(directory: Path, key: str = "run.dir") -> None:
    """Raise StoreError where nothing can be created under a local directory, which need not be there yet."""
    existing = nearest_existing(directory, key)
    if not existing.is_dir():
        raise StoreError(f"{key}={directory}: {existing} is not a directory")
    if not os.access(existing, os.W_OK | os.X_OK):
        raise StoreError(f"{key}={directory}: {existing} is not writable")


def nearest_existing(path: Path, key: str = "run.dir") -> Path:
    """Return ``path``, or the nearest above it that is there; raise StoreError where that cannot be told."""
    try:
        return next(above for above in (path.absolute(), *path.absolute().parents) if above.exists())
    except OSError as error:
        raise StoreError(f"{key}={shorten(str(path))}: {error.strerror}") from error
