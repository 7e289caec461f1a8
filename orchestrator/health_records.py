"""What the health rules read, and what they say: the cluster as it was inspected, and findings."""

from collections.abc import Iterable
from dataclasses import dataclass

from orchestrator import catalogue
from orchestrator.cluster import ANY, Node, usable
from orchestrator.kept_now import Kept
from tasks.gpu_facts import GpuFacts
from tasks.inspection import NodeFacts

PROBLEM = "problem"
WARNING = "warning"


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing that is not as it should be. severity: a problem would spoil a sweep, a warning might.

    rule: which check found it. node: name of the node, None for the whole cluster. gpu: UUID, None for the whole node.
    """

    severity: str
    rule: str
    message: str
    advice: str
    node: str | None = None
    gpu: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeReport:
    """What one node answered. here: this command runs on it; facts: None where it gave no answer, error says why."""

    name: str
    node: Node
    here: bool
    facts: NodeFacts | None
    error: str = ""

    @property
    def gpus(self) -> tuple[GpuFacts, ...]:
        """The GPUs that were read."""
        return self.facts.gpus if self.facts else ()

    @property
    def devices(self) -> tuple[GpuFacts, ...]:
        """What workers can be given: GPUs and MIG slices."""
        return tuple(device for gpu in self.gpus for device in gpu.devices)

    def hides(self, device: GpuFacts) -> bool:
        """Whether the node's Ray was started with visible devices that leave this one out."""
        if self.facts is None or self.facts.visible_devices is None:
            return False
        if not self.facts.visible_devices:
            return True
        if any(gpu.mig for gpu in self.gpus):
            return False  # of MIG slices a process sees one at most, so torch does not tell
        seen = {found.uuid for found in self.facts.torch.devices}
        return device.uuid not in seen and not self.facts.torch.error


@dataclass(frozen=True, kw_only=True, slots=True)
class Disk:
    """The directory that runs are written to, or where it will be made."""

    path: str
    free_bytes: int
    total_bytes: int
    writable: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Fleet:
    """Everything that was inspected, and what a sweep would ask of it.

    gpu: ``cluster.gpu``. fallback: whether a cluster without GPUs is swept on the CPU. disk: None where the results
    do not go to a local directory. kept: the Ray that a run has left on this node, None where there is none.
    """

    reports: tuple[NodeReport, ...]
    gpu: str
    fallback: bool = False
    disk: Disk | None = None
    kept: Kept | None = None

    @property
    def on_cpu(self) -> bool:
        """Whether the sweep would run on the CPU."""
        without = self.gpu == "auto" and not any(report.node.gpus for report in self.reports)
        return self.gpu == "cpu" or (without and self.fallback)

    def wanted(self, report: NodeReport) -> tuple[GpuFacts, ...]:
        """Return the devices of a node that the sweep would use."""
        if self.on_cpu or not report.node.gpus:
            return ()
        return tuple(device for device in report.devices if self.asked(device) and not report.hides(device))

    def asked(self, device: GpuFacts) -> bool:
        """Whether the configuration asks for such a device."""
        if self.gpu in ANY:
            return True
        return self.gpu != "cpu" and model(device) in catalogue.family_or_key(self.gpu)

    def takes_part(self, report: NodeReport) -> bool:
        """Whether a worker of the sweep would run on the node; where its GPUs are not known, Ray's label decides."""
        if self.on_cpu:
            return report.here
        if not report.devices:
            return bool(usable(self.gpu, [report.node]))
        return bool(self.wanted(report))


def model(device: GpuFacts) -> catalogue.GpuSpec | None:
    """Return the catalogue's entry of a device."""
    return catalogue.match(device.name or "", device.memory_bytes)


def counted(names: Iterable[str]) -> str:
    """Join names; many are cut short.

    >>> counted(["a", "b"])
    'a, b'
    """
    found = list(names)
    more = len(found) - SHOWN
    return ", ".join(found[:SHOWN]) + (f" and {more} more" if more > 0 else "")


SHOWN = 6
"""Names that one message lists."""
