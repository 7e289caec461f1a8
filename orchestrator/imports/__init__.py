"""Published timing tables, one source a file: ``FILE``, ``SUFFIX`` and ``read(path) -> RawTable``.

``read_table`` gives any of them as a TimingTable; adding a source is adding a module to ``SOURCES``.
"""

from pathlib import Path
from types import ModuleType

from orchestrator.catalogue import GpuSpec, family_or_key, load
from orchestrator.errors import InvalidValueError, StoreError, shorten
from orchestrator.imports import aiconfigurator, vidur
from orchestrator.imports.defects import clean
from orchestrator.imports.gpu import gpu_of
from orchestrator.imports.table import Defect, TimingRow, TimingTable
from orchestrator.reachable import exists, is_dir, is_file

__all__ = ["SOURCES", "Defect", "TimingRow", "TimingTable", "is_named_like_one", "is_table", "read_table"]

SOURCES: tuple[ModuleType, ...] = (aiconfigurator, vidur)
LISTED = 5
"""Files that an error names."""


def is_table(text: str) -> bool:
    """Whether ``text`` names a published table rather than a run: ``PATH`` or ``GPU=PATH`` of a file or its folder."""
    if _names_gpu(text):
        return True
    path = Path(text)
    return is_file(path) or (is_dir(path) and not _is_run(path) and bool(_inside(path)))


def read_table(text: str) -> TimingTable:
    """Read a published table; ``GPU=PATH`` says which GPU of the catalogue it is of.

    Raises:
        StoreError: there is no such file, several in the folder, or it cannot be read.
        InvalidValueError: its GPU is not known, or no row can be used.
    """
    spec, path = _split(text) if _names_gpu(text) else (None, Path(text))
    file = _file(path)
    source = next((each for each in SOURCES if file.name.endswith(each.SUFFIX)), None)
    if source is None:
        raise StoreError(f"{file} is no table that can be read: there are {_kinds()}")
    table = source.read(file)
    return clean(table, spec or gpu_of(table))


def is_named_like_one(text: str) -> bool:
    """Whether ``text`` ends as a published table does."""
    return text.endswith(tuple(source.SUFFIX for source in SOURCES))


def _names_gpu(text: str) -> bool:
    """Whether ``text`` is of the form ``GPU=PATH``; a path may have an equals sign of its own."""
    key, found, _ = text.partition("=")
    return bool(found) and "/" not in key and not exists(Path(text))


def _split(text: str) -> tuple[GpuSpec, Path]:
    key, _, path = text.partition("=")
    named = [spec.key for spec in family_or_key(key)]
    if len(named) > 1:
        raise InvalidValueError(f"{shorten(text)}: '{key}' may be {' or '.join(named)}; give one of them")
    return load()[named[0]], Path(path)


def _file(path: Path) -> Path:
    if not exists(path):
        raise StoreError(f"{shorten(str(path))}: there is no such file or folder, or it cannot be looked at")
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
