"""The Gemms of a Bundle that a device has made ready, more of them as they are wanted."""

from collections.abc import Callable, Iterable

from tasks.care import Care
from tasks.device import Device, Visit
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.records import GemmFacts, Progress
from tasks.settings import Timing


class Readiness:
    """visits: what can be measured. failures: facts of what cannot. prepare_s, soak_s: what making ready has taken."""

    def __init__(
        self, device: Device, bundle: Bundle, timing: Timing, report: Callable[[Progress], None], care: Care
    ) -> None:
        self.visits: dict[Gemm, Visit] = {}
        self.failures: list[GemmFacts] = list(care.lost)
        self.prepare_s = self.soak_s = 0.0
        self._device, self._bundle, self._timing, self._report, self._care = device, bundle, timing, report, care
        self._begin = device.clock()
        self._known: set[Gemm] = set()

    def make(self, gemms: Iterable[Gemm]) -> None:
        """Make those ready that are not, each once, and soak the device if nothing has yet.

        Raises:
            torch.OutOfMemoryError: memory is to be tried again, as the Bundle's care says.
        """
        wanted = tuple(gemm for gemm in gemms if gemm not in self._known)
        begin = self._device.clock()
        further = bool(self._known)
        self._known.update(wanted)
        visits, failed = self._device.prepare(
            self._care.wanted(wanted), self._timing, self._prepared, self._care, self._trying, further=further
        )
        self.visits.update(visits)
        self.failures.extend(failed)
        self.prepare_s += self._device.clock() - begin
        if self.visits and not self._device.soaked and self._timing.power == "sustained":
            self._soak()

    def live(self, gemms: Iterable[Gemm]) -> list[int]:
        """Indices in the Bundle of those of ``gemms`` that can be measured."""
        wanted = set(gemms) & self.visits.keys()
        return [i for i, gemm in enumerate(self._bundle.gemms) if gemm in wanted]

    def _soak(self) -> None:
        self._report(Progress(bundle_id=self._bundle.bundle_id, state="soak"))
        begin = self._device.clock()
        self._device.soak(self.visits[max(self.visits, key=lambda gemm: gemm.flops)], self._timing, self._begin)
        self._device.soaked = True
        self.soak_s += self._device.clock() - begin

    def _prepared(self, done: int) -> None:
        self._report(Progress(bundle_id=self._bundle.bundle_id, state="prepare", gemms=len(self.visits) + done))

    def _trying(self, gemm: Gemm) -> None:
        self._report(Progress(bundle_id=self._bundle.bundle_id, state="try", trying=gemm.gemm_id))
