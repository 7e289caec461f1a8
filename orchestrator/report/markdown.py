"""The report as Markdown."""

import re
from collections.abc import Iterator, Sequence

from orchestrator.report import device, environment, failure
from orchestrator.report.environment import UNKNOWN, Fact
from orchestrator.report.family import ReportFamily, families
from orchestrator.report.gains import gains
from orchestrator.report.layers import Bar
from orchestrator.report.source import ReportRun
from orchestrator.tables import LEGEND, TextTable, family_tables
from orchestrator.terminal import escaped, markdown_blocks

TOP = 5
LONGEST = 300


def markdown(runs: Sequence[ReportRun], layers: Sequence[Bar] = ()) -> str:
    """Return the whole report: what was swept, a sentence and a table a Family, devices, failures, environment."""
    found = families(runs)
    names = [run.name for run in runs]
    blocks = [f"# Report of {escaped(', '.join(names))}", *_summary(found)]
    tables = [
        _facts("What was swept", environment.swept(runs), names),
        *_layers(layers),
        *(_devices(run) for run in runs),
        *_failures(runs),
        _facts("Environment", environment.environment(runs), names),
    ]
    blocks += [*_table(tables[0]), *_verdicts(found, several=len(runs) > 1), *_rankings(runs)]
    for table in tables[1:]:
        blocks += _table(table)
    return "\n\n".join(blocks) + "\n"


def _summary(found: Sequence[ReportFamily]) -> Iterator[str]:
    over = gains(found)
    if not over.measured:
        yield "Nothing was measured."
        return
    if over.median is not None and over.least is not None and over.most is not None:
        yield (
            f"The best of a Family is {over.least:+.1%} ({escaped(over.least_family)}) to {over.most:+.1%} "
            f"({escaped(over.most_family)}) faster per FLOP than its baseline; the median is {over.median:+.1%}."
        )
    ties = f"; in {over.tied} several tie at the top" if over.tied else ""
    if over.contested:
        yield f"In {over.alone} of {over.contested} rankings one Candidate is faster than all others{ties}."


def _verdicts(found: Sequence[ReportFamily], *, several: bool) -> Iterator[str]:
    if found:
        yield "## Verdicts"
        yield "\n".join(
            f"- **{escaped(family.title)}**"
            + (f", {escaped(series.label)}" if several or len(family.series) > 1 else "")
            + f": {escaped(series.verdict.sentence)}"
            for family in found
            for series in family.series
        )


def _rankings(runs: Sequence[ReportRun]) -> Iterator[str]:
    for run in runs:
        if run.rows:
            yield f"# Rankings of {escaped(run.name)}" if len(runs) > 1 else "# Rankings"
            for table in family_tables(run.ranking.table, TOP):
                yield from markdown_blocks(table)
            yield LEGEND


def _facts(title: str, facts: Sequence[Fact], names: Sequence[str]) -> TextTable:
    return TextTable(title=title, columns=("", *names), rows=tuple((f.name, *f.values) for f in facts), notes=())


def _layers(layers: Sequence[Bar]) -> Iterator[TextTable]:
    if layers:
        yield TextTable(
            title="Where a layer's time goes",
            columns=("layer", "GPU", "latency", "Gemm share", "largest components"),
            rows=tuple(
                (
                    bar.title,
                    bar.gpu,
                    f"{bar.seconds * 1e6:,.1f} µs",
                    UNKNOWN if bar.gemm_share is None else f"{bar.gemm_share:.1%}",
                    ", ".join(
                        f"{each.name} {each.share:.0%}"
                        for each in sorted(bar.components, key=lambda each: -each.share)[:3]
                    ),
                )
                for bar in layers
            ),
            notes=(),
        )


def _devices(run: ReportRun) -> TextTable:
    columns = ("device", "GPU", "host", "Families", "canary", "time", "SM clock, MHz", "°C", "W", "state")
    return TextTable(
        title=f"Devices of {run.name}",
        columns=columns,
        rows=tuple(
            (
                each.uuid,
                each.gpu,
                each.host,
                str(each.families),
                *(UNKNOWN if share is None else f"{share:+.1%}" for share in (each.canary, each.time)),
                *(
                    UNKNOWN if value is None else f"{value:.0f}"
                    for value in (each.clock_mean, each.temperature, each.power)
                ),
                each.state,
            )
            for each in device.devices(run)
        ),
        notes=(),
    )


def _failures(runs: Sequence[ReportRun]) -> Iterator[TextTable]:
    if failed := failure.failures(runs):
        yield TextTable(
            title="Not measured",
            columns=("run", "Candidates", "status", "why", "such as"),
            rows=tuple((each.run, str(each.count), each.status, each.message, each.examples[0]) for each in failed),
            notes=(),
        )
    if left_out := failure.skips(runs):
        yield TextTable(
            title="Left out by the plan",
            columns=("run", "Points", "why", "such as"),
            rows=tuple((each.run, str(each.count), each.kind, ", ".join(each.examples)) for each in left_out),
            notes=(),
        )
    if lines := failure.troubles(runs):
        yield TextTable(title="To know", columns=("",), rows=tuple((line,) for line in lines), notes=())


def _table(table: TextTable) -> list[str]:
    """A table's blocks; its cells, which may hold anything, are put on one line and cut."""

    def cell(text: str) -> str:
        line = " ".join(text.split())
        cut = line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
        return re.sub(r"([\\`*\[\]])", r"\\\1", cut)  # beside what the table itself escapes

    if not table.rows:
        return []
    safe = TextTable(
        title=table.title,
        columns=tuple(map(cell, table.columns)),
        rows=tuple(tuple(map(cell, row)) for row in table.rows),
        notes=table.notes,
    )
    return markdown_blocks(safe)
