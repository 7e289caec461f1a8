"""An inspected cluster and what was found, in the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.drawing import table, write
from orchestrator.figures import UNKNOWN
from orchestrator.health_records import PROBLEM, Finding, Fleet, NodeReport
from tasks.gpu_facts import GpuFacts

GIB = 2**30
UUID_LENGTH = 12
"""``GPU-`` and 8 hexadecimal digits: as nvidia-smi accepts it."""

STYLES = {PROBLEM: "bold red"}
NODE_COLUMNS = ("node", "GPUs", "load/CPUs", "Python", "ray", "torch", "driver", "pyarrow")
GPU_COLUMNS = ("node", "GPU", "UUID", "free/GiB", "MHz/max", "W/default", "°C", "ECC")
NAMES = ("node", "GPU")
"""Columns whose cells may take several lines."""


def show(fleet: Fleet, findings: Sequence[Finding], console: Console | None = None) -> None:
    """Print nodes, GPUs and findings; colour only on a terminal, and not under ``NO_COLOR``."""
    write(lambda console: _draw(fleet, findings, console), console)


def _draw(fleet: Fleet, findings: Sequence[Finding], console: Console) -> None:
    console.print(
        table(NODE_COLUMNS, [_node(report) for report in fleet.reports], console.width, left=8, folding=NAMES)
    )
    if devices := list(_devices(fleet)):
        console.print(table(GPU_COLUMNS, devices, console.width, left=8, folding=NAMES))
    else:
        for report in fleet.reports:
            console.print(Text(f"{report.name}: no GPU; {_cpu(report)}"))
    if findings:
        console.print(_findings(findings))
    console.print(Text(summary(fleet, findings)))


def summary(fleet: Fleet, findings: Sequence[Finding]) -> str:
    """Say in one line whether a sweep would be spoilt, and what it would run on."""
    problems = sum(finding.severity == PROBLEM for finding in findings)
    wanted = sum(len(fleet.wanted(report)) for report in fleet.reports)
    on = "the CPU of this node" if fleet.on_cpu else f"{wanted} GPU{'s' * (wanted != 1)}"
    nodes = f"{len(fleet.reports)} node{'s' * (len(fleet.reports) != 1)}"
    warnings = len(findings) - problems
    counts = f"{problems} problem{'s' * (problems != 1)}, {warnings} warning{'s' * (warnings != 1)}"
    return f"{counts} on {nodes}; a sweep would use {on}"


def _node(report: NodeReport) -> tuple[str, ...]:
    name, facts = report.name, report.facts
    if facts is None:
        return (name, f"{report.node.gpus}/?", "?", "?", "?", "?", "?", "?")
    return (
        name,
        f"{report.node.gpus}/{len(report.devices)}",
        f"{facts.load:.1f}/{facts.cpus}",
        facts.python,
        facts.ray or UNKNOWN,
        facts.torch.version or UNKNOWN,
        facts.driver or UNKNOWN,
        facts.pyarrow or UNKNOWN,
    )


def _devices(fleet: Fleet) -> Iterator[tuple[str, ...]]:
    for report in fleet.reports:
        for gpu in report.gpus:
            for device in gpu.devices or (gpu,):
                yield _device(report, gpu, device)


def _device(report: NodeReport, gpu: GpuFacts, device: GpuFacts) -> tuple[str, ...]:
    ecc = UNKNOWN if gpu.ecc is None else "off" if not gpu.ecc else f"{gpu.ecc_volatile or 0} errors"
    return (
        report.name,
        (device.name or "?").removeprefix("NVIDIA "),
        device.uuid[:UUID_LENGTH],
        _pair(_gib(device.free_bytes), _gib(device.memory_bytes)),
        _pair(gpu.clock_mhz, gpu.clock_max_mhz),
        _pair(gpu.power_limit_w, gpu.power_limit_default_w),
        UNKNOWN if gpu.temperature_c is None else f"{gpu.temperature_c:.0f}",
        ecc,
    )


def _gib(size: int | None) -> float | None:
    return None if size is None else size / GIB


def _pair(now: float | None, most: float | None) -> str:
    return "/".join(UNKNOWN if value is None else f"{value:.0f}" for value in (now, most))


def _cpu(report: NodeReport) -> str:
    if report.facts is None:
        return report.error
    return f"{report.facts.usable_cpus} CPUs of {report.facts.torch.cpu or 'an unknown model'}"


def _findings(findings: Sequence[Finding]) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for finding in findings:
        text = Text(" ".join([*_where(finding), finding.message]))
        text.append(f"\n→ {finding.advice}", style="dim")
        grid.add_row(Text(finding.severity, style=STYLES.get(finding.severity, "yellow")), text)
    return grid


def _where(finding: Finding) -> Iterator[str]:
    place = [name for name in (finding.node, finding.gpu and finding.gpu[:UUID_LENGTH]) if name]
    if place:
        yield f"{' '.join(place)}:"
