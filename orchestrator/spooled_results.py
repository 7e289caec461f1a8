"""A sweep's run on its way to a store: written into the spool, sent from there, never waited for before the end."""

import shlex
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from orchestrator.address import Address
from orchestrator.errors import RunExistsError, StoreError
from orchestrator.mirror import Left, Mirror
from orchestrator.patience import within
from orchestrator.remote import Remote
from orchestrator.remote_runs import fetched_run
from orchestrator.results import check_directory
from orchestrator.schema import Run
from orchestrator.spool import Origin, local_sizes, spool_root, spooled_path
from orchestrator.store import RunStore
from orchestrator.transfer import advice, lacking, upload_command

CHECK_S = 8.0
"""Seconds that a store may take to answer before the sweep starts."""
REMOVE_S = 5.0
TOLD_AFTER_S = 2.0
"""An upload that takes longer at the end is told of."""


class SpooledResults:
    """Runs under a URI: written into the spool, sent from there."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._base = Address.parse(run.dir)
        self._root = spool_root(run.spool, self._base)
        self._store: RunStore | None = None
        self._mirror: Mirror | None = None
        self._made = False
        self._finished = False

    def check(self, name: str | None) -> None:
        """Raise StoreError where store or spool cannot be written, or the name is taken in either."""
        check_directory(self._root, "run.spool")
        remote = Remote(self._base)
        try:
            within(CHECK_S, str(self._base), remote.require)
            if name is not None:
                self._refuse_taken(name)
        except StoreError as error:
            raise StoreError(f"run.dir: {error}") from error
        if self._base.scheme == "file":
            check_directory(Path(self._base.plain))
        if name is None:
            return
        run = spooled_path(self._run.spool, self._base, name)
        if run.exists():
            raise StoreError(
                f"run {run} exists already in the spool: choose another run.name; if the store lacks it, "
                f"finish its upload by: {upload_command(run)}"
            )

    def create(self, name: str, manifest: Mapping[str, Any]) -> RunStore:
        """Make a run in the spool, and begin to send it."""
        self._refuse_taken(name, sure=False)
        store = RunStore.create(self._root, name, manifest)
        address = self._base.child(name)
        self._made = True
        Origin(uri=str(address)).write(store.path)
        return self._mirrored(store, address, local_sizes(store.path))

    def open(self, text: str) -> RunStore:
        """Fetch the run that ``text`` means, and begin to send what the store lacks."""
        store = RunStore.open(fetched_run(text, self._run.dir, self._run.spool))
        origin = Origin.of(store.path)
        if origin is None:
            raise StoreError(f"{store.path} has no remote.json")
        remote = Remote(origin.address)
        try:
            names: Iterable[str] = lacking(store.path, origin, within(CHECK_S, origin.uri, remote.sizes))
        except StoreError:  # nothing is known of it: send everything, it is tried until the store is back
            names = local_sizes(store.path)
        return self._mirrored(store, origin.address, names)

    def finish(self) -> list[str]:
        """Wait for the upload, ``run.upload_timeout_s`` at most without a file getting through."""
        if self._mirror is None or self._store is None or self._finished:
            return []
        self._finished = True
        if not self._store.is_run():
            return self._gone(self._mirror, self._store)
        left = self._flushed(self._mirror, self._store)
        self._mirror.close()
        if left is not None:
            return [self._missing(left)]
        sys.stderr.write(f"the run is in {self._address()}\n")
        return []

    def close(self) -> None:
        """Finish where that was not done, and tell what is left."""
        for problem in self.finish():
            sys.stderr.write(f"{problem}\n")
        if self._mirror is not None:
            self._mirror.close()

    def _refuse_taken(self, name: str, *, sure: bool = True) -> None:
        """Raise StoreError where the store has the run; ``sure``: also where it does not answer."""
        address = self._base.child(name)
        try:
            taken = within(CHECK_S, str(address), Remote(address).sizes)
        except StoreError:
            if sure:
                raise
            return
        if taken:
            raise RunExistsError(
                f"run {address} exists already: choose another run.name, or go on with it by "
                f"resume={shlex.quote(str(address))}"
            )

    def _mirrored(self, store: RunStore, address: Address, names: Iterable[str]) -> RunStore:
        mirror = self._mirror = Mirror(store.path, Remote(address))
        self._store = replace(store, on_write=mirror.add)
        for name in names:
            mirror.add(store.path / name)
        return self._store

    def _flushed(self, mirror: Mirror, store: RunStore) -> Left | None:
        patience_s = self._run.upload_timeout_s
        try:
            left = mirror.flush(min(TOLD_AFTER_S, patience_s))
            if left is not None and patience_s > TOLD_AFTER_S:
                sys.stderr.write(f"sending {left.files} files to {self._address()}; Ctrl-C leaves them in the spool\n")
                left = mirror.flush(patience_s - TOLD_AFTER_S)
            return left
        except KeyboardInterrupt:
            left = mirror.left()
            if left is not None:
                sys.stderr.write(f"{self._missing(left)}\n")
            raise

    def _missing(self, left: Left) -> str:
        assert self._store is not None
        return f"{left.reason}\n{advice(self._store.path, self._address(), left.files)}"

    def _address(self) -> Address:
        assert self._store is not None
        return self._base.child(self._store.name)

    def _gone(self, mirror: Mirror, store: RunStore) -> list[str]:
        """Take back a run that was discarded, which had no Shard; of one that was moved the store keeps what it has."""
        mirror.close(REMOVE_S)
        if self._made and not any(name.startswith("shards/") for name in mirror.sent()):
            self._withdraw(mirror, store)
            return []
        return [
            f"{self._address()} keeps what was sent before {store.path} was moved or removed; upload PATH, where it "
            "lies now, sends the rest"
        ]

    def _withdraw(self, mirror: Mirror, store: RunStore) -> None:
        store.discard()  # the mirror may have noted in it what it sent last
        remote = Remote(self._address())
        try:
            for name in mirror.sent():
                within(REMOVE_S, str(remote.address), partial(remote.remove, name))
            within(REMOVE_S, str(remote.address), remote.remove_empty)
        except StoreError as error:
            sys.stderr.write(f"{error}\nno run was kept here, its manifest remains there\n")
