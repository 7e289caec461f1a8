"""In what state a run is, and the command that a user would want next."""

import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from orchestrator.run_state import next_command, state

HERE = {"status": "running", "host": socket.gethostname()}


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"status": "finished"}, "finished"),
        ({}, "unknown"),
        ({**HERE, "pid": os.getpid()}, "running"),
        ({**HERE, "pid": 1}, "running"),  # another user's
        ({**HERE, "host": "another", "pid": 2**22 + 1}, "running"),  # of other hosts nothing is known here
        (HERE, "running"),
    ],
)
def test_the_state_is_the_manifests(manifest: dict[str, Any], expected: str) -> None:
    assert state(manifest) == expected


def test_a_run_whose_driver_is_gone_is_broken_off() -> None:
    assert state({**HERE, "pid": ended_process()}) == "broken off"


@pytest.mark.parametrize(
    ("found", "statuses", "words"),
    [
        ("finished", ["ok"], "report {run}"),
        ("finished", [], "report {run}"),
        ("finished", ["ok", "skipped", "unsupported"], "report {run}"),  # an answer, no failure
        ("finished", ["ok", "suspect"], "report {run}"),
        ("unknown", ["ok"], "report {run}"),
        ("finished", ["ok", "oom"], "resume={run} retry=failed"),
        ("finished", ["worker_died"], "resume={run} retry=failed"),
        ("unfinished", ["ok", "oom"], "resume={run}"),
        ("interrupted", ["ok"], "resume={run}"),
        ("failed", ["ok"], "resume={run}"),
        ("broken off", ["ok"], "resume={run}"),
        ("running", ["ok"], "status {run}"),
    ],
)
def test_the_next_command_is_what_the_run_needs(found: str, statuses: list[str], words: str) -> None:
    command = next_command(Path("my runs/it"), found, statuses)
    expected = [word.replace("{run}", "my runs/it") for word in words.split()]
    assert shlex.split(command) == ["python", "-m", "orchestrator", *expected]


@pytest.mark.parametrize("name", ["-x", "~"])
def test_a_directory_is_named_so_that_a_command_takes_it_for_one(name: str) -> None:
    assert shlex.split(next_command(Path(name, "run"), "finished", ["ok"]))[-1] == f"./{name}/run"
