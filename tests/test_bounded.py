"""Texts that a user names are read no further than any such text goes."""

import os
import re
from pathlib import Path

import pytest

from orchestrator.bounded import MOST_BYTES, read_text
from orchestrator.config import compose
from orchestrator.errors import ConfigError, InvalidValueError
from orchestrator.report.layers import read_layers


def test_a_text_of_the_most_bytes_is_read_and_one_more_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("±±")
    assert read_text(path, 4) == "±±"
    with pytest.raises(InvalidValueError, match="has more than"):
        read_text(path, 3)


def test_a_pipe_is_read_to_its_end() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"space: {h: 64}")
    os.close(writing)
    try:
        assert compose(f"/dev/fd/{reading}").space.h == 64
    finally:
        os.close(reading)


def test_a_file_without_an_end_is_refused() -> None:
    told = re.escape(f"/dev/zero has more than {MOST_BYTES >> 20} MiB")
    with pytest.raises(InvalidValueError, match=f"--layer {told}"):
        read_layers(["/dev/zero"])
    with pytest.raises(ConfigError, match=told.replace(" has", ": has")):
        compose("/dev/zero")
