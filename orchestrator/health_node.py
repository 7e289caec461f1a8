"""Rules about one node: that it answers, that workers can start on it, that Ray, NVML and torch see the same GPUs."""

from collections.abc import Iterator

from orchestrator.health_records import PROBLEM, WARNING, Disk, Finding, Fleet, NodeReport, counted
from tasks.inspection import NodeFacts

LEAST_DISK_BYTES = 2**30
GIB = 2**30


def node_findings(fleet: Fleet, report: NodeReport) -> Iterator[Finding]:
    """Find what is wrong with a node itself."""
    if report.facts is None:
        yield Finding(
            severity=PROBLEM,
            rule="no_answer",
            message=report.error,
            advice="nodes need Python, ray, torch, pyarrow and numpy in the versions of this node; a node that is only "
            "slow is given more time by cluster.start_timeout_s",
        )
        return
    yield from _code(report.facts)
    yield from _load(fleet, report.facts)
    if not fleet.on_cpu:
        yield from _counts(fleet, report, report.facts)
        yield from _torch(report, report.facts)


def disk_findings(disk: Disk) -> Iterator[Finding]:
    """Find a place that takes no results."""
    if not disk.writable:
        yield Finding(
            severity=PROBLEM,
            rule="results_directory",
            message=f"{disk.path} is not a directory that can be written to",
            advice="choose another one by run.dir=",
        )
    elif disk.free_bytes < LEAST_DISK_BYTES:
        yield Finding(
            severity=PROBLEM,
            rule="results_disk",
            message=f"{disk.free_bytes / GIB:.2f} GiB are free for results in {disk.path}",
            advice="make room, or choose another directory by run.dir=",
        )


def _code(facts: NodeFacts) -> Iterator[Finding]:
    for name, reason in facts.torch.modules:
        yield Finding(
            severity=PROBLEM,
            rule="cannot_import",
            message=f"{name} cannot be imported: {reason}",
            advice="install what is missing there, in the version of this node",
        )
    if facts.torch.version is None:
        yield Finding(
            severity=PROBLEM,
            rule="no_torch",
            message=facts.torch.error or "torch does not tell its version",
            advice="install torch there; where it is only slow to start, give it time by cluster.start_timeout_s",
        )


def _load(fleet: Fleet, facts: NodeFacts) -> Iterator[Finding]:
    if facts.load > facts.cpus:
        yield Finding(
            severity=PROBLEM if fleet.on_cpu else WARNING,
            rule="cpu_load",
            message=f"the load is {facts.load:.1f} on {facts.cpus} CPUs",
            advice="let other work end first",
        )
    if facts.niceness > 0:
        yield Finding(
            severity=WARNING,
            rule="niceness",
            message=f"workers run at nice {facts.niceness}: any other work goes first",
            advice="start Ray there with RAY_worker_niceness=0",
        )


def _counts(fleet: Fleet, report: NodeReport, facts: NodeFacts) -> Iterator[Finding]:
    for line in facts.unreadable:
        yield Finding(
            severity=PROBLEM,
            rule="gpu_unreadable",
            message=f"a GPU cannot be read: {line}",
            advice="look for Xid errors in the kernel's log (dmesg); reset the GPU or restart the node",
        )
    whose = "NVML sees" if facts.nvml_error is None else "torch sees"
    shown = sum(not report.hides(device) for device in report.devices)
    counted_by_ray = report.node.gpus
    if counted_by_ray > shown:
        why = f" ({facts.nvml_error}; {facts.torch.error})" if facts.nvml_error and facts.torch.error else ""
        yield Finding(
            severity=PROBLEM,
            rule="gpu_count",
            message=f"Ray counts {counted_by_ray} GPUs, {whose} {shown}{why}",
            advice="start Ray there without --num-gpus, or with the right number; without any GPU, load its driver",
        )
    elif counted_by_ray < shown:
        yield Finding(
            severity=WARNING if counted_by_ray else PROBLEM,
            rule="gpu_count",
            message=f"Ray counts {counted_by_ray} GPUs, {whose} {shown}: {shown - counted_by_ray} take no part",
            advice="start Ray there with --num-gpus, where all should (MIG slices are not counted by Ray itself)",
        )


def _torch(report: NodeReport, facts: NodeFacts) -> Iterator[Finding]:
    torch = facts.torch
    if report.node.gpus and torch.version is not None and torch.error:
        yield Finding(
            severity=PROBLEM,
            rule="torch_cuda",
            message=f"torch {torch.version} cannot use the GPU: {torch.error}",
            advice="install a torch that is built for this node's driver"
            + (f" (CUDA {facts.cuda_driver} or older)" if facts.cuda_driver else ""),
        )
    known = {device.uuid for device in report.devices}
    strangers = [device.uuid for device in torch.devices if device.uuid not in known]
    if strangers and facts.nvml_error is None:
        yield Finding(
            severity=PROBLEM,
            rule="torch_stranger",
            message=f"torch sees what NVML does not: {counted(strangers)}",
            advice="restart the node, so that the driver and its libraries are of one version",
        )
    seen = {device.uuid for device in torch.devices}
    unseen = [device.uuid for device in report.devices if device.uuid not in seen and not report.hides(device)]
    if unseen and report.node.gpus and not torch.error and not any(gpu.mig for gpu in report.gpus):
        yield Finding(
            severity=PROBLEM,
            rule="torch_blind",
            message=f"torch does not see {counted(unseen)}",
            advice="look at the node's CUDA_VISIBLE_DEVICES and at the permissions of /dev/nvidia*",
        )
    for device in torch.devices:
        if device.error:
            yield Finding(
                severity=PROBLEM,
                rule="torch_device",
                gpu=device.uuid,
                message=f"torch cannot use it: {device.error}",
                advice="end what holds it; where nothing does, reset the GPU",
            )
