"""What torch makes of this node, found out in a process of its own: CUDA that fails there spoils nobody else.

``check_torch`` starts ``python -m tasks.probe MODULE ...``, which prints one line of JSON.
"""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

SPINS = 16
SPIN_CYCLES = 50_000_000
"""A spin takes some 25 ms; the first ones find the clock on its way up."""

DETAIL_LENGTH = 500


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchDevice:
    """One device that torch sees. error: why it cannot be used.

    busy_clock_mhz: SM clock under a kernel that only counts cycles, and so is held back by no power limit.
    """

    uuid: str
    name: str
    memory_bytes: int
    error: str | None = None
    busy_clock_mhz: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchFacts:
    """What torch sees here. error: why it sees no GPU; modules: those that cannot be imported, with the reason."""

    version: str | None = None
    runtime: str | None = None  # "CUDA 13.0", "ROCm 6.4"
    cpu: str | None = None
    error: str | None = None
    devices: tuple[TorchDevice, ...] = ()
    modules: tuple[tuple[str, str], ...] = ()


def check_torch(modules: Sequence[str], environment: Mapping[str, str], timeout_s: float) -> TorchFacts:
    """Import torch and ``modules`` and use every GPU, in a process with this environment."""
    # First what this very package was imported from, which the working directory (an empty entry) may have been.
    path = os.pathsep.join([str(Path(__file__).resolve().parents[1]), *(entry for entry in sys.path if entry)])
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "tasks.probe", *modules],
            env={**environment, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return TorchFacts(error=f"torch gave no answer within {timeout_s:g} s")
    if done.returncode:
        said = done.stderr.strip()[-DETAIL_LENGTH:]
        return TorchFacts(error=f"the process that tries torch ended with {done.returncode}: {said}")
    return _from_json(done.stdout.splitlines()[-1])  # libraries may have printed before


def _from_json(line: str) -> TorchFacts:
    facts: dict[str, Any] = json.loads(line)
    devices = tuple(TorchDevice(**device) for device in facts.pop("devices", ()))
    modules = tuple((name, reason) for name, reason in facts.pop("modules", ()))
    return TorchFacts(**facts, devices=devices, modules=modules)


def probe(modules: Sequence[str]) -> dict[str, Any]:
    """Return the fields of TorchFacts."""
    failed = [(name, reason) for name in modules if (reason := _import_fault(name))]
    if fault := _import_fault("torch"):
        return {"error": f"torch cannot be imported: {fault}", "modules": failed}
    import torch

    from tasks.cpu import cpu_name

    version: Any = torch.version
    runtime = f"ROCm {version.hip}" if version.hip else f"CUDA {version.cuda}" if version.cuda else None
    facts = {"version": str(torch.__version__), "runtime": runtime, "cpu": cpu_name(), "modules": failed}
    if runtime is None:
        return {**facts, "error": "this torch is built for the CPU only"}
    try:
        torch.cuda.init()
    except (RuntimeError, AssertionError) as error:
        return {**facts, "error": _one_line(error)}
    return {**facts, "devices": [_device(index) for index in range(torch.cuda.device_count())]}


def _import_fault(name: str) -> str | None:
    try:
        importlib.import_module(name)
    except Exception as error:
        # The boundary of the process: whatever a module does when it is imported is what is asked about.
        return _one_line(error)
    return None


def _device(index: int) -> dict[str, Any]:
    import torch

    facts: Any = torch.cuda.get_device_properties(index)
    uuid = str(getattr(facts, "uuid", ""))
    found = {
        "uuid": uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}",
        "name": facts.name,
        "memory_bytes": facts.total_memory,
    }
    try:
        torch.ones(1, device=f"cuda:{index}").add_(1).item()
        return {**found, "busy_clock_mhz": None if torch.version.hip else _busy_clock_mhz(index)}
    except RuntimeError as error:
        return {**found, "error": _one_line(error)}


def _busy_clock_mhz(index: int) -> float:
    """Count SM cycles against time."""
    import torch

    sleep: Any = torch.cuda._sleep  # spins until the SM's clock64() has advanced so far
    with torch.cuda.device(index):
        events = [torch.cuda.Event(enable_timing=True) for _ in range(SPINS + 1)]
        events[0].record()
        for event in events[1:]:
            sleep(SPIN_CYCLES)
            event.record()
        torch.cuda.synchronize()
    fastest_ms: float = min(start.elapsed_time(end) for start, end in pairwise(events))
    return SPIN_CYCLES / fastest_ms / 1e3


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:DETAIL_LENGTH]


if __name__ == "__main__":
    sys.stdout.write(json.dumps(probe(sys.argv[1:])) + "\n")
