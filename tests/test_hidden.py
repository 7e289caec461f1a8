"""Folders in which ``python -m orchestrator`` finds other packages of the names of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launching import ROOT


def helped(folder: Path) -> tuple[int, str, str]:
    """Ask for help in a folder: exit code, output and errors."""
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "--help"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def package(folder: Path) -> Path:
    folder.mkdir()
    (folder / "__init__.py").touch()
    return folder


def test_all_that_hides_our_packages_is_named_with_the_remedy(tmp_path: Path) -> None:
    conf, tasks = package(tmp_path / "conf"), tmp_path / "tasks.py"
    tasks.write_text("x = 1")
    advice = "use gemm-orchestrator, or another folder"
    assert helped(tmp_path) == (
        2,
        "",
        f"{conf} hides this program's own package conf: {advice}\n"
        f"{tasks} hides this program's own package tasks: {advice}\n",
    )


@pytest.mark.parametrize("folders", [("conf", "tasks"), ()])
def test_folders_that_are_no_packages_hide_nothing(tmp_path: Path, folders: tuple[str, ...]) -> None:
    for name in folders:
        (tmp_path / name).mkdir()
    code, output, errors = helped(tmp_path)
    assert (code, errors) == (0, "")
    assert "usage" in output
