"""A run on disk: the only code that names a file under ``results/``."""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from filelock import FileLock, Timeout

from orchestrator import shard
from orchestrator.atomic import replacing, write_atomic
from orchestrator.bounded import read_kept
from orchestrator.columns import RANKING_SCHEMA, SCHEMA_VERSION, SHARD_SCHEMA
from orchestrator.compacted import COMPACTED, Compacted, compacted_name
from orchestrator.errors import InvalidValueError, RunExistsError, StoreError
from orchestrator.manifest import wrong_in
from orchestrator.reading import ShardReader
from orchestrator.schema import RUN_NAME
from tasks.family import Bundle
from tasks.records import Measurement
from tasks.settings import Timing

# Statistics are kept only where a filter uses them: a Shard is small, and they would be half of it.
PARQUET: Mapping[str, Any] = MappingProxyType(
    {"compression": "zstd", "write_page_checksum": True, "write_statistics": ["record"]}
)
"""How all Parquet files are written."""
SHARD_COMPRESSION = dict.fromkeys(shard.SAMPLE_COLUMNS, "zstd")
"""Of a Shard the columns that samples have: the others are mostly null or constant, and compressing them, each by
itself, takes longer than writing them."""


def shard_table(
    bundle: Bundle,
    measurement: Measurement,
    timing: Timing,
    *,
    attempt: int,
    code_version: str,
    plan_hash: str,
    canary: int | None = None,
) -> pa.Table:
    """Build the Shard of one Measurement (SHARD_SCHEMA): its facts, then its samples.

    canary: how many canaries the device had measured before; None in a sweep without.
    """
    rows = shard.fact_rows(
        bundle,
        measurement,
        timing,
        attempt=attempt,
        code_version=code_version,
        plan_hash=plan_hash,
        canary=canary,
    )
    facts = pa.Table.from_pylist(rows, schema=SHARD_SCHEMA)
    columns, count = shard.sample_columns(measurement, attempt=attempt), len(measurement.samples)
    arrays = [
        pa.array(columns[field.name], field.type) if field.name in columns else pa.nulls(count, field.type)
        for field in SHARD_SCHEMA
    ]
    return pa.concat_tables([facts, pa.Table.from_arrays(arrays, schema=SHARD_SCHEMA)])


def shard_file(table: pa.Table) -> bytes:
    """Encode a Shard, facts first, as its file: facts and samples as two row groups."""
    count = pc.sum(pc.equal(table["record"], shard.FACTS)).as_py()
    groups = [table.slice(0, count), table.slice(count)]
    return _parquet([group for group in groups if group.num_rows], SHARD_COMPRESSION)


def safe_name(text: str) -> str:
    """Return ``text`` as lower-case words joined by ``-``, safe as one path component.

    >>> safe_name("NVIDIA H200"), safe_name("AMD EPYC 9654 (96-Core)")
    ('nvidia-h200', 'amd-epyc-9654-96-core')
    """
    return "-".join(re.findall(r"[a-z0-9]+", text.lower())) or "unknown"


def file_id(text: str) -> str:
    """Return an id as it stands in the names of files: several ids may have the same.

    >>> file_id("mlp-h4096-tp8-b4-s2048-bf16-fwd+bwd"), file_id("MIG-GPU-x/7/0")
    ('mlp-h4096-tp8-b4-s2048-bf16-fwd-bwd', 'MIG-GPU-x-7-0')
    """
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip(".") or "unknown"


