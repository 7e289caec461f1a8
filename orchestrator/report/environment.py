"""In what environment each run was made, and what was swept: one line a fact, one column a run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from orchestrator.report.source import ENVIRONMENT, ReportRun
from orchestrator.tables import status_counts

UNKNOWN = "–"
MOST_VALUES = 12
"""Distinct values of one fact that are listed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """One fact, with what each run says of it; differs: whether not all say the same."""

    name: str
    values: tuple[str, ...]

    @property
    def differs(self) -> bool:
        """Whether the runs differ in it."""
        return len(set(self.values)) > 1


def environment(runs: Sequence[ReportRun]) -> list[Fact]:
    """Where the runs were measured, by what their Shards say."""
    facts = [
        Fact(name=title, values=tuple(_values(row[column] for row in run.shards) for run in runs))
        for column, title in ENVIRONMENT.items()
    ]
    return [fact for fact in facts if set(fact.values) != {UNKNOWN}]


def _values(values: Iterator[object]) -> str:
    distinct = sorted({_text(value) for value in values if value is not None})
    more = [f"and {len(distinct) - MOST_VALUES} more"] if len(distinct) > MOST_VALUES else []
    return ", ".join([*distinct[:MOST_VALUES], *more]) or UNKNOWN


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def swept(runs: Sequence[ReportRun]) -> list[Fact]:
    """What was swept, where and when."""
    told = [dict(_told(run)) for run in runs]
    names = dict.fromkeys(name for each in told for name in each)
    facts = [Fact(name=name, values=tuple(each.get(name, UNKNOWN) for each in told)) for name in names]
    return [fact for fact in facts if set(fact.values) != {UNKNOWN}]


def _told(run: ReportRun) -> Iterator[tuple[str, str]]:
    manifest = run.manifest
    yield "GPUs", ", ".join(f"{_count(run, gpu)} × {gpu}" for gpu in run.gpus) or UNKNOWN
    yield "hosts", _values(row["host"] for row in run.shards)
    yield "began", _moment(manifest.get("started_utc"))
    yield "ended", _moment(manifest.get("ended_utc"))
    yield "state", str(manifest.get("status", UNKNOWN))
    counts = status_counts(run.ranking.table)
    yield "Candidates", ", ".join(f"{count:,} {status}" for status, count in counts.items()) or "nothing was measured"
    measuring = sum(row["measuring_s"] or 0.0 for row in run.shards)
    yield "measuring, all devices", f"{measuring:,.1f} s" if run.shards else UNKNOWN
    yield from _space(run.config)
    yield "conf", str(manifest.get("conf", UNKNOWN))
    overrides = manifest.get("overrides") or []
    yield "overrides", " ".join(map(str, overrides)) or UNKNOWN


def _space(config: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The axes of the search space that were set."""
    space = config.get("space")
    for name, value in space.items() if isinstance(space, Mapping) else ():
        if value not in (None, "", [], {}):
            yield str(name), _axis(value)


def _axis(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_axis(each)}" for name, each in value.items())
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _count(run: ReportRun, gpu: str) -> int:
    return len({row["uuid"] for row in run.shards if row["gpu"] == gpu})


def _moment(text: object) -> str:
    """A time of a manifest for reading: 2026-11-29 20:16:51 UTC."""
    return str(text).replace("T", " ").replace("+00:00", " UTC") if text else UNKNOWN


def configuration(run: ReportRun) -> str:
    """The resolved configuration as YAML; nothing where the manifest has none."""
    return yaml.safe_dump(dict(run.config), sort_keys=False, allow_unicode=True) if run.config else ""
