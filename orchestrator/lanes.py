"""The work of a whole fleet: one queue of Bundles for each GPU model, or for each device."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from orchestrator.queue import BundleQueue
from tasks.family import Bundle
from tasks.records import DeviceInfo


@dataclass(frozen=True, kw_only=True, slots=True)
class Earlier:
    """What earlier drivers have left in a run.

    ended: by lane, ids of the Bundles that need no more work. attempts: by Bundle id, the highest number there is.
    """

    ended: Mapping[str, frozenset[str]] = field(default_factory=dict)
    attempts: Mapping[str, int] = field(default_factory=dict)


def lane_of(device: DeviceInfo, placement: str) -> str:
    """Return whose work ``device`` does: its model's, or its own."""
    return device.gpu if placement == "split" else device.uuid


class Lanes:
    """Opens a lane, with all Bundles that earlier drivers have not ended, when its first device comes.

    on_open: hears the Bundles of a lane that opens.
    """

    def __init__(
        self,
        bundles: Iterable[Bundle],
        placement: str = "split",
        earlier: Earlier | None = None,
        on_open: Callable[[list[Bundle]], None] = lambda bundles: None,
    ) -> None:
        self._bundles = list({bundle.bundle_id: bundle for bundle in bundles}.values())
        self._placement = placement
        self._earlier = earlier or Earlier()
        self._on_open = on_open
        self._queues: dict[str, BundleQueue] = {}

    def of(self, device: DeviceInfo) -> BundleQueue:
        """Return the queue that ``device`` takes from."""
        lane = lane_of(device, self._placement)
        if lane not in self._queues:
            ended = self._earlier.ended.get(lane, frozenset())
            work = [bundle for bundle in self._bundles if bundle.bundle_id not in ended]
            self._queues[lane] = BundleQueue(work, earlier=self._earlier.attempts)
            self._on_open(work)
        return self._queues[lane]

    def items(self) -> Iterable[tuple[str, BundleQueue]]:
        """The lanes that have been opened: a GPU model's name or a device's UUID, and its queue."""
        return self._queues.items()

    def __iter__(self) -> Iterator[BundleQueue]:
        return iter(self._queues.values())

    @property
    def unfinished(self) -> int:
        """Bundles that have not ended; before the first device is there, those of one lane."""
        if not self._queues:
            return len(self._bundles)
        return sum(queue.unfinished for queue in self)

    @property
    def waiting(self) -> int:
        """Bundles that no worker has."""
        return sum(queue.waiting for queue in self) if self._queues else len(self._bundles)

    @property
    def running(self) -> int:
        """Bundles that a worker has."""
        return sum(queue.running for queue in self)
