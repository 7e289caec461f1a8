"""Which one GPU a verb measures on that runs without Ray: it is settled before torch looks."""

import os
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from orchestrator.errors import ClusterError

if TYPE_CHECKING:
    from tasks.device import Device
    from tasks.gpu_facts import GpuFacts

VARIABLE = "CUDA_VISIBLE_DEVICES"
ADVICE = f"name one by {VARIABLE}, on ROCm by HIP_VISIBLE_DEVICES"


def choose(gpus: tuple["GpuFacts", ...], environment: MutableMapping[str, str]) -> str | None:
    """Leave one GPU visible: of those named by the user the first, else the first that nobody computes on.

    Returns what was chosen, None where nothing was to choose. Raises ClusterError where all are in use.
    """
    named = environment.get(VARIABLE)
    if named is not None:
        first, more, _ = named.partition(",")
        if not more:
            return None
        environment[VARIABLE] = first.strip()
        return environment[VARIABLE]
    devices = [device for gpu in gpus for device in gpu.devices]
    if len(devices) < 2:
        return None
    free = [device for device in devices if not any(not process.graphics for process in device.processes or ())]
    if not free:
        raise ClusterError(f"all {len(devices)} GPUs of this machine are in use; {ADVICE}")
    environment[VARIABLE] = free[0].uuid
    return free[0].uuid


def open_one() -> "Device":
    """Open the GPU of this process, else the CPU; raise ClusterError where it cannot be one."""
    from tasks.gpu_facts import read_nvml

    choose(read_nvml().gpus, os.environ)
    from tasks.device import open_device

    try:
        return open_device()
    except RuntimeError as error:
        raise ClusterError(f"{error}; {ADVICE}") from error
