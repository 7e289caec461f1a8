"""Whether a cluster is fit for a sweep: records of an inspection in, findings out. No Ray, no NVML, no clock."""

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.health_fleet import fleet_findings
from orchestrator.health_gpu import GPU_RULES, occupied, slow_clocks
from orchestrator.health_kept import held_findings, kept_findings
from orchestrator.health_node import disk_findings, node_findings
from orchestrator.health_records import PROBLEM, WARNING, Finding, Fleet, NodeReport
from tasks.gpu_facts import GpuFacts


def examine(fleet: Fleet) -> tuple[Finding, ...]:
    """Return everything that would spoil a sweep, or might: problems first.

    What is wrong with a node or a GPU that the sweep would not use is a warning.
    """
    found = [*fleet_findings(fleet)]
    if fleet.disk is not None:
        found += disk_findings(fleet.disk)
    for report in fleet.reports:
        found += _of_node(fleet, report)
    return tuple(sorted(found, key=lambda finding: finding.severity != PROBLEM))


def _of_node(fleet: Fleet, report: NodeReport) -> Iterator[Finding]:
    matters = fleet.takes_part(report)
    hidden = {device.uuid for device in report.devices if report.hides(device)}
    own = kept_findings(fleet.kept) if report.here and fleet.kept is not None else ()
    for finding in (*node_findings(fleet, report), *own):
        # This very node must answer even where no worker runs: it ranks.
        used = matters or (report.here and finding.rule == "no_answer")
        yield replace(_weighed(finding, used and finding.gpu not in hidden), node=report.name)
    wanted = set(fleet.wanted(report))
    for gpu in report.gpus:
        used = not wanted.isdisjoint(gpu.devices) or (bool(gpu.mig) and not gpu.slices and matters)
        for finding in _of_gpu(report, gpu):
            yield replace(_weighed(finding, used), node=report.name, gpu=gpu.uuid)
        for device in gpu.devices:
            for finding in _occupied(fleet, report, device):
                yield replace(_weighed(finding, device in wanted), node=report.name, gpu=device.uuid)


def _of_gpu(report: NodeReport, gpu: GpuFacts) -> Iterator[Finding]:
    for rule in GPU_RULES:
        yield from rule(gpu)
    seen = report.facts.torch.devices if report.facts else ()
    yield from slow_clocks(gpu, next((device.busy_clock_mhz for device in seen if device.uuid == gpu.uuid), None))


def _occupied(fleet: Fleet, report: NodeReport, device: GpuFacts) -> Iterator[Finding]:
    """Find what holds a device; where that is a kept Ray's worker, a run goes on with it, or it is to be released."""
    kept = fleet.kept if report.here else None
    if kept is None or device.uuid not in kept.devices:
        return occupied(device)
    return held_findings(kept, occupied(device, workers=int(kept.taken)))


def _weighed(finding: Finding, used: bool) -> Finding:
    return finding if used else replace(finding, severity=WARNING)
