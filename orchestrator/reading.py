"""Many Parquet files of one schema read as one dataset; a corrupt file is named and the rest is read."""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.fs as fs

from orchestrator.compacted import Compacted
from orchestrator.errors import StoreError
from orchestrator.sound_rows import FACTS, SAMPLE, all_true, complaint

VERSION_KEY = b"schema_version"
VERSION_DIGITS = 9
"""More has no version: Python reads no number of thousands of digits."""

_SOUND = "row is sound"
"""A column that a scan adds."""


class UnsoundError(Exception):
    """Rows that lack what every row has."""


class _VanishedError(Exception):
    """A file that was listed is gone: its rows were compacted meanwhile."""


UNREADABLE = (pa.ArrowException, OSError, UnsoundError)


@dataclass(frozen=True, kw_only=True, slots=True)
class Read:
    """Rows, and one line for each file that could not be read."""

    table: pa.Table
    problems: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFile:
    """A file that can be opened. compacted: what it says of itself, where it is a compacted one."""

    fragment: ds.ParquetFileFragment
    compacted: Compacted | None = None

    @property
    def path(self) -> str:
        """Where it lies."""
        return str(self.fragment.path)

    @property
    def replaces(self) -> frozenset[str]:
        """Paths of the files whose rows it holds."""
        folder, names = Path(self.path).parent, self.compacted.replaces if self.compacted else ()
        return frozenset(f"{folder}/{name}" for name in names)


class ShardReader:
    """All Shards behind one ``pyarrow.dataset``; ``problems`` names those that are corrupt.

    A Shard that is both alone and in a sound compacted file counts once. A run may be compacted while it is read.

    Raises:
        StoreError: a newer version of this program wrote one of them.
    """

    def __init__(
        self, paths: Callable[[], Sequence[Path]], schema: pa.Schema, version: int, *, footers: bool = True
    ) -> None:
        """Read every file's footer and set the corrupt ones aside. paths: lists the files that there are.

        footers: whether they are kept for reading rows, a third of a MiB a file.
        """
        self._paths = paths
        self._schema = schema
        self._version = version
        self._footers = footers
        self._names = frozenset(schema.names)  # which the schema lists anew at each call
        self._problems: dict[str, str] = {}
        # A flipped bit inside a page is found by the page's checksum, which readers ignore unless told.
        scan = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        self._format = ds.ParquetFileFormat(default_fragment_scan_options=scan)
        self._files = self._open_all()

    @property
    def problems(self) -> tuple[str, ...]:
        """One line for each corrupt file found so far."""
        return tuple(self._problems.values())

    def files(self) -> list[ShardFile]:
        """Return the files whose rows are read: neither corrupt nor replaced by one that is not."""
        sound = [file for file in self._files if file.path not in self._problems]
        replaced = frozenset[str]().union(*(file.replaces for file in sound))
        return [file for file in sound if file.path not in replaced]

    def facts(self, columns: Sequence[str] | None = None) -> Read:
        """Read the facts rows, of all columns or of these."""
        return self._read(columns, _other_than("sample"), FACTS)

    def samples(self, columns: Sequence[str] | None = None) -> Read:
        """Read the sample rows, of all columns or of these."""
        return self._read(columns, _other_than("facts"), SAMPLE)

    def _open_all(self) -> list[ShardFile]:
        while True:
            try:
                return [file for path in self._paths() for file in self._open(path)]
            except _VanishedError:
                continue

    def _vanished(self, path: str | Path) -> bool:
        """Whether the file is gone since it was listed; a link to nowhere is listed again."""
        return not _there(Path(path)) and Path(path) not in self._paths()

    def _open(self, path: Path) -> Iterator[ShardFile]:
        if _there(path) and not path.is_file() and not path.is_dir():
            self.set_aside(str(path), "it is no file")  # opening a pipe would wait for ever
            return
        try:
            fragment = self._fragment(path)
            metadata = fragment.metadata.metadata or {}
            # Only pages have checksums: a flipped bit in a column's name would make it one without values.
            strange = [name for name in fragment.physical_schema.names if name not in self._names]
            compacted = Compacted.of(metadata)
        except (*UNREADABLE, ValueError) as error:
            if self._vanished(path):
                raise _VanishedError from error
            self.set_aside(str(path), str(error))
            return
        found = metadata.get(VERSION_KEY, b"")
        if not found.isdigit() or len(found) > VERSION_DIGITS:
            self.set_aside(str(path), "it has no schema_version: this program did not write it")
        elif int(found) > self._version:
            raise StoreError(
                f"{path} has schema_version {int(found)}, newer than {self._version}, the newest that this version "
                "reads: update the orchestrator"
            )
        elif strange:
            self.set_aside(str(path), f"it has a column '{strange[0]}', which there is not")
        else:
            yield ShardFile(fragment=fragment if self._footers else self._fragment(path), compacted=compacted)

    def _fragment(self, path: Path) -> ds.ParquetFileFragment:
        text = os.path.abspath(path) if str(path).startswith("~") else str(path)  # that pyarrow takes for the home's
        return self._format.make_fragment(text, filesystem=fs.LocalFileSystem())

    def set_aside(self, path: str, reason: str) -> None:
        """Leave a file out from now on, and name it in ``problems``."""
        self._problems.setdefault(path, f"{path} is corrupt and was left out: {' '.join(reason.split())}")

    def _read(
        self, columns: Sequence[str] | None, rows: pc.Expression, conditions: Mapping[str, pc.Expression]
    ) -> Read:
        wanted = {name: pc.field(name) for name in (self._schema.names if columns is None else columns)}
        projection = {**wanted, _SOUND: all_true(conditions)}

        def scan(files: Sequence[ShardFile]) -> pa.Table:
            dataset = ds.FileSystemDataset([file.fragment for file in files], self._schema, self._format)
            table = dataset.to_table(columns=projection, filter=rows)
            if not pc.all(table[_SOUND], min_count=0).as_py():
                raise UnsoundError(complaint(dataset, conditions, rows))
            return table.select(list(wanted))

        while True:
            live = self.files()
            try:
                table = scan(live)
            except UNREADABLE:
                if any(self._vanished(file.path) for file in live):
                    self._files = self._open_all()  # the same rows, in other files
                    continue
                # Only now is it worth reading one by one, to name the guilty. What a guilty one replaced is read then.
                guilty = [file for file in live if not self._sound(file, scan)]
                if not guilty:
                    raise
                continue
            return Read(table=table, problems=self.problems)

    def _sound(self, file: ShardFile, scan: Callable[[Sequence[ShardFile]], Any]) -> bool:
        try:
            scan([file])
        except UNREADABLE as error:
            if not self._vanished(file.path):
                self.set_aside(file.path, str(error))
            return False
        return True


def _there(path: Path) -> bool:
    """Whether something has this path.

    Raises:
        StoreError: that cannot be told: a directory above it may not be entered.
    """
    try:
        return path.exists()
    except OSError as error:
        raise StoreError(f"cannot look at {path}: {error.strerror or error}") from error


def _other_than(record: str) -> pc.Expression:
    """The rows that are not of this record: what is neither facts nor a sample must be found, not overlooked."""
    return (pc.field("record") != record) | pc.field("record").is_null()
