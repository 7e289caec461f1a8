"""When each device measures the canary, and whose Bundles are measured again because of what it showed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.canary import Reading
from orchestrator.queue import Assignment
from orchestrator.verdict import Verdict, judge
from tasks.family import Bundle
from tasks.records import DeviceInfo

EVERY = 20
"""Bundles between two canaries of a device."""

TRIES = 2
"""Canaries that may fail in a row before a device is left without."""


@dataclass(kw_only=True, slots=True)
class _Record:
    """What one device has done. ended: Bundles with the number of canaries before each, that nobody repeats yet."""

    device: DeviceInfo
    started: int = 0  # canaries begun: the number of the last one
    done: int = 0  # the number of the last one that was read
    failed: int = 0  # in a row
    since: int = 0  # Bundles since the last one
    ended: list[tuple[str, int]] = field(default_factory=list)
    confirmed: bool = True  # the last reading is good, or was repeated


class Canaries:
    """Schedules canaries and keeps their readings. Pure logic: no engine, no clock.

    bundle: what a canary measures. every: Bundles between two canaries; 0: none at all. earlier: readings of former
    drivers of the run.
    """

    def __init__(
        self,
        bundle: Callable[[], Bundle],
        every: int = EVERY,
        earlier: Sequence[Reading] = (),
        started: Mapping[str, int] | None = None,
    ) -> None:
        self._bundle = bundle
        self._every = every
        self._readings: dict[str, list[Reading]] = {}
        for reading in earlier:
            self._readings.setdefault(reading.model, []).append(reading)
        self._started = dict(started or {})
        self._records: dict[str, _Record] = {}
        self._running: dict[str, Assignment] = {}
        self._verdicts: dict[str, Verdict] = {}

    @property
    def running(self) -> int:
        """Canaries under way."""
        return len(self._running)

    def count(self, uuid: str) -> int | None:
        """How many canaries the device has done; None where it has none at all."""
        record = self._records.get(uuid)
        return record.done if record is not None and record.done else None

    def due(self, device: DeviceInfo, *, idle: bool) -> bool:
        """Whether the device's next work is a canary; idle: there is no other work for it."""
        record = self._record(device)
        if not self._every or record.failed >= TRIES:
            return False
        if not record.confirmed or record.since >= self._every:
            return True
        return record.since > 0 if idle else not record.done

    def room(self, device: DeviceInfo) -> int | None:
        """How many Bundles the device may measure before its next canary; None where it has none."""
        record = self._record(device)
        return None if not self._every or record.failed >= TRIES else max(0, self._every - record.since)

    def take(self, worker: str, device: DeviceInfo) -> Assignment:
        """Give ``worker`` a canary."""
        record = self._record(device)
        record.started += 1
        assignment = Assignment(
            bundle=self._bundle(), attempt=record.started, worker=worker, device=device.uuid, is_canary=True
        )
        self._running[worker] = assignment
        return assignment

    def assigned(self, worker: str) -> Assignment | None:
        """The canary that ``worker`` has now."""
        return self._running.get(worker)

    def lose(self, worker: str, device: DeviceInfo) -> None:
        """Note that a canary failed."""
        if self._running.pop(worker, None) is not None:
            self._record(device).failed += 1

    def finish(self, worker: str, device: DeviceInfo, seconds: float | None) -> Assignment | None:
        """Take a reading; None where the worker has no canary."""
        assignment = self._running.pop(worker, None)
        if assignment is None:
            return None
        record = self._record(device)
        if seconds is None:
            record.failed += 1
            return assignment
        record.done, record.failed, record.since = assignment.attempt, 0, 0
        reading = Reading(model=device.gpu, uuid=device.uuid, number=assignment.attempt, seconds=seconds)
        self._readings.setdefault(device.gpu, []).append(reading)
        self._verdicts[device.gpu] = judge(self._readings[device.gpu])
        # A bad reading after a good one is repeated at once: was it a moment, or is it the device?
        record.confirmed = not self._bad(device) or not record.confirmed
        return assignment

    def ended(self, assignment: Assignment, device: DeviceInfo) -> None:
        """Note a Bundle that the device has measured."""
        record = self._record(device)
        record.since += 1
        if assignment.canary is not None:
            record.ended.append((assignment.bundle_id, assignment.canary))

    def retired(self, device: DeviceInfo) -> bool:
        """Whether the device is bad now: it gets no more Bundles."""
        record = self._records.get(device.uuid)
        return record is not None and record.confirmed and self._bad(device)

    def suspects(self, gpu: str) -> list[tuple[DeviceInfo, list[str]]]:
        """Take out the Bundles of a model's devices that are to be measured again, by device."""
        verdict = self._verdicts.get(gpu)
        found: list[tuple[DeviceInfo, list[str]]] = []
        for uuid in () if verdict is None else verdict.bad_devices():
            record = self._records.get(uuid)
            if verdict is None or record is None:
                continue  # it measured for an earlier driver of the run
            bad = [entry for entry in record.ended if verdict.suspect(uuid, entry[1])]
            if bad:
                record.ended = [entry for entry in record.ended if entry not in bad]
                found.append((record.device, [bundle_id for bundle_id, _ in bad]))
        return found

    def any_bad(self, gpu: str) -> bool:
        """Whether a device of the model is bad, or was."""
        verdict = self._verdicts.get(gpu)
        return verdict is not None and bool(verdict.bad)

    def reason(self, device: DeviceInfo) -> str:
        """Say in what way the device is bad, or ""."""
        verdict = self._verdicts.get(device.gpu)
        return "" if verdict is None else verdict.bad_devices().get(device.uuid, "")

    def _bad(self, device: DeviceInfo) -> bool:
        verdict, record = self._verdicts.get(device.gpu), self._records[device.uuid]
        return verdict is not None and record.done > 0 and verdict.suspect(device.uuid, record.done)

    def _record(self, device: DeviceInfo) -> _Record:
        if device.uuid not in self._records:
            self._records[device.uuid] = _Record(device=device, started=self._started.get(device.uuid, 0))
        return self._records[device.uuid]
