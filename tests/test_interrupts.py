"""Signals, in processes of their own."""

import signal
import subprocess
import sys
import time
from types import FrameType

import pytest

from orchestrator.config import compose
from orchestrator.interrupts import held_back
from tests.jobs import ROOT

SCRIPT = """
import signal, sys, time
from orchestrator.interrupts import interruptible, starting
{before}
with {what}() as interrupts:
    print("ready", flush=True)
    try:
        for _ in range(150):
            time.sleep(0.01)
    except KeyboardInterrupt:
        print("stopped")
print(interrupts.count if interrupts else "through")
"""


def struck(what: str, *numbers: signal.Signals, before: str = "") -> tuple[int, list[str], str]:
    """Run the script, send it signals, return its exit code and what it has printed."""
    script = SCRIPT.format(what=what, before=before)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for number in numbers:
            process.send_signal(number)
            time.sleep(0.2)
        out, err = process.communicate(timeout=30)
    return process.returncode, out.split(), err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_is_a_request(number: signal.Signals) -> None:
    assert struck("interruptible", number) == (0, ["1"], "")


def test_two_stop_what_is_under_way() -> None:
    assert struck("interruptible", signal.SIGINT, signal.SIGTERM) == (0, ["stopped", "2"], "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_an_ignored_signal_stays_ignored(number: signal.Signals) -> None:
    ignore = f"signal.signal({int(number)}, signal.SIG_IGN)"
    assert struck("interruptible", number, number, before=ignore) == (0, ["0"], "")


@pytest.mark.parametrize("handler", ["signal.default_int_handler", "lambda *_: sys.exit(15)", "lambda *_: None"])
def test_while_ray_starts_a_signal_ends_the_process_whatever_else_handles_it(handler: str) -> None:
    before = f"signal.signal(signal.SIGTERM, {handler})"
    code, out, err = struck("starting", signal.SIGTERM, before=before)
    assert (code, err) == (130, "interrupted\n")
    assert "through" not in out


def test_a_closed_terminal_waits_until_ray_has_started() -> None:
    before = "signal.signal(signal.SIGHUP, lambda *_: print('closed'))"
    code, out, _ = struck("starting", signal.SIGHUP, before=before)
    assert (code, out) == (0, ["closed", "through"])


def test_what_is_started_meanwhile_outlives_the_terminal() -> None:
    script = (
        "import subprocess\nfrom orchestrator.interrupts import starting\n"
        "with starting():\n    subprocess.run(['sh', '-c', 'kill -HUP $$; echo alive'])\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert (done.returncode, done.stdout) == (0, "alive\n")


@pytest.mark.parametrize("times", [1, 2])
def test_a_signal_waits_until_what_holds_it_back_is_closed_and_a_second_does_not(times: int) -> None:
    passed: list[int] = []

    @held_back()
    def strike() -> None:
        for number in range(times):
            signal.raise_signal(signal.SIGINT)
            passed.append(number)

    with pytest.raises(KeyboardInterrupt):
        strike()
    assert passed == [0]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupt_while_a_configuration_is_composed_is_no_wrong_value() -> None:
    """OmegaConf's own clean-up made an error of it, so that a sweep ended as if its arguments were wrong."""
    places: list[str] = []

    def strike(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_name == "read_write" and not places:
            places.append(frame.f_code.co_filename)
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(strike)
    try:
        with pytest.raises(KeyboardInterrupt):
            compose("cpu", ["space.tp=1,2"])
    finally:
        sys.setprofile(None)
    assert "omegaconf" in places[0]
