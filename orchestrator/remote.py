"""A directory in a store: list, read, and write files that appear whole or not at all."""

import os
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
from pyarrow import fs

from orchestrator.address import Address
from orchestrator.atomic import sweep_temporaries, write_atomic
from orchestrator.errors import StoreError, shorten
from orchestrator.filesystem import fsspec_of, is_atomic, is_fsspec, open_filesystem

_ADVICE = (
    (r"NO_SUCH_BUCKET|NoSuchBucket|Bucket '.*' not found", "there is no such bucket"),
    (
        r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|HTTP status 403|PERMISSION_DENIED",
        "access is refused: give credentials that may list and write there (AWS_ACCESS_KEY_ID and "
        "AWS_SECRET_ACCESS_KEY, AWS_PROFILE or a role; for gs:// GOOGLE_APPLICATION_CREDENTIALS)",
    ),
    (r"[Cc]redential|OAuth2|UNAUTHENTICATED", "there are no credentials for it"),
    (r"NETWORK_CONNECTION|[Tt]imed? ?out|curlCode|Could(n't| not) (connect|resolve)", "it does not answer"),
)
_REQUEST = re.compile(r"\s*\(Request ID: [^)]*\)")


class Remote:
    """A directory in a store, opened at the first call. Every call may wait for the network.

    Raises:
        StoreError: from every call: the store refuses, does not answer, or has no such file.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self._opening = threading.Lock()
        self._opened: tuple[fs.FileSystem, str] | None = None

    def require(self) -> None:
        """Raise StoreError where the directory's bucket, or the store, is not there for us."""
        with self._translated():
            filesystem, path = self._open()
            if filesystem.type_name in ("s3", "gcs"):
                bucket = path.partition("/")[0]
                if not bucket:
                    raise StoreError(f"{self.address}: no bucket is named; write {self.address.scheme}://BUCKET/PREFIX")
                if filesystem.get_file_info(bucket).type == fs.FileType.NotFound:
                    raise StoreError(f"{self.address}: there is no bucket '{bucket}'")
            elif filesystem.get_file_info(path).type == fs.FileType.File:
                raise StoreError(f"{self.address}: {path} is not a directory")

    def sizes(self) -> dict[str, int]:
        """Bytes of each file under the directory, by its path in it; none where there is no such directory.

        Hidden files, such as a writer's temporary ones, are no part of a run.
        """
        return {name: info.size for name, info in self._files() if is_visible(name)}

    def directories(self) -> list[str]:
        """Names of the directories directly under this one."""
        with self._translated():
            filesystem, path = self._open()
            found = filesystem.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)

    def read(self, name: str) -> bytes:
        """Return a file's content."""
        with self._translated(name):
            filesystem, path = self._open()
            with filesystem.open_input_stream(f"{path}/{name}", compression=None) as stream:
                return bytes(stream.read())

    def write(self, name: str, content: bytes) -> None:
        """Write a file so that a reader sees the old one, the new one or none."""
        with self._translated(name):
            filesystem, path = self._open()
            _write(filesystem, f"{path}/{name}", content)

    def remove(self, name: str) -> None:
        """Remove a file."""
        with self._translated(name):
            filesystem, path = self._open()
            filesystem.delete_file(f"{path}/{name}")

    def remove_empty(self) -> None:
        """Remove the directory if no file is in it: object stores keep a mark of one that was emptied."""
        if not self._files():
            with self._translated():
                filesystem, path = self._open()
                filesystem.delete_dir(path)

    def sweep(self) -> None:
        """Remove the temporary files that killed writers left."""
        with self._translated():
            filesystem, path = self._open()
            if isinstance(filesystem, fs.LocalFileSystem):
                sweep_temporaries(Path(path))
        if not isinstance(filesystem, fs.LocalFileSystem) and not is_atomic(filesystem):
            for name, _ in self._files():
                if re.fullmatch(r"\..+\.tmp", name.rpartition("/")[2]):
                    self.remove(name)

    def _open(self) -> tuple[fs.FileSystem, str]:
        with self._opening:
            if self._opened is None:
                self._opened = open_filesystem(self.address)
            return self._opened

    def _files(self) -> list[tuple[str, fs.FileInfo]]:
        with self._translated():
            filesystem, path = self._open()
            found = filesystem.get_file_info(fs.FileSelector(path, recursive=True, allow_not_found=True))
        prefix = path.lstrip("/") + "/"
        return [(i.path.lstrip("/").removeprefix(prefix), i) for i in found if i.type == fs.FileType.File]

    @contextmanager
    def _translated(self, name: str = "") -> Iterator[None]:
        """Turn what a store's library raises into one line that names the place and what to do."""
        try:
            yield
        except StoreError:
            raise
        except Exception as error:
            native = isinstance(error, (OSError, pa.ArrowException))
            if not native and not (self._opened and is_fsspec(self._opened[0])):
                raise  # a fault of this program; fsspec's libraries alone raise what they like
            raise StoreError(f"{self.address}{f': {name}' if name else ''}: {explain(error)}") from error


def is_visible(name: str) -> bool:
    """Whether no part of a relative path is hidden; ``..`` is, so what a store lists cannot lead out of a directory."""
    return not any(part.startswith((".", "/")) for part in PurePosixPath(name).parts)


def explain(error: BaseException) -> str:
    """Say in one line what a store's error means for a user."""
    text = shorten(_REQUEST.sub("", " ".join(str(error).split())) or type(error).__name__, 300)
    return next((f"{advice} ({text})" for pattern, advice in _ADVICE if re.search(pattern, text)), text)


def _write(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    if isinstance(filesystem, fs.LocalFileSystem):
        write_atomic(Path(path), content)
    elif is_atomic(filesystem):
        _put(filesystem, path, content)
    else:
        parent, _, name = path.rpartition("/")
        temporary = f"{parent}/.{name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.tmp"
        filesystem.create_dir(parent, recursive=True)
        try:
            _put(filesystem, temporary, content)
            filesystem.move(temporary, path)
        except BaseException:  # an interrupt, too, leaves no temporary file behind; it is raised again
            with suppress(OSError, pa.ArrowException):
                filesystem.delete_file(temporary)
            raise


def _put(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    if is_fsspec(filesystem):
        # In one piece: a stream of fsspec's that breaks off is completed when it is collected.
        store: Any = fsspec_of(filesystem)
        store.pipe_file(path, content)
        return
    stream = filesystem.open_output_stream(path, compression=None)
    stream.write(content)
    stream.close()  # not by ``with``: after a failed write, closing must not complete the object
