"""One node looked at by a process that runs on it: versions, load, GPUs, and what torch makes of them."""

import importlib.metadata
import os
import platform
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tasks.gpu_facts import GpuFacts, NvmlFacts, read_nvml
from tasks.probe import TorchFacts, check_torch

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""What hides GPUs from a process. Ray sets these inside its workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeFacts:
    """One node. Unknown facts are None.

    gpus: all of them by NVML; else, on ROCm, those that torch sees. nvml_error: why NVML tells nothing.
    unreadable: GPUs that NVML counts and cannot read. visible_devices: what hides GPUs from the node's workers.
    cpus: of the host; usable_cpus: those that this process may run on. load: runnable processes, mean of a minute.
    """

    host: str
    python: str
    ray: str | None
    pyarrow: str | None
    numpy: str | None
    torch: TorchFacts
    driver: str | None
    cuda_driver: str | None
    gpus: tuple[GpuFacts, ...]
    nvml_error: str | None
    unreadable: tuple[str, ...]
    visible_devices: str | None
    cpus: int
    usable_cpus: int
    load: float
    niceness: int


def inspect_node(modules: Sequence[str] = (), timeout_s: float = 60.0) -> NodeFacts:
    """Look at the node that this process runs on; ``modules`` are imported in a process of their own.

    timeout_s: seconds that torch is given to start and to use every GPU.
    """
    load = os.getloadavg()[0]  # before anything is started here
    nvml = read_nvml()  # before torch, whose own process would be seen on the GPUs
    environment = unhidden()
    torch = check_torch(modules, environment, timeout_s)
    return NodeFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        ray=_version("ray"),
        pyarrow=_version("pyarrow"),
        numpy=_version("numpy"),
        torch=torch,
        driver=nvml.driver,
        cuda_driver=nvml.cuda_driver,
        gpus=_gpus(nvml, torch),
        nvml_error=nvml.error,
        unreadable=nvml.unreadable,
        visible_devices=next((environment[name] for name in VISIBLE if name in environment), None),
        cpus=os.cpu_count() or 1,
        usable_cpus=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        load=load,
        niceness=os.nice(0),
    )


def unhidden() -> dict[str, str]:
    """Return this process's environment with the visible devices that it was started with, not those of this task."""
    started = _initial_environment()
    rest = {name: value for name, value in os.environ.items() if name not in VISIBLE}
    return rest | {name: started[name] for name in VISIBLE if name in started}


def _initial_environment() -> dict[str, str]:
    """What the kernel keeps of how the process was started; what was set since then is not in it."""
    with suppress(OSError):
        entries = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
        return {name: value for name, found, value in (entry.partition("=") for entry in entries) if found}
    return dict(os.environ)


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus(nvml: NvmlFacts, torch: TorchFacts) -> tuple[GpuFacts, ...]:
    if not nvml.error:
        return nvml.gpus
    return tuple(
        GpuFacts(uuid=device.uuid, name=device.name, memory_bytes=device.memory_bytes) for device in torch.devices
    )
