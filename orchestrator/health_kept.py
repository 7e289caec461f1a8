"""Rules about the Ray that a run has left on this node for the next one."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime

from orchestrator.health_records import PROBLEM, WARNING, Finding
from orchestrator.kept_now import RELEASE, Kept, holding


def kept_findings(kept: Kept) -> Iterator[Finding]:
    """Say what is kept: a problem while a command uses it, for that one measures."""
    since = _moment(kept.since)
    if kept.until is None:
        then = "a run waits for it" if kept.taken else "it measures on what this sweep would use"
        yield Finding(
            severity=PROBLEM,
            rule="kept_ray",
            message=f"process {kept.pid} of yours has used the kept Ray of this command since {since}: {then}",
            advice="let it end first",
        )
        return
    what = holding(kept.devices.values()) or "no device"
    meanwhile = "the next run goes on with it" if kept.taken else "this sweep, which names another Ray, does not use it"
    yield Finding(
        severity=WARNING,
        rule="kept_ray",
        message=f"a Ray that an earlier run has kept (--keep, cluster.keep_s) holds {what} since {since}, until "
        f"{_moment(kept.until)} if no run uses it",
        advice=f"{meanwhile}; {RELEASE} frees what it holds",
    )


def held_findings(kept: Kept, findings: Iterable[Finding]) -> Iterator[Finding]:
    """Say of a device that a kept Ray holds how it is freed."""
    for finding in findings:
        yield replace(finding, advice=f"{RELEASE} ends the kept Ray's worker on it; for others: {finding.advice}")


def _moment(time: datetime) -> str:
    return time.isoformat(sep=" ", timespec="seconds")
