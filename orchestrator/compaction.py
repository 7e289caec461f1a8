"""Thousands of Shards into few files with the same rows. Nothing goes before what takes its place was read back.

Each device's directory has compacted files of its own, so a path still says which device measured what. A file has at
most about FULL bytes of rows in memory: that much is at stake when one page of it is damaged.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from orchestrator.atomic import sweep_temporaries, sync_directory
from orchestrator.compacted import Compacted
from orchestrator.errors import StoreError
from orchestrator.reading import ShardFile
from orchestrator.store import RunStore, shard_reader

FULL = 256 << 20
"""Bytes of rows in memory from which on a compacted file is not merged again."""
AT_ONCE = 64
"""Shards that are read together."""

_ORDER = ("uuid", "bundle_id", "attempt", "gemm_id", "family_id", "value", "part", "round", "position")


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """What was done. before, after: files that can be read. problems: one line for each that stays as it is."""

    before: int
    after: int
    problems: tuple[str, ...]


@dataclass(slots=True)
class _Rows:
    """Rows that become one file, and where they are from."""

    facts: list[pa.Table] = field(default_factory=list)
    samples: list[pa.Table] = field(default_factory=list)
    files: list[ShardFile] = field(default_factory=list)
    size: int = 0

    def add(self, facts: pa.Table, samples: pa.Table, files: Iterable[ShardFile]) -> None:
        self.facts.append(facts.combine_chunks())
        self.samples.append(samples.combine_chunks())
        self.files += files
        self.size += self.facts[-1].nbytes + self.samples[-1].nbytes


def compact(store: RunStore) -> Compaction:
    """Merge the Shards of each device of a run; a kill at any moment leaves a run with the same rows.

    Raises:
        StoreError: somebody else works on the run, a newer version wrote some of it, or the disk refuses.
    """
    with store.locked():
        sweep_temporaries(store.path / "shards")
        devices = list(dict.fromkeys(path.parent for path in store.shard_paths()))
        done = [_compact_device(store, device) for device in devices]
        return Compaction(
            before=sum(files for files, _ in done),
            after=len(store.reader().files()),
            problems=tuple(dict.fromkeys(problem for _, problems in done for problem in problems)),
        )


def _compact_device(store: RunStore, device: Path) -> tuple[int, list[str]]:
    """Compact one directory; return how many files it had, and what stays as it is."""
    problems: list[str] = []
    lost: set[str] = set()
    while True:
        reader = shard_reader(
            lambda: [p for p in store.shard_paths() if p.parent == device and str(p) not in lost],
            footers=False,  # of ten thousand Shards they take gigabytes
        )
        files, former = reader.files(), len(lost)
        problems += [*reader.problems, *_finish_former(files, lost)]
        if len(lost) == former:
            break  # otherwise what a damaged compacted file replaced is read again
    small = [file for file in files if not (file.compacted and file.compacted.full)]
    rows = _Rows()
    for few in _together(small) if len(small) > 1 else ():
        facts, samples, sound, unread = _read(few)
        problems += unread
        rows.add(facts, samples, sound)
        if rows.size >= FULL:
            _write(store, device, rows, full=True)
            rows = _Rows()
    _write(store, device, rows, full=False)
    return len(files) + len(lost), problems


def _together(files: Iterable[ShardFile]) -> Iterator[list[ShardFile]]:
    """Some Shards at a time; a compacted file, which is large, alone."""
    few: list[ShardFile] = []
    for file in files:
        if few and (file.compacted or len(few) == AT_ONCE):
            yield few
            few = []
        few.append(file)
        if file.compacted:
            yield few
            few = []
    if few:
        yield few


def _read(files: Sequence[ShardFile]) -> tuple[pa.Table, pa.Table, list[ShardFile], tuple[str, ...]]:
    """Facts and samples of those that can be read whole; these; and a line for each other one."""
    sound = list(files)
    problems: list[str] = []
    while True:
        reader = shard_reader([Path(file.path) for file in sound].copy)
        facts, samples = reader.facts().table, reader.samples().table
        if not reader.problems:
            return facts, samples, sound, tuple(problems)
        problems += reader.problems  # its facts may be sound, and its samples not: they stay together
        good = {file.path for file in reader.files()}
        sound = [file for file in sound if file.path in good]


def _write(store: RunStore, device: Path, rows: _Rows, *, full: bool) -> None:
    """Write them as one file and remove those that they are from; a file that is alone stays as it is."""
    if len(rows.files) < 2:
        return
    facts, samples = pa.concat_tables(rows.facts), pa.concat_tables(rows.samples)
    names = {Path(path).name: None for file in rows.files for path in (*sorted(file.replaces), file.path)}

    def check(path: Path) -> None:
        reader = shard_reader([path].copy)
        whole = _same(reader.facts().table, facts) and _same(reader.samples().table, samples)
        if reader.problems or not whole:
            raise StoreError(
                f"{path} does not read as it was written: the disk is not to be trusted; no shard was touched"
            )

    store.write_compacted(device, facts, samples, Compacted(replaces=tuple(names), full=full), check)
    _remove(Path(file.path) for file in rows.files)


def _finish_former(files: Sequence[ShardFile], lost: set[str]) -> Iterator[str]:
    """Remove what a compaction that was killed had written elsewhere and not removed, if it is there row by row.

    Yield what cannot be; a compacted file that is damaged, beside files that it replaced, is added to ``lost``.
    """
    for file in files:
        left = sorted(Path(path) for path in file.replaces if Path(path).exists())
        if not left:
            continue
        facts, samples, sound, problems = _read([file])
        if not sound:
            yield from problems
            lost.add(file.path)
            continue
        unlike = [path for path in left if not _holds(facts, samples, path)]
        for path in unlike:
            yield f"{path} is kept, and not read: {Path(file.path).name} holds a shard of this name with other rows"
        _remove(path for path in left if path not in unlike)


def _holds(facts: pa.Table, samples: pa.Table, path: Path) -> bool:
    """Whether these rows have all of what can be read of a file."""
    reader = shard_reader([path].copy)
    if reader.problems:
        return True  # it cannot be read, and its rows were when they were taken in
    return all(
        _same(_ordered(_of_shards(rows, own)), _ordered(own))
        for rows, own in ((facts, reader.facts().table), (samples, reader.samples().table))
    )


def _of_shards(rows: pa.Table, own: pa.Table) -> pa.Table:
    """Those of the rows that are of a Shard that ``own`` has rows of."""
    return rows.filter(pc.is_in(_key(rows), _key(own).unique()))


def _key(rows: pa.Table) -> pa.ChunkedArray:
    uuid, bundle_id, attempt = (rows[name] for name in _ORDER[:3])
    return pc.binary_join_element_wise(uuid, bundle_id, pc.cast(attempt, pa.string()), "\0")


def _ordered(rows: pa.Table) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in _ORDER])


def _same(left: pa.Table, right: pa.Table) -> bool:
    """Whether two tables are equal to the bit; NaN, as nothing else does, differs from itself."""
    return bool(_bits(left).equals(_bits(right)))


def _bits(table: pa.Table) -> pa.Table:
    columns = [
        pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        if column.type == pa.float64()
        else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _remove(paths: Iterable[Path]) -> None:
    folders = set()
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StoreError(
                f"cannot remove {path}, whose rows are compacted: {error.strerror or error}; it is not read any more"
            ) from error
        folders.add(path.parent)
    for folder in folders:
        sync_directory(folder)
