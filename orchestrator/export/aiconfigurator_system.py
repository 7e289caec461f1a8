"""A system as aiconfigurator ships it: ``ROOT/NAME.yaml`` and the folder that its ``data_dir`` names."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from orchestrator.errors import ExportError
from orchestrator.reachable import is_dir, is_file
from orchestrator.yaml_text import TAG_ERRORS

_DATA_DIR = re.compile(r"^data_dir:[^#\n]*", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class ShippedSystem:
    """A system on disk, which is only read. text: its description; data: the folder of its tables."""

    description: Path
    text: str
    data: Path
    table: str

    @property
    def name(self) -> str:
        """What it is called."""
        return self.description.stem

    @property
    def sources(self) -> tuple[Path, Path]:
        """Where it lies."""
        return self.description, self.data

    def place(self, framework: str | None, version: str | None) -> tuple[str, str]:
        """Return framework and version of the GEMM table that is meant, or raise ExportError with those there are."""
        there = [path.parent.relative_to(self.data / "gemm").parts for path in self._tables()]
        meant = [pair for pair in there if framework in (None, pair[0]) and version in (None, pair[1])]
        if len(meant) == 1:
            return meant[0][0], meant[0][1]
        listed = ", ".join(f"--framework {pair[0]} --version {pair[1]}" for pair in (meant or there))
        which = "several GEMM tables, choose one" if meant else "no such GEMM table; it has"
        raise ExportError(f"{self.name} has {which}: {listed or 'none'}")

    def copied(self, name: str, *, without: str) -> dict[str, bytes]:
        """Return its files by their path in a copy called ``name``, without the folder ``without`` of its tables."""
        left = self.data / without
        files = {
            f"data/{name}/{path.relative_to(self.data).as_posix()}": _read(path)
            for path in sorted(self.data.rglob("*"))
            if path.is_file() and not path.is_relative_to(left)
        }
        # Only this line changes: the rest, its notes and its licence among it, is the system's own.
        files[f"{name}.yaml"] = _DATA_DIR.sub(f"data_dir: data/{name} ", self.text, count=1).encode()
        return files

    def _tables(self) -> Sequence[Path]:
        return sorted(self.data.glob(f"gemm/*/*/{self.table}"))


def shipped(where: Path, table: str) -> ShippedSystem:
    """Open the system that ``where`` means: ``ROOT/NAME``, ``ROOT/NAME.yaml`` or ``ROOT/data/NAME``.

    Raises:
        ExportError: there is none, or it is no system.
    """
    named = (where.with_name(f"{where.name}.yaml"), where.parent.parent / f"{where.name}.yaml") if where.name else ()
    description = next((path for path in (where, *named) if path.suffix == ".yaml" and is_file(path)), None)
    if description is None:
        raise ExportError(
            f"--into {where}: no system; give ROOT/NAME of a file ROOT/NAME.yaml with its folder of tables"
        )
    text = _read(description).decode(errors="replace")
    try:
        facts = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError, *TAG_ERRORS) as error:  # ValueError: a date that is none
        raise ExportError(f"--into {where}: {description} cannot be read: {error}") from error
    folder = facts.get("data_dir") if isinstance(facts, dict) else None
    if not isinstance(folder, str) or not _DATA_DIR.search(text) or not is_dir(description.parent / folder):
        raise ExportError(f"--into {where}: {description} is no system: its data_dir names no folder beside it")
    return ShippedSystem(description=description, text=text, data=description.parent / folder, table=table)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ExportError(f"--into: cannot read {path}: {error.strerror or error}") from error
