"""The report as one HTML file that needs no network."""

from collections.abc import Sequence
from dataclasses import asdict
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from orchestrator import __version__
from orchestrator.report import device, environment, failure
from orchestrator.report.family import ReportFamily, families
from orchestrator.report.gains import gains
from orchestrator.report.payload import columns, packed, packed_text
from orchestrator.report.roof import roof
from orchestrator.shape_code import drawn_over

if TYPE_CHECKING:
    from orchestrator.report.layers import Bar
    from orchestrator.report.source import ReportRun

SCRIPTS = (
    "data.js",
    "style.js",
    "tip.js",
    "facts.js",
    "family.js",
    "heatmap.js",
    "roof.js",
    "layer.js",
    "drift.js",
    "page.js",
)
OPEN = 24
"""Families up to which all are open when the page is; of more, the first ones."""
MOST_DEVICES = 500


def html(runs: "Sequence[ReportRun]", layers: "Sequence[Bar]" = ()) -> bytes:
    """Draw up the page."""
    import jinja2

    found = families(runs)
    listed = [(run, device.devices(run)) for run in runs]
    loader = jinja2.PackageLoader("orchestrator.report", "assets")
    templates = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    templates.filters |= {"cut": _cut, "drawn_over": drawn_over}
    text = templates.get_template("report.html").render(
        title=", ".join(run.name for run in runs),
        version=__version__,
        runs=runs,
        families=found,
        open=OPEN,
        swept=environment.swept(runs),
        gains=gains(found),
        environment=environment.environment(runs),
        configurations=[(run.name, environment.configuration(run)) for run in runs],
        devices=[(run.name, own[:MOST_DEVICES], len(own)) for run, own in listed],
        failures=failure.failures(runs),
        measured=sum(row["rank"] is not None for run in runs for row in run.rows),
        failed=sum(row["rank"] is None for run in runs for row in run.rows),
        skips=failure.skips(runs),
        troubles=failure.troubles(runs),
        layers=layers,
        css=_asset("report.css"),
        scripts="\n".join(map(_asset, SCRIPTS)),
        data=packed(_data(runs, found, listed, layers)),
        plotly=packed_text(_plotly()),
    )
    return text.encode("utf-8", "replace")


def _data(
    runs: "Sequence[ReportRun]",
    found: Sequence[ReportFamily],
    listed: "Sequence[tuple[ReportRun, Sequence[device.Device]]]",
    layers: "Sequence[Bar]",
) -> dict[str, Any]:
    return {
        "runs": [{"name": run.name, "ranking": columns(run.ranking.table)} for run in runs],
        "families": [
            {
                "id": family.family_id,
                "role": family.role,
                "axis": family.axis,
                "title": family.title,
                "series": [
                    [series.run, series.gpu, series.start, series.count, series.label] for series in family.series
                ],
            }
            for family in found
        ],
        "roof": asdict(roof(runs, found)),
        "layers": [asdict(bar) for bar in layers],
        "drift": [
            [asdict(course) for course in device.courses(run, [own.uuid for own in shown[: device.MOST_DRAWN]])]
            for run, shown in listed
        ],
    }


def _asset(name: str) -> str:
    return files("orchestrator.report").joinpath("assets", name).read_text("utf-8")


def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _cut(text: str, limit: int = 200) -> str:
    """Cut a long text for a line of a table."""
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
