"""What a user sees while a sweep runs: one live display on a terminal, else plain log lines."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Protocol, TextIO, cast

from orchestrator.canary import is_canary
from orchestrator.figures import clock
from orchestrator.lasting import Lasting
from tasks.family import Bundle
from tasks.records import DeviceInfo, Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

log = logging.getLogger(__name__)

LINES = 8
"""Most workers that get a line each."""
LOG_EVERY_S = 5.0
REFRESH_EVERY_S = 0.2


class View(Protocol):
    """How a Board is shown."""

    def ready(self, device: DeviceInfo) -> None:
        """Introduce a device."""

    def update(self, board: "Board") -> None:
        """Show the present state, if it is time to."""

    def note(self, text: str) -> None:
        """Say one thing that stays."""


@dataclass(kw_only=True, slots=True)
class Line:
    """One worker as shown."""

    device: DeviceInfo
    bundle: Bundle | None = None
    state: str = "idle"
    rounds: int = 0
    since: float = 0.0

    def told(self, width: int | None = None) -> str:
        """Say which device does what: of the ways to say it the fullest that fits ``width``, else the shortest."""
        doing = f"{self.device.uuid[:12]} {self.state}" + (f", round {self.rounds}" if self.state == "measure" else "")
        what = f"{doing} {self.bundle.bundle_id}" if self.bundle else doing
        ways = (f"{self.device.gpu} {what}", what, f"{self.device.gpu} {doing}", doing)
        return next((way for way in ways if width is None or len(way) <= width), doing)


class Board:
    """The state of a sweep, fed by the driver; every change is offered to the view."""

    def __init__(self, bundles: Iterable[Bundle], view: View, clock: Callable[[], float] = time.monotonic) -> None:
        work = {bundle.bundle_id: bundle for bundle in bundles}.values()
        self.families = sum(len(bundle.families) for bundle in work)
        self.gemms = sum(len(bundle.gemms) for bundle in work)
        self.flops = sum(bundle.flops for bundle in work)
        self.families_done = self.gemms_done = self.gemms_failed = self.flops_done = 0
        self.workers: dict[str, Line] = {}
        self.busy_elsewhere = 0
        self._busy_s = 0.0  # worker-seconds spent on Bundles that have ended
        self._started = clock()
        self._view = view
        self._clock = clock
        self._lanes = 0

    def expect(self, bundles: Iterable[Bundle]) -> None:
        """Note the work of a GPU model, or of a device: the first one's is what there was thought to be."""
        work = list(bundles)
        if not self._lanes:
            self.families = self.gemms = self.flops = 0
        self._lanes += 1
        self.families += sum(len(bundle.families) for bundle in work)
        self.gemms += sum(len(bundle.gemms) for bundle in work)
        self.flops += sum(bundle.flops for bundle in work)

    def reopened(self, bundles: Iterable[Bundle]) -> None:
        """Note Bundles that ended and are to be measured again."""
        for bundle in bundles:
            self.families_done -= len(bundle.families)
            self.gemms_done -= len(bundle.gemms)
            self.flops_done -= bundle.flops

    def opened(self, worker: str, device: DeviceInfo) -> None:
        """Note a worker that is ready."""
        self.workers[worker] = Line(device=device)
        self._view.ready(device)

    def closed(self, worker: str) -> None:
        """Note a worker that has ended."""
        self.workers.pop(worker, None)

    def waiting(self, count: int) -> None:
        """Note how many GPUs are awaited that others use."""
        if count != self.busy_elsewhere:
            self.busy_elsewhere = count
            if count:
                self.note(waiting(count))

    def started(self, worker: str, bundle: Bundle) -> None:
        """Note a Bundle that was handed out."""
        line = self.workers[worker]
        line.bundle, line.state, line.rounds = bundle, "prepare", 0
        # What the previous Bundle of this worker took is counted here: its next work goes out before its end is noted.
        self._busy_s += self._taken(line)
        line.since = self._clock()

    def advanced(self, worker: str, progress: Progress) -> None:
        """Note how far a worker is."""
        line = self.workers[worker]
        line.state, line.rounds = progress.state, progress.rounds

    def ended(self, bundle: Bundle, *, failed: int, worker: str, counts: bool = True) -> None:
        """Note the end of a Bundle, of whose Gemms ``failed`` were not measured; a canary does not count."""
        if counts:
            self.families_done += len(bundle.families)
            self.gemms_done += len(bundle.gemms)
            self.gemms_failed += failed
            self.flops_done += bundle.flops
        line = self.workers.get(worker)
        if line is not None and line.bundle is not None and line.bundle.bundle_id == bundle.bundle_id:
            self._busy_s += self._taken(line)
            line.bundle, line.state, line.since = None, "idle", 0.0
        self.tick()

    def note(self, text: str) -> None:
        """Say one thing that stays."""
        self._view.note(text)

    def tick(self) -> None:
        """Offer the state to the view."""
        self._view.update(self)

    @property
    def eta_s(self) -> float | None:
        """Seconds left: the FLOPs to do, at the pace of the Bundles done, over the workers; None while unknown.

        A Bundle that takes longer than the pace has it leaves the others what they need.
        """
        if not self.flops_done or not self._busy_s or not self.workers:
            return None
        pace = self._busy_s / self.flops_done
        under_way = [(line, self._flops(line)) for line in self.workers.values() if line.bundle]
        waiting = max(0, self.flops - self.flops_done - sum(flops for _, flops in under_way))
        rest = sum(max(0.0, flops * pace - self._taken(line)) for line, flops in under_way)
        return (waiting * pace + rest) / len(self.workers)

    @property
    def elapsed_s(self) -> float:
        """Seconds since the sweep began."""
        return self._clock() - self._started

    def summary(self, width: int | None = None) -> str:
        """How much is done, and how long it will take: one line, or several no wider than ``width``."""
        failed = f" ({self.gemms_failed} not measured)" if self.gemms_failed else ""
        facts = [
            f"{self.families_done}/{self.families} families",
            f"{self.gemms_done}/{self.gemms} GEMMs{failed}",
            clock(self.elapsed_s),
            *([] if self.eta_s is None else [f"{clock(self.eta_s)} left"]),
        ]
        lines = facts[:1]
        for fact in facts[1:]:
            longer = f"{lines[-1]} · {fact}"
            if width is None or len(longer) <= width:
                lines[-1] = longer
            else:
                lines.append(fact)
        return "\n".join(lines)

    def lines(self, width: int | None = None) -> list[str]:
        """One line per worker, or one for all where there are many; what does not fit ``width`` is left out of them."""
        if len(self.workers) > LINES:
            states = Counter(line.state for line in self.workers.values())
            counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
            return [f"{len(self.workers)} devices: {counts}"]
        return [line.told(width) for line in self.workers.values()]

    def _flops(self, line: Line) -> int:
        """Of the sweep's FLOPs those that a worker is at: a canary is none of them."""
        return 0 if line.bundle is None or is_canary(line.bundle.bundle_id) else line.bundle.flops

    def _taken(self, line: Line) -> float:
        return self._clock() - line.since if line.since else 0.0


