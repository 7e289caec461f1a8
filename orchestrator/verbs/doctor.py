"""``doctor``: whether the cluster that a sweep would use is fit for it."""

import argparse
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator import cluster
from orchestrator.address import is_uri
from orchestrator.forms import CsvTable
from orchestrator.kept_now import kept_now
from orchestrator.printing import printed_as
from orchestrator.results import nearest_existing
from orchestrator.verbs.common import add_sweep, configured, printed_cfg

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.health_records import Finding, Fleet
    from orchestrator.schema import Config

CSV_COLUMNS = ("severity", "rule", "node", "gpu", "message", "advice")
EXIT_CODES = (
    "exit codes: 0 fit for a sweep; 1 something would spoil it; 2 usage, configuration or cluster; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser, as_json="everything that was found out", as_csv="the findings")
    parser.epilog = EXIT_CODES


def execute(arguments: argparse.Namespace) -> int:
    """Inspect, and print; 1 where something would spoil a sweep."""
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    if not is_uri(config.run.dir):
        nearest_existing(Path(config.run.dir))  # better now than after the cluster has started
    kept = kept_now(config.cluster)
    with cluster.connect(config.cluster, ("orchestrator.inspect_cluster",)) as own_ray:
        from orchestrator.inspect_cluster import inspect_fleet

        fleet = replace(inspect_fleet(config, own_ray=own_ray), kept=kept)
    # What Ray prints until it has ended is kept from standard output, so this comes after it.
    from orchestrator.health import examine
    from orchestrator.health_records import PROBLEM

    findings = examine(fleet)
    from orchestrator.health_tables import show

    whole = printed_as(
        arguments.form,
        tables=lambda: show(fleet, findings),
        document=lambda: document(config, fleet, findings),
        table=lambda: CsvTable(columns=CSV_COLUMNS, rows=[asdict(finding) for finding in findings]),
    )
    return int(not whole or any(finding.severity == PROBLEM for finding in findings))


def document(config: "Config", fleet: "Fleet", findings: "Sequence[Finding]") -> dict[str, Any]:
    """Return all records as plain values; docs/doctor.md describes them."""
    from orchestrator.health_records import PROBLEM

    return {
        "ok": not any(finding.severity == PROBLEM for finding in findings),
        "conf": config.conf_name,
        "overrides": list(config.overrides),
        "gpu": fleet.gpu,
        "findings": [asdict(finding) for finding in findings],
        "results": None if fleet.disk is None else asdict(fleet.disk),
        "kept": None if fleet.kept is None else asdict(fleet.kept),
        "nodes": [asdict(report) for report in fleet.reports],
    }
