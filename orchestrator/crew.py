"""The workers of a sweep: who is starting, who is ready, who holds the wrong device, and where to start more."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tasks.records import DeviceInfo

FRESH_S = 15.0
"""A start that takes longer waits for a device that is busy: it no longer counts as a worker that will come."""
TRIES = 3
"""Starts that may fail before a place is believed to have one usable device fewer."""
RETRY_S = 1.0
"""After a failed start the device may be free only a moment later."""


@dataclass(kw_only=True, slots=True)
class Member:
    """One worker."""

    name: str
    place: str
    since: float  # when its start was asked for; once it is placed, when it was
    placed: bool = False
    device: DeviceInfo | None = None
    unfit: bool = False


class Crew:
    """Book-keeping of workers. Holds no clock and no engine: ``now`` is handed in, seconds of any monotonic clock."""

    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.ready: dict[str, DeviceInfo] = {}  # workers that can measure, with their devices
        self.refused: dict[str, dict[str, str]] = {}  # place -> uuid -> name of devices that nobody asked for
        self.failures: list[str] = []  # messages of failed starts
        self._failed: Counter[str] = Counter()
        self._retry_at: dict[str, float] = {}

    def add(self, name: str, place: str, now: float) -> None:
        """Note a start that was asked for."""
        self.members[name] = Member(name=name, place=place, since=now)

    def remove(self, name: str) -> Member | None:
        """Forget a worker that has ended."""
        self.ready.pop(name, None)
        return self.members.pop(name, None)

    def fail(self, name: str, message: str, now: float) -> None:
        """Note a start that failed."""
        place = self.members.pop(name).place
        self.failures.append(message)
        self._failed[place] += 1
        self._retry_at[place] = now + RETRY_S

    def refuse(self, name: str, device: DeviceInfo) -> None:
        """Note a worker whose device nobody asked for. It keeps the device until nobody is starting.

        Otherwise its replacement would be given the same device again.
        """
        member = self.members[name]
        member.device, member.unfit = device, True
        self.refused.setdefault(member.place, {})[device.uuid] = device.gpu

    def accept(self, name: str, device: DeviceInfo) -> None:
        """Note a worker that can measure."""
        self.members[name].device = self.ready[name] = device

    @property
    def devices(self) -> frozenset[str]:
        """UUIDs of the devices of the ready workers."""
        return frozenset(device.uuid for device in self.ready.values())

    @property
    def starting(self) -> list[Member]:
        """Workers whose device is not known yet."""
        return [member for member in self.members.values() if member.device is None]

    def expected(self, now: float) -> int:
        """Workers that start now and will soon be ready, or have failed."""
        return sum(member.placed or now - member.since < FRESH_S for member in self.starting)

    def overdue(self, now: float, seconds: float) -> list[str]:
        """Workers whose process runs, but whose device has not opened within ``seconds``."""
        return [member.name for member in self.starting if member.placed and now - member.since > seconds]

    def waiting(self, now: float) -> int:
        """Workers that have had no process for so long that their device must be busy elsewhere."""
        return sum(not member.placed and now - member.since >= FRESH_S for member in self.starting)

    def releasable(self) -> list[str]:
        """Unfit workers that may let their device go."""
        return [] if self.starting else [member.name for member in self.members.values() if member.unfit]

    def room(self, places: Mapping[str, int]) -> dict[str, int]:
        """How many usable devices each place has, as far as is known now."""
        return {
            place: max(0, count - len(self.refused.get(place, ())) - self._failed[place] // TRIES)
            for place, count in places.items()
        }

    def starts(self, places: Mapping[str, int], need: int, now: float) -> list[str]:
        """Where to start workers, one entry each, spread over the places; at most ``need`` workers in all."""
        held = Counter(member.place for member in self.members.values() if not member.unfit)
        free = {
            place: room - held[place]
            for place, room in self.room(places).items()
            if self._retry_at.get(place, now) <= now and room > held[place]
        }
        layers = range(max(free.values(), default=0))
        spread = [place for layer in layers for place in free if free[place] > layer]
        return spread[: max(0, need - len(self.ready) - self.expected(now))]