def waiting(count: int) -> str:
    """Say how many GPUs others use."""
    return f"waiting for {count} GPU{'s' * (count > 1)} busy elsewhere"


class LogView:
    """Plain log lines, few enough to read: a summary at most every 5 seconds, and at the end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()
        self._devices = 0
        self._families_done = 0

    def ready(self, device: DeviceInfo) -> None:
        """Log the first few devices by name."""
        self._devices += 1
        if self._devices <= LINES:
            log.info("%s %s on %s is ready", device.gpu, device.uuid, device.host)

    def update(self, board: Board) -> None:
        """Log the summary when it is time or all is done."""
        news = board.families_done > self._families_done
        if news and (board.families_done == board.families or self._clock() - self._last >= LOG_EVERY_S):
            self._last, self._families_done = self._clock(), board.families_done
            log.info("%s", board.summary())

    def note(self, text: str) -> None:
        """Log at once."""
        log.warning("%s", text)


class LiveView:
    """One rich Live display, drawn from the driver's own loop."""

    def __init__(self, console: "Console", clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        # No refresh thread: the driver's loop ticks at least twice a second.
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._clock = clock
        self._last = 0.0

    def ready(self, device: DeviceInfo) -> None:
        """Nothing to add: the display has a line for it."""

    def update(self, board: Board) -> None:
        """Draw, at most five times a second."""
        if self._clock() - self._last >= REFRESH_EVERY_S:
            self._last = self._clock()
            self.live.update(render(board, self.live.console.width), refresh=True)

    def note(self, text: str) -> None:
        """Print above the display."""
        self.live.console.print(text, style="yellow", markup=False, highlight=False)


def render(board: Board, width: int) -> "Table":
    """Draw a Board within ``width``: a bar by FLOPs, the summary, the workers."""
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    rows = [*board.summary(width).splitlines(), *board.lines(width)]
    if board.busy_elsewhere:
        rows.append(waiting(board.busy_elsewhere))
    table = Table.grid()  # a bar ends no line of its own
    table.add_row(ProgressBar(total=float(board.flops), completed=float(board.flops_done), width=min(40, width)))
    for row in rows:
        table.add_row(Text(row, no_wrap=True, overflow="ellipsis"))
    return table


@contextmanager
def show(bundles: Iterable[Bundle], console: "Console | None" = None) -> Iterator[Board]:
    """Show a sweep over ``bundles`` on ``console`` (by default standard error, as it must be in a sweep).

    Live on a terminal that can move its cursor, else by this module's logger.
    """
    from rich.console import Console

    console = console or Console(stderr=True)
    if not console.is_terminal or console.is_dumb_terminal:
        yield Board(bundles, LogView())
        return
    console.file = cast("IO[str]", Lasting(cast("TextIO", console.file)))
    view = LiveView(console)
    with view.live:
        yield Board(bundles, view)
