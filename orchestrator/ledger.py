"""What has become of each Bundle: its Shard, written beside the driver's loop, and the counts."""

from collections import Counter, deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from orchestrator.engine import Failure, Result, Spent
from orchestrator.queue import Assignment
from orchestrator.store import RunStore
from orchestrator.worker import WorkerSpec, shard
from tasks.records import NO_FAILURE, DeviceInfo, GemmFacts, Measurement, Telemetry

STORM_BUNDLES = 10
"""Before so many Bundles have ended no sweep is stopped for its failures."""
WRITERS = 4
"""Threads that write Shards: each waits for the disk most of the time, and a disk syncs several files at once."""
UNDER_WAY = 4
"""So many Shards of a device may be on their way to the disk; what comes after them waits."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmFailure:
    """One Gemm that was not measured."""

    bundle_id: str
    facts: GemmFacts


class Ledger:
    """Writes what happened to each Bundle, and counts it. When it closes, all is on disk.

    The driver's loop does not wait for the disk, unless a device measures faster than its Shards are written: of each
    device few are under way, UNDER_WAY at most.

    Raises:
        StoreError: a Shard could not be written; by whichever call comes after it.
    """

    def __init__(self, store: RunStore, spec: WorkerSpec, max_failure_share: float = 1.0) -> None:
        self._store = store
        self._spec = spec
        self._max_failure_share = max_failure_share
        self._gemms = 0
        self._threads = ThreadPoolExecutor(WRITERS, thread_name_prefix="shards")
        self._writing: dict[str, deque[Future[Path]]] = {}  # the last Shards of each device
        self._failed: list[Future[Path]] = []
        self._spent: dict[str, Spent] = {}  # by device
        self.bundles = 0
        self.failures: list[GemmFailure] = []
        self.skipped: list[GemmFailure] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._threads.shutdown()
        if error is None:
            self._check()

    def measured(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        """Have the Shard of a result written, once few others of the device are still to be."""
        self._spent[device.uuid] = self._spent.get(device.uuid, Spent()) + result.spent
        self._check()
        under_way = self._writing.setdefault(device.uuid, deque())
        if len(under_way) == UNDER_WAY:
            under_way.popleft().result()
        writing = self._threads.submit(
            self._store.write_shard_file,
            result.shard,
            gpu=device.gpu,
            uuid=device.uuid,
            bundle_id=assignment.bundle_id,
            attempt=assignment.attempt,
        )
        under_way.append(writing)
        writing.add_done_callback(self._note)
        if not assignment.is_canary:
            self._count(assignment, result.failed)

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        """Write a Shard that holds facts only: why nothing was measured."""
        known = {facts.gemm_id: facts for facts in assignment.care.lost}
        facts = tuple(
            known.get(gemm.gemm_id, GemmFacts(gemm_id=gemm.gemm_id, status=failure.status, message=failure.message))
            for gemm in assignment.bundle.gemms
        )
        nothing = Measurement(
            bundle_id=assignment.bundle_id,
            samples=(),
            facts=facts,
            device=device,
            telemetry=Telemetry(),
            started_utc=datetime.now(UTC).isoformat(),
            prepare_s=0.0,
            measuring_s=0.0,
            rounds=0,
            resolved=False,
            stop_reason="nothing",
        )
        self._store.write_shard(shard(self._spec, assignment, nothing))
        self._count(assignment, facts)

    @property
    def spent(self) -> Spent:
        """What the device that worked longest has spent; its canaries count."""
        return max(self._spent.values(), key=lambda spent: spent.whole_s, default=Spent())

    def storm(self) -> str:
        """Say so when more GEMMs have failed than ``run.max_failure_share`` allows."""
        self._check()
        failed = len(self.failures)
        if self.bundles < STORM_BUNDLES or failed <= self._max_failure_share * self._gemms:
            return ""
        counts = Counter(failure.facts.status for failure in self.failures)
        kinds = ", ".join(f"{count} {status}" for status, count in counts.most_common())
        example = self.failures[-1].facts
        return (
            f"stopped: {failed} of {self._gemms} GEMMs failed ({kinds}), more than "
            f"run.max_failure_share={self._max_failure_share:g}; the last one: {example.gemm_id}: {example.message}"
        )

    def _note(self, writing: Future[Path]) -> None:
        if writing.exception() is not None:
            self._failed.append(writing)

    def _check(self) -> None:
        if self._failed:
            self._failed[0].result()

    def _count(self, assignment: Assignment, failed: Sequence[GemmFacts]) -> None:
        self.bundles += 1
        self._gemms += len(assignment.bundle.gemms)
        for facts in failed:
            kept = self.skipped if facts.status in NO_FAILURE else self.failures
            kept.append(GemmFailure(bundle_id=assignment.bundle_id, facts=facts))
