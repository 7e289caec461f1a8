"""Commands run in this process, as the command line would."""

import json
from typing import Any

import pytest

from orchestrator import cli


def called(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command; argparse leaves by SystemExit."""
    try:
        code = cli.main(words)
    except SystemExit as exit:
        code = int(exit.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    """What a command that succeeds prints with ``--json``."""
    code, out, err = called(capsys, *words, "--json")
    assert (code, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found
