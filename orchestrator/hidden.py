"""Whether the folder that a command runs in hides packages of this program: ``python -m`` looks there first."""

import sys
from importlib.util import find_spec
from pathlib import Path

OWN = ("conf", "tasks")
"""The packages beside ``orchestrator``: other programs have some of these names."""


def hidden() -> int:
    """Say what hides which package; return the exit code, 0 where nothing does."""
    hides = {name: path for name in OWN if (path := _instead(name))}
    for name, path in hides.items():
        sys.stderr.write(f"{path} hides this program's own package {name}: use gemm-orchestrator, or another folder\n")
    return 2 if hides else 0


def _instead(name: str) -> Path | None:
    """Return what Python takes for one of our packages, None where it is ours."""
    own = Path(__file__).parent.parent / name / "__init__.py"
    spec = find_spec(name)
    if spec is None or spec.origin is None or not own.exists():
        return None
    found = Path(spec.origin)
    if found.exists() and found.samefile(own):
        return None
    return found.parent if found.name == "__init__.py" else found
