"""What two commands must have in common for one to go on with the other's workers: code, versions, environment."""

import hashlib
import importlib.metadata
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

PACKAGES = ("torch", "ray", "numpy", "pyarrow")
DRIVER = Path("/proc/driver/nvidia/version")
VARIABLES = (
    *("CUDA", "CUBLAS", "CUDNN", "NVIDIA", "NCCL", "TORCH", "PYTORCH", "PYTHON", "OMP_", "MKL_", "KMP_", "GOMP_"),
    *("OPENBLAS", "LD_", "HIP", "HSA", "ROC", "GPU_", "RAY_"),
)
"""How the names begin of variables that change how a device is seen or how it works."""


def likeness(environment: Mapping[str, str]) -> dict[str, str]:
    """Return by name what must be equal; the code and the variables as digests."""
    packages = {name: _version(name) for name in PACKAGES}
    return {
        "python": f"{sys.executable} {sys.version}",
        **packages,
        "driver": DRIVER.read_text() if DRIVER.exists() else "",
        "code": _digest(_code()),
        "environment": _digest(_variables(environment)),
    }


def unlike(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the names in which two differ."""
    return [name for name in {**one, **other} if one.get(name) != other.get(name)]


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _variables(environment: Mapping[str, str]) -> Iterator[str]:
    yield from (f"{name}={value}" for name, value in sorted(environment.items()) if name.startswith(VARIABLES))


def _code() -> Iterator[str]:
    """Every file of this project that a worker could import, with its size and when it was changed last."""
    import orchestrator
    import tasks

    for package in (orchestrator, tasks):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            facts = os.stat(path)
            yield f"{path} {facts.st_size} {facts.st_mtime_ns}"


def _digest(lines: Iterator[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
