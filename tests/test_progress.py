"""What a user sees of a sweep."""

import io
import logging
import re
import sys

import pytest
from rich.console import Console

from orchestrator.progress import LOG_EVERY_S, Board, LiveView, LogView, render, show
from tasks.records import DeviceInfo, Progress
from tests.fakes import FakeClock, bundle, device_info
from tests.pty import coloured, in_terminal, plain


class Silent:
    """Shows nothing, but keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def ready(self, device: DeviceInfo) -> None:
        pass

    def update(self, board: Board) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)


def board(clock: FakeClock, workers: int = 1, view: Silent | LogView | None = None) -> Board:
    made = Board([bundle(1), bundle(2), bundle(5), bundle(5)], view or Silent(), clock)
    for index in range(workers):
        made.opened(f"w{index}", device_info(index))
    return made


def test_counts_each_bundle_once() -> None:
    found = board(FakeClock())
    assert (found.families, found.gemms, found.flops) == (3, 6, bundle(8).flops)


def test_time_left_is_weighted_by_flops() -> None:
    clock = FakeClock(now=100.0)
    found = board(clock, workers=2)
    assert found.eta_s is None
    found.started("w0", bundle(5))
    clock.now += 10
    found.ended(bundle(5), failed=0, worker="w0")
    # 5/8 of the FLOPs took one worker 10 s, so the other 3/8 take two workers 3 s.
    assert found.eta_s == pytest.approx(3.0)
    found.started("w1", bundle(2))
    clock.now += 2
    assert found.eta_s == pytest.approx(2.0)
    # The two units under way were to take 4 s; they take longer. The last unit needs its 2 s all the same.
    clock.now += 20
    assert found.eta_s == pytest.approx(1.0)


def test_time_counts_when_the_next_work_went_out_before_the_end_was_noted() -> None:
    clock = FakeClock(now=100.0)
    found = board(clock)
    found.started("w0", bundle(5))
    clock.now += 10
    found.started("w0", bundle(2))
    found.ended(bundle(5), failed=0, worker="w0")
    assert found.eta_s == pytest.approx(6.0)
    assert found.workers["w0"].bundle == bundle(2)


def test_summary_says_what_is_done_and_what_failed() -> None:
    clock = FakeClock(now=100.0)
    found = board(clock)
    found.started("w0", bundle(5))
    clock.now += 65
    found.ended(bundle(5), failed=1, worker="w0")
    assert found.summary() == "1/3 families · 2/6 GEMMs (1 not measured) · 0:01:05 · 0:00:39 left"


def test_few_workers_have_a_line_each_and_many_have_one() -> None:
    clock = FakeClock(now=1.0)
    few = board(clock, workers=2)
    few.started("w0", bundle(5))
    few.advanced("w0", Progress(bundle_id=bundle(5).bundle_id, state="measure", rounds=7))
    assert few.lines() == [
        "NVIDIA H200 GPU-fake-0 measure, round 7 mlp_up-h5-tp1-b1-s32-fp16",
        "NVIDIA H200 GPU-fake-1 idle",
    ]
    many = board(clock, workers=9)
    many.started("w3", bundle(5))
    assert many.lines() == ["9 devices: 8 idle, 1 prepare"]


def test_waiting_is_said_once_per_number() -> None:
    view = Silent()
    found = board(FakeClock(), view=view)
    for count in (0, 3, 3, 1, 0):
        found.waiting(count)
    assert view.notes == ["waiting for 3 GPUs busy elsewhere", "waiting for 1 GPU busy elsewhere"]


def test_a_worker_that_ended_is_shown_no_more() -> None:
    found = board(FakeClock(), workers=2)
    found.closed("w0")
    assert list(found.workers) == ["w1"]


def test_log_lines_are_few(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "orchestrator.progress")
    clock = FakeClock(now=1.0)
    work = [bundle(h) for h in range(1, 1001)]
    found = Board(work, LogView(clock), clock)
    for index in range(20):
        found.opened(f"w{index}", device_info(index))
    for item in work:
        clock.now += 0.05
        found.ended(item, failed=0, worker="w0")
    messages = [record.getMessage() for record in caplog.records]
    assert sum("is ready" in message for message in messages) == 8
    assert len(messages) <= 8 + 50 / LOG_EVERY_S + 1
    assert messages[-1].startswith("1000/1000 families")


def test_no_terminal_means_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    with show([bundle(1)], Console(file=io.StringIO())) as found:
        found.note("a note")
    assert [record.getMessage() for record in caplog.records] == ["a note"]


def test_a_terminal_gets_one_live_display_that_fits() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=60, color_system=None)
    with show([bundle(1)], console) as found:
        found.opened("w0", device_info(0))
        found.started("w0", bundle(1))
        found.waiting(2)
        found.tick()
    shown = screen.getvalue()
    assert "0/1 families · 0/2 GEMMs" in shown
    assert "waiting for 2 GPUs busy elsewhere" in shown
    assert "GPU-fake-0 prepare mlp_up-h1-tp1" in shown
    console = Console(width=60, record=True, file=io.StringIO())
    console.print(render(found, 60))
    lines = console.export_text().splitlines()
    assert max(map(len, lines)) <= 60
    assert lines[1].startswith("0/1 families · 0/2 GEMMs · ")  # below the bar, not cut off behind it


def test_the_live_display_is_drawn_at_most_five_times_a_second() -> None:
    clock = FakeClock(now=10.0)
    view = LiveView(Console(file=io.StringIO(), force_terminal=True), clock)
    drawn: list[float] = []
    view.live.update = lambda *_, **__: drawn.append(clock.now)  # type: ignore[method-assign]
    found = Board([bundle(1)], view, clock)
    for _ in range(100):
        clock.now += 0.05
        found.tick()
    assert 20 <= len(drawn) <= 25


WORKING = """
import logging, sys
from orchestrator.progress import show
from tasks.records import Progress
from tests.fakes import bundle, device_info
logging.basicConfig(level=logging.INFO, format="%(message)s")
workers = int(sys.argv[1])
work = [bundle(4096 + i) for i in range(1000)]
with show(work) as board:
    for i in range(workers):
        board.opened(f"w{i}", device_info(f"{i}a264e9-2d49", gpu="NVIDIA H100 80GB HBM3"))
        board.started(f"w{i}", work[i])
        board.advanced(f"w{i}", Progress(bundle_id=work[i].bundle_id, state="measure", rounds=1234))
    board.families_done, board.gemms_done, board.gemms_failed = 999, 1999, 123
    board.flops_done, board._busy_s = board.flops - 1, 1.0
    board._view._last = -1.0
    board.tick()
    board.note("a note")