@dataclass(frozen=True, slots=True)
class RunStore:
    """One run's directory: ``manifest.json``, ``shards/``, ``ranking.parquet``, ``ranking.md``."""

    path: Path
    on_write: Callable[[Path], None] | None = field(default=None, compare=False, repr=False)
    """Is told of every file after it was written."""

    @classmethod
    def create(cls, results: str | Path, name: str, manifest: Mapping[str, Any]) -> Self:
        """Make the run ``name`` under ``results`` and write its manifest.

        Raises:
            StoreError: the name is no plain directory name, the run exists, or the disk refuses.
        """
        if not RUN_NAME.fullmatch(name):
            raise StoreError(
                f"run name {name!r}: use letters, digits, '.', '_', '+' and '-', beginning with a letter or a digit; "
                "run.dir says where runs land"
            )
        path = Path(results) / name
        try:
            path.mkdir(parents=True)
        except FileExistsError as error:
            if not path.exists():  # something above it is no directory
                raise StoreError(f"cannot create the run {path}: {error.strerror or error}") from error
            raise RunExistsError(f"run {path} exists already: choose another run.name") from error
        except OSError as error:
            raise StoreError(f"cannot create the run {path}: {error.strerror or error}") from error
        store = cls(path)
        try:
            store.write_manifest(manifest)
        except StoreError:
            store.discard()  # its name is free again
            raise
        return store

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a run that exists.

        Raises:
            StoreError: ``path`` is no run, or was written by a newer version.
        """
        store = cls(Path(path))
        if not store.is_run():
            raise StoreError(f"{path} is not a run: expected a directory with manifest.json or shards/ in it")
        shards = store.path / "shards"
        if shards.exists() and not shards.is_dir():
            raise StoreError(f"{shards} is no directory, in which the Shards of the run would lie; move it away")
        store.manifest()
        return store

    def discard(self) -> None:
        """Remove the run from the disk: for one in which nothing was measured."""
        shutil.rmtree(self.path, ignore_errors=True)

    def is_run(self) -> bool:
        """Whether there is a run here."""
        return self.manifest_path.is_file() or (self.path / "shards").is_dir()

    @property
    def name(self) -> str:
        """The run's name: that of its directory."""
        return self.path.resolve().name

    @property
    def manifest_path(self) -> Path:
        """The run's facts as JSON."""
        return self.path / "manifest.json"

    @property
    def ranking_path(self) -> Path:
        """The merged result as Parquet."""
        return self.path / "ranking.parquet"

    @property
    def markdown_path(self) -> Path:
        """The merged result as the terminal showed it."""
        return self.path / "ranking.md"

    def shard_path(self, gpu: str, uuid: str, bundle_id: str, attempt: int) -> Path:
        """Where the Shard of one attempt at one Bundle on one device lies."""
        device = self.path / "shards" / f"gpu={safe_name(gpu)}" / f"device={file_id(uuid)}"
        return device / f"{file_id(bundle_id)}.{attempt}.parquet"

    def shard_paths(self) -> tuple[Path, ...]:
        """All Shards, in a fixed order.

        Raises:
            StoreError: a directory of them cannot be looked into.
        """
        devices = (device for gpu in _inside(self.path / "shards", "gpu=*") for device in _inside(gpu, "device=*"))
        return tuple(sorted(path for device in devices for path in _inside(device, "[!.]*.parquet")))

    def attempts(self) -> list[tuple[str, str, int]]:
        """Return (device, Bundle, attempt) of every Shard, also of corrupt ones, as the files' names have them.

        Of compacted Shards, as they had them.
        """
        names = ((path.parent.name, name) for path in self.shard_paths() for name in (path.name, *_replaced(path)))
        parts = [(device, name.rsplit(".", 2)) for device, name in dict.fromkeys(names)]
        return [
            (device.removeprefix("device="), name[0], int(name[1]))
            for device, name in parts
            if len(name) == 3 and name[1].isdecimal()
        ]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be the one driver of this run while this is open.

        Raises:
            StoreError: another driver works on it.
        """
        lock = FileLock(self.path / ".lock", blocking=False)
        try:
            lock.acquire()
        except Timeout:
            manifest = self.manifest()
            who = f"process {manifest.get('pid', '?')} on {manifest.get('host', '?')}"
            driver = f"another driver ({who})" if manifest.get("status", "running") == "running" else "another process"
            raise StoreError(f"run {self.path} is being worked on by {driver}: wait until it ends") from None
        except OSError as error:
            raise StoreError(f"cannot lock the run {self.path}: {error.strerror or error}") from error
        try:
            yield
        finally:
            lock.release()

    def write_shard(self, table: pa.Table) -> Path:
        """Write one Shard (``shard_table``) whole; return its path.

        Raises:
            StoreError: this attempt is on disk already (measurements are append-only), or the disk refuses.
        """
        first = table.select(["gpu", "uuid", "bundle_id", "attempt"]).slice(0, 1).to_pylist()[0]
        return self.write_shard_file(shard_file(table), **first)

    def write_shard_file(self, content: bytes, *, gpu: str, uuid: str, bundle_id: str, attempt: int) -> Path:
        """Write one Shard whole that is encoded already (``shard_file``); return its path.

        Raises:
            StoreError: as ``write_shard``.
        """
        path = self.shard_path(gpu, uuid, bundle_id, attempt)
        if os.path.lexists(path):
            raise StoreError(f"{path} exists already: a shard is never overwritten")
        self._write(path, content)
        return path

    def write_compacted(
        self, device: Path, facts: pa.Table, samples: pa.Table, contents: Compacted, check: Callable[[Path], None]
    ) -> Path:
        """Write the rows of Shards of one device's directory as one file; return its path.

        check: is given the file before it has its name; if it raises, the file never gets it.
        """
        taken = [name for path in device.glob("[!.]*.parquet") for name in (path.name, *_replaced(path))]
        numbers = [int(found[1]) for found in map(COMPACTED.fullmatch, taken) if found]
        path = device / compacted_name(1 + max(numbers, default=0))
        described = facts.replace_schema_metadata({**SHARD_SCHEMA.metadata, **contents.metadata()})
        groups = [described, samples.replace_schema_metadata(described.schema.metadata)]
        write_atomic(path, _parquet(groups if samples.num_rows else groups[:1]), check)
        return path

    def reader(self) -> ShardReader:
        """Open all Shards as one dataset; the corrupt ones are set aside and named in ``problems``."""
        return shard_reader(self.shard_paths)

    def manifest(self) -> dict[str, Any]:
        """Return the manifest, or nothing where there is none (``shards/`` alone is still a run).

        Raises:
            StoreError: it is unreadable, or a newer version wrote it.
        """
        try:
            found = json.loads(read_kept(self.manifest_path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, RecursionError, InvalidValueError) as error:
            raise StoreError(
                f"cannot read {self.manifest_path}: {error}; without that file the shards alone are the run: move it "
                "away to rank them, or to go on by resume=RUN conf=… and the values that the run was begun with"
            ) from error
        if not isinstance(found, dict) or not isinstance(found.get("schema_version"), int):
            raise StoreError(f"{self.manifest_path} is no manifest: it has no schema_version")
        if found["schema_version"] > SCHEMA_VERSION:
            raise StoreError(
                f"{self.manifest_path} has schema_version {found['schema_version']}, newer than {SCHEMA_VERSION}, the "
                "newest that this version reads: update the orchestrator"
            )
        if wrong := wrong_in(found):
            raise StoreError(f"{self.manifest_path} is no manifest: {', '.join(wrong)}")
        return found

    def write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Write the whole manifest; ``run`` and ``schema_version`` are added."""
        facts = {"schema_version": SCHEMA_VERSION, "run": self.name, **manifest}
        self._write(self.manifest_path, (json.dumps(facts, indent=2) + "\n").encode())

    def update_manifest(self, **changes: object) -> None:
        """Replace some of the manifest's facts, atomically."""
        self.write_manifest({**self.manifest(), **changes})

    def write_ranking(self, table: pa.Table, markdown: str) -> None:
        """Write ``ranking.parquet`` and ``ranking.md``, each whole; the same ranking gives the same bytes."""
        self._write(self.ranking_path, _parquet([table]))
        self._write(self.markdown_path, markdown.encode())

    def write_ranking_batches(self, batches: Iterable[pa.Table], markdown: Callable[[], str]) -> None:
        """Write a ranking that comes in batches, as ``write_ranking`` writes a whole one; then the Markdown.

        A batch is encoded while the next one is made.
        """
        self._require_folder()
        with (
            replacing(self.ranking_path) as file,
            pq.ParquetWriter(file, RANKING_SCHEMA, **PARQUET) as writer,
            ThreadPoolExecutor(1) as pool,
        ):
            last: Future[None] | None = None
            for table in batches:
                if last is not None:
                    last.result()
                last = pool.submit(writer.write_table, table, row_group_size=max(table.num_rows, 1))
            if last is not None:
                last.result()
        if self.on_write is not None:
            self.on_write(self.ranking_path)
        self._write(self.markdown_path, markdown().encode())

    def _require_folder(self) -> None:
        """Raise StoreError where the run was moved or removed: to write on would make half a run in its old place."""
        if not self.path.is_dir():
            raise StoreError(
                f"the run {self.path} is no longer there: it was moved or removed while it was written; "
                "what it holds goes on by resume=PATH, where it lies now"
            )

    def _write(self, path: Path, content: bytes) -> None:
        self._require_folder()
        write_atomic(path, content)
        if self.on_write is not None:
            self.on_write(path)


