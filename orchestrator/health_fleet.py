"""Rules about the cluster as a whole: that it has what the sweep asks for, and that its nodes and GPUs are alike."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.cluster import ANY
from orchestrator.health_records import PROBLEM, WARNING, Finding, Fleet, NodeReport, counted
from tasks.gpu_facts import GpuFacts
from tasks.inspection import NodeFacts


@dataclass(frozen=True, kw_only=True, slots=True)
class _Package:
    """Something that every node has in one version. devices: it matters only where Gemms run."""

    name: str
    version: Callable[[NodeFacts], str | None]
    devices: bool = False
    severity: str = PROBLEM


PACKAGES = (
    _Package(name="Python", version=lambda facts: ".".join(facts.python.split(".")[:2])),
    _Package(name="ray", version=lambda facts: facts.ray),
    _Package(name="pyarrow", version=lambda facts: facts.pyarrow),
    _Package(name="numpy", version=lambda facts: facts.numpy, severity=WARNING),
    _Package(name="torch", version=lambda facts: facts.torch.version, devices=True),
    _Package(name="torch's runtime", version=lambda facts: facts.torch.runtime, devices=True),
    _Package(name="GPU driver", version=lambda facts: facts.driver, devices=True),
)


def fleet_findings(fleet: Fleet) -> Iterator[Finding]:
    """Find what is wrong between the nodes, or with all of them."""
    yield from _no_gpu(fleet)
    yield from _skew(fleet)
    for name, gpus in _models(fleet).items():
        yield from _unlike(name, "power_limits_differ", "power limits", gpus, _power_limit)
        yield from _unlike(name, "ecc_differs", "ECC modes", gpus, _ecc)


def _no_gpu(fleet: Fleet) -> Iterator[Finding]:
    if fleet.on_cpu or any(fleet.wanted(report) for report in fleet.reports):
        return
    what = "no GPU" if fleet.gpu in ANY else f"no GPU that is '{fleet.gpu}'"
    others = any(report.node.gpus for report in fleet.reports) and fleet.gpu not in ANY
    yield Finding(
        severity=PROBLEM,
        rule="no_gpu",
        message=f"the cluster has {what}; there is: {'; '.join(map(_stock, fleet.reports))}",
        advice="cluster.gpu=any measures on whatever GPUs there are" if others else "conf=cpu measures on the CPU",
    )


def _stock(report: NodeReport) -> str:
    counts: dict[str, int] = defaultdict(int)
    for device in report.devices:
        counts[device.name or "unnamed GPU"] += 1
    has = ", ".join(f"{count} x {name}" for name, count in counts.items())
    if not has:
        has = f"{report.node.gpus} x unknown GPU" if report.node.gpus else "no GPU"
    return f"{report.name}: {has}"


def _skew(fleet: Fleet) -> Iterator[Finding]:
    used = [report for report in fleet.reports if fleet.takes_part(report)]
    with_driver = [report for report in fleet.reports if report.here or fleet.takes_part(report)]
    for package in PACKAGES:
        among = used if package.devices else with_driver
        if len(versions := _versions(package, among)) > 1:
            same_model = not package.devices or any(
                len(_versions(package, reports)) > 1 for reports in _by_model(fleet, among).values()
            )
            yield _skewed(package.name, versions, package.severity if same_model else WARNING)


def _skewed(name: str, versions: Mapping[str, Sequence[str]], severity: str) -> Finding:
    most = max(versions, key=lambda version: len(versions[version]))
    who = "; ".join(f"{version} on {counted(names)}" for version, names in versions.items())
    return Finding(
        severity=severity,
        rule="version_skew",
        message=f"{name} differs between nodes: {who}",
        advice=f"have one version everywhere; most nodes have {most}",
    )


def _versions(package: _Package, among: Sequence[NodeReport]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for report in among:
        if report.facts and (version := package.version(report.facts)):
            found[version].append(report.name)
    return found


def _by_model(fleet: Fleet, among: Sequence[NodeReport]) -> dict[str, list[NodeReport]]:
    """Nodes by the models of their GPUs; what is ranked together must run alike."""
    found: dict[str, list[NodeReport]] = defaultdict(list)
    for report in among:
        for name in {device.name or "" for device in fleet.wanted(report)} or {"CPU"}:
            found[name].append(report)
    return found


Placed = tuple[str, GpuFacts]


def _models(fleet: Fleet) -> dict[str, list[Placed]]:
    found: dict[str, list[Placed]] = defaultdict(list)
    for report in fleet.reports:
        chosen = set(fleet.wanted(report))
        for gpu in report.gpus:
            if chosen.intersection(gpu.devices):
                found[gpu.name or ""].append((report.name, gpu))
    return found


def _unlike(
    model: str, rule: str, what: str, gpus: Sequence[Placed], fact: Callable[[GpuFacts], str | None]
) -> Iterator[Finding]:
    having: dict[str, list[str]] = defaultdict(list)
    for name, gpu in gpus:
        if (value := fact(gpu)) is not None:
            having[value].append(f"{gpu.uuid[:12]} on {name}")
    if len(having) > 1:
        yield Finding(
            severity=PROBLEM,
            rule=rule,
            message=f"{model}: {what} differ: "
            + "; ".join(f"{value}: {counted(where)}" for value, where in having.items()),
            advice="set all GPUs of a model alike: they share one ranking",
        )


def _power_limit(gpu: GpuFacts) -> str | None:
    return None if gpu.power_limit_w is None else f"{gpu.power_limit_w:.0f} W"


def _ecc(gpu: GpuFacts) -> str | None:
    return None if gpu.ecc is None else "on" if gpu.ecc else "off"
