"""``constraints.txt`` pins whatever an installation for development brings."""

from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SETS = ("", "dev", "report")
"""The extras that are installed; packages of others ask for none of theirs, or for a few by name."""


def needed(name: str, extras: frozenset[str], seen: set[tuple[str, frozenset[str]]]) -> None:
    """Collect what a distribution asks for on this platform, and what those ask for."""
    if (name, extras) in seen:
        return
    seen.add((name, extras))
    for text in metadata.requires(name) or []:
        wanted = Requirement(text)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            needed(canonicalize_name(wanted.name), frozenset(wanted.extras), seen)


def test_every_package_that_is_installed_with_the_project_has_its_version() -> None:
    pinned = {canonicalize_name(line.split("==")[0]) for line in (ROOT / "constraints.txt").read_text().split()}
    seen: set[tuple[str, frozenset[str]]] = set()
    needed("gemm-orchestrator", frozenset(SETS), seen)
    asked = {name for name, _ in seen} - {"gemm-orchestrator", "setuptools"}  # pip's own affair
    assert {"ray", "torch", "matplotlib", "moto"} <= asked
    assert sorted(name for name in asked - pinned if not name.startswith(("nvidia-", "triton", "cuda-"))) == []