"""


@pytest.mark.parametrize("columns", [80, 60, 40])
@pytest.mark.parametrize("workers", [1, 8, 9])
def test_the_display_fits_a_terminal_and_cuts_nothing(workers: int, columns: int) -> None:
    code, drawn = in_terminal([sys.executable, "-c", WORKING, str(workers)], columns=columns)
    assert code == 0, drawn
    lines = plain(drawn)
    assert max(map(len, lines)) <= columns
    assert "…" not in drawn
    assert coloured(drawn)  # the bar
    text = " ".join(lines)
    assert "999/1000 families" in text
    assert "1999/2000 GEMMs (123 not measured)" in text
    assert re.search(r"0:00:0\d left", text)
    own = {line.split("GPU-fake-")[1][0] for line in lines if "measure, round 1234" in line}
    assert own == ({str(i) for i in range(workers)} if workers <= 8 else set())
    assert ("9 devices: 9 measure" in text) == (workers == 9)
    ids = [word for line in lines for word in line.split() if word.startswith("mlp_up-")]
    assert all(word.endswith("-fp16") for word in ids)
    assert bool(ids) == (columns == 80 and workers <= 8)
    assert "a note" in text


def test_no_color_holds_for_the_display_too() -> None:
    _, drawn = in_terminal([sys.executable, "-c", WORKING, "1"], columns=80, NO_COLOR="1")
    assert "999/1000 families" in drawn
    assert not coloured(drawn)


def test_a_dumb_terminal_gets_log_lines() -> None:
    code, drawn = in_terminal(
        [sys.executable, "-c", WORKING.replace("board._view._last", "_"), "1"], columns=80, TERM="dumb"
    )
    assert (code, "\x1b" in drawn) == (0, False)
    assert [line for line in plain(drawn) if line] == [
        "NVIDIA H100 80GB HBM3 GPU-fake-0a264e9-2d49 on fake is ready",
        "a note",
    ]