def shard_reader(paths: Callable[[], Sequence[Path]], *, footers: bool = True) -> ShardReader:
    """Open the Shards that ``paths`` lists as one dataset. footers: whether these are kept in memory."""
    return ShardReader(paths, SHARD_SCHEMA, SCHEMA_VERSION, footers=footers)


def _inside(directory: Path, pattern: str) -> list[Path]:
    """Entries of that pattern, none where there is no directory; to ``Path.glob`` one that it may not read is empty."""
    try:
        return [directory / name for name in os.listdir(directory) if fnmatchcase(name, pattern)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise StoreError(f"cannot look into {directory}: {error.strerror or error}") from error


def _replaced(path: Path) -> tuple[str, ...]:
    """Names of the files whose rows a compacted file holds; none of one that cannot be read, or is none."""
    if not COMPACTED.fullmatch(path.name):
        return ()
    try:
        found = Compacted.of(pq.read_metadata(path).metadata or {})
    except (pa.ArrowException, OSError, ValueError):
        return ()
    return found.replaces if found else ()


def _parquet(row_groups: Sequence[pa.Table], compression: str | Mapping[str, str] = "zstd") -> bytes:
    """Encode tables of one schema as one Parquet file, each as a row group of its own."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, row_groups[0].schema, **{**PARQUET, "compression": compression}) as writer:
        for table in row_groups:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
    return bytes(sink.getvalue())
