"""Published timing tables, one source a file: ``FILE``, ``SUFFIX`` and ``read(path) -> RawTable``.

``read_table`` gives any of them as a TimingTable; adding a source is adding a module to ``SOURCES``.
"""

from pathlib import Path
from types import ModuleType

from orchestrator.catalogue import GpuSpec, load
from orchestrator.errors import StoreError
from orchestrator.imports import aiconfigurator, vidur
from orchestrator.imports.defects import clean
from orchestrator.imports.gpu import gpu_of
from orchestrator.imports.table import Defect, TimingRow, TimingTable
from orchestrator.reachable import is_dir, is_file

__all__ = ["SOURCES", "Defect", "TimingRow", "TimingTable", "is_table", "read_table"]

SOURCES: tuple[ModuleType, ...] = (aiconfigurator, vidur)
LISTED = 5
"""Files that an error names."""


def is_table(text: str) -> bool:
    """Whether ``text`` names a published table rather than a run: ``PATH`` or ``GPU=PATH`` of a file or its folder."""
    _, path = _split(text)
    return is_file(path) or (is_dir(path) and not _is_run(path) and bool(_inside(path)))


def read_table(text: str) -> TimingTable:
    """Read a published table; ``GPU=PATH`` says which GPU of the catalogue it is of.

    Raises:
        StoreError: there is no such file, several in the folder, or it cannot be read.
        InvalidValueError: its GPU is not known, or no row can be used.
    """
    spec, path = _split(text)
    file = _file(path)
    source = next((each for each in SOURCES if file.name.endswith(each.SUFFIX)), None)
    if source is None:
        raise StoreError(f"{file} is no table that can be read: there are {_kinds()}")
    table = source.read(file)
    return clean(table, spec or gpu_of(table))


def _split(text: str) -> tuple[GpuSpec | None, Path]:
    """The GPU and the path of ``GPU=PATH``; a path may have an equals sign of its own."""
    key, found, path = text.partition("=")
    return (load()[key], Path(path)) if found and key in load() else (None, Path(text))


def _file(path: Path) -> Path:
    if is_file(path):
        return path
    found = _inside(path) if is_dir(path) else []
    if len(found) == 1:
        return found[0]
    if found:
        raise StoreError(f"{path} holds several tables, name one: {', '.join(map(str, found[:LISTED]))}")
    raise StoreError(f"{path}: there is no table; there are {_kinds()}")


def _inside(path: Path) -> list[Path]:
    """The tables in a folder, or below it where it has none itself."""
    names = [source.FILE for source in SOURCES]
    own = [path / name for name in names if is_file(path / name)]
    return own or sorted(each for name in names for each in path.rglob(name))


def _is_run(path: Path) -> bool:
    return is_file(path / "manifest.json") or is_dir(path / "shards")


def _kinds() -> str:
    return " and ".join(f"{source.__name__.rsplit('.', 1)[-1]}'s {source.FILE}" for source in SOURCES)
