"""Hand-made inspections: a healthy H200, a healthy node with eight of them, and clusters of such nodes."""

from dataclasses import replace
from typing import Any

from orchestrator.cluster import Node
from orchestrator.health_records import Disk, Fleet, NodeReport
from tasks.gpu_facts import GpuFacts
from tasks.inspection import NodeFacts
from tasks.probe import TorchDevice, TorchFacts

GIB = 2**30
H100 = "NVIDIA H100 80GB HBM3"


def gpu(number: int = 0, **changes: Any) -> GpuFacts:
    """A healthy, idle H200; ``changes`` replace facts."""
    healthy = GpuFacts(
        uuid=f"GPU-{number:08x}-0000-0000-0000-000000000000",
        name="NVIDIA H200",
        pci_id=f"0000:{number:02x}:00",
        memory_bytes=140 * GIB,
        free_bytes=139 * GIB,
        clock_mhz=345,
        clock_max_mhz=1980,
        memory_clock_mhz=3201,
        memory_clock_max_mhz=3201,
        application_clock_mhz=1980,
        application_clock_default_mhz=1980,
        power_w=76.0,
        power_limit_w=700.0,
        power_limit_default_w=700.0,
        temperature_c=31,
        utilisation_pct=0,
        persistence=True,
        compute_mode="default",
        display_active=False,
        ecc=True,
        ecc_volatile=0,
        ecc_aggregate=0,
        remap_pending=False,
        remap_failed=False,
        reasons=("idle",),
        processes=(),
        mig=False,
    )
    return replace(healthy, **changes)


def torch(gpus: tuple[GpuFacts, ...], **changes: Any) -> TorchFacts:
    """What torch says where it sees all of ``gpus`` and can use them."""
    devices = tuple(
        TorchDevice(uuid=found.uuid, name=found.name or "", memory_bytes=found.memory_bytes or 0, busy_clock_mhz=1975.0)
        for found in gpus
    )
    return replace(TorchFacts(version="2.13.0+cu130", runtime="CUDA 13.0", cpu="Xeon", devices=devices), **changes)


def facts(gpus: tuple[GpuFacts, ...] = (), **changes: Any) -> NodeFacts:
    """A healthy node's facts."""
    healthy = NodeFacts(
        host="host",
        python="3.12.3",
        ray="2.60.0",
        pyarrow="26.0.1",
        numpy="2.4.6",
        torch=torch(gpus),
        driver="580.95.05",
        cuda_driver="13.0",
        gpus=gpus,
        nvml_error=None,
        unreadable=(),
        visible_devices=None,
        cpus=64,
        usable_cpus=64,
        load=1.5,
        niceness=0,
    )
    return replace(healthy, **changes)


def report(
    name: str, found: NodeFacts | None = None, *, here: bool = False, label: str | None = None, **changes: Any
) -> NodeReport:
    """A node of which Ray counts the GPUs that it has; changes: gpus (Ray's count), error."""
    count = changes.pop("gpus", len(found.gpus) if found else 0)
    node = Node(node_id=name, host=name, address="10.0.0.1", gpus=count, cpus=64, label=label)
    return NodeReport(name=name, node=node, here=here, facts=found, **changes)


def numbered(first: int, count: int = 2, **changes: Any) -> tuple[GpuFacts, ...]:
    """So many GPUs, numbered from ``first``."""
    return tuple(gpu(number, **changes) for number in range(first, first + count))


def fleet(*reports: NodeReport, wanted: str = "h200", **changes: Any) -> Fleet:
    """A cluster of which a sweep wants H200s, with room for its results."""
    disk = Disk(path="results", free_bytes=500 * GIB, total_bytes=900 * GIB, writable=True)
    return replace(Fleet(reports=reports, gpu=wanted, disk=disk), **changes)


def healthy() -> Fleet:
    """A head without GPUs, torch's CUDA and a driver, and two nodes with two H200s each."""
    head = facts(
        torch=TorchFacts(version="2.13.0+cpu", cpu="Xeon", error="built for the CPU only"),
        driver=None,
        cuda_driver=None,
        nvml_error="NVML does not start: NVML Shared Library Not Found",
    )
    return fleet(report("head", head, here=True), report("one", facts(numbered(0))), report("two", facts(numbered(8))))
