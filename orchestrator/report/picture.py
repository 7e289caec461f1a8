"""Single plots as PNG or SVG, by matplotlib."""

import io
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import InvalidValueError, StoreError, unknown
from orchestrator.report import device
from orchestrator.report.family import ReportFamily, Series, families
from orchestrator.report.grid import Grid, grid
from orchestrator.report.roof import roof
from orchestrator.report.source import ReportRun
from orchestrator.shape_code import drawn_at, drawn_over

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Row = dict[str, Any]

SIZE = (8.0, 4.5)
DPI = 150
GREY = "#8a94a0"
COLOURS = ("#2f7fd1", "#d9713c", "#3f9b6c", "#a768c9", "#c2a02c", "#d05383", "#4aa3ad", "#8c8f3c")
ALIGNED: Mapping[int, tuple[str, str]] = {
    1: ("#d64550", "x"),
    2: ("#e2793d", "v"),
    4: ("#c99a2e", "^"),
    8: ("#3f9b6c", "s"),
    16: ("#2f9fb0", "D"),
    32: ("#3b82d6", "p"),
    64: ("#8465d8", "o"),
}
"""Colour and marker by the largest power of two, as the page has them; of more than 64 the last."""
NAMED = 20
"""Families that an error names."""


def picture(runs: Sequence[ReportRun], form: str, plot: str, family: str = "") -> bytes:
    """Draw one plot of PLOTS.

    Raises:
        InvalidValueError: there is nothing of that kind to draw.
        StoreError: there is no such Family.
    """
    import matplotlib
    from matplotlib.figure import Figure

    # A $ in a name is no mathematics; the same runs give the same bytes.
    with matplotlib.rc_context({"text.parse_math": False, "svg.hashsalt": "report", "font.size": 9}):
        figure = Figure(figsize=SIZE, layout="constrained")
        DRAWN[plot](figure, runs, family)
        out = io.BytesIO()
        figure.savefig(out, format=form, dpi=DPI, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


def _family(figure: "Figure", runs: Sequence[ReportRun], wanted: str) -> None:
    found = _chosen(families(runs), wanted)
    axes = figure.add_subplot()
    several = len(found.series) > 1
    for i, series in enumerate(found.series):
        rows = [row for row in _rows(runs, series) if row["rank"] is not None]
        if several:
            _curve(axes, rows, series.label, COLOURS[i % len(COLOURS)])
        else:
            _points(axes, rows)
        _marks(axes, rows, COLOURS[i % len(COLOURS)] if several else COLOURS[0])
    axes.set(xlabel=drawn_over(found.axis), ylabel="TFLOP/s")
    sentence = "" if several else found.series[0].verdict.sentence
    axes.set_title(f"{found.title}\n{sentence if len(sentence) <= 120 else sentence.split('. ')[0] + '.'}", fontsize=9)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, ncols=2)
    _plain(axes)


def _chosen(found: Sequence[ReportFamily], wanted: str) -> ReportFamily:
    if not found:
        raise InvalidValueError("nothing was measured: there is nothing to draw")
    named = [family for family in found if family.family_id.startswith(wanted)]
    if not named:
        ids = list(dict.fromkeys(family.family_id for family in found))
        raise StoreError(unknown("family", wanted, ids[:NAMED]))
    return next((family for family in named if any(each.verdict.best is not None for each in family.series)), named[0])


def _rows(runs: Sequence[ReportRun], series: Series) -> Sequence[Row]:
    return runs[series.run].rows[series.start : series.start + series.count]


def _look(row: Row) -> tuple[str, str]:
    return ALIGNED[max(least for least in ALIGNED if row["align_local"] >= least)]


def _spread(rows: Sequence[Row]) -> list[list[float]]:
    """How far each rate's interval reaches down and up; nothing where there is none."""
    low = [
        0.0 if (high := row["relative_high"]) is None else row["tflops"] * (1 - row["relative"] / high) for row in rows
    ]
    high = [
        0.0 if (least := row["relative_low"]) is None else row["tflops"] * (row["relative"] / least - 1) for row in rows
    ]
    return [low, high]


def _points(axes: "Axes", rows: Sequence[Row]) -> None:
    for least, (colour, marker) in ALIGNED.items():
        own = [row for row in rows if _look(row) == (colour, marker)]
        if own:
            name = f"aligned to {least}" + (" and more" if least == max(ALIGNED) else "")
            _draw(axes, own, label=name, color=colour, marker=marker, linestyle="")


def _curve(axes: "Axes", rows: Sequence[Row], label: str, colour: str) -> None:
    ordered = sorted(rows, key=drawn_at)
    _draw(axes, ordered, label=label, color=colour, marker="o", linewidth=1)


def _draw(axes: "Axes", rows: Sequence[Row], **look: Any) -> None:
    x, y = [drawn_at(row) for row in rows], [row["tflops"] for row in rows]
    axes.errorbar(x, y, yerr=_spread(rows), ecolor=GREY, elinewidth=0.7, markersize=5, **look)


def _marks(axes: "Axes", rows: Sequence[Row], colour: str) -> None:
    tied = [row["tflops"] for row in rows if row["tie_group"] == 1]
    if tied:
        rates = [row["tflops"] for row in rows]
        least = 0.008 * (max(rates) - min(rates)) or 0.002 * max(rates)  # one Candidate alone is a line
        axes.axhspan(min(tied) - least, max(tied) + least, color=colour, alpha=0.15, linewidth=0)
    for row in rows:
        if row["baseline"]:
            axes.axhline(row["tflops"], color=GREY, linestyle=":", linewidth=1)
            axes.plot(drawn_at(row), row["tflops"], "o", markersize=11, markerfacecolor="none", color=GREY)


def _plain(axes: "Axes") -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def _heatmap(figure: "Figure", runs: Sequence[ReportRun], wanted: str) -> None:
    _cells(figure, grid(runs, families(runs), gain=False), "best TFLOP/s", "{:.0f}", "viridis")


def _gain(figure: "Figure", runs: Sequence[ReportRun], wanted: str) -> None:
    _cells(figure, grid(runs, families(runs), gain=True), "gain over the baseline, %", "{:+.1f}", "cividis")


def _cells(figure: "Figure", found: Grid, title: str, text: str, colours: str) -> None:
    axes = figure.add_subplot()
    values = [[float("nan") if value is None else value for value in row] for row in found.values]
    image = axes.imshow(values, cmap=colours, aspect="auto")
    axes.set_xticks(range(len(found.across)), found.across)
    axes.set_yticks(range(len(found.down)), found.down)
    axes.set(xlabel=found.x, ylabel=found.y)
    axes.set_title(f"{title}{', ' + found.kept if found.kept else ''}", fontsize=9)
    known = [value for row in found.values for value in row if value is not None]
    middle = (min(known) + max(known)) / 2
    for i, row in enumerate(found.values):
        for j, value in enumerate(row):
            if value is not None and len(known) <= 150:
                axes.text(j, i, text.format(value), ha="center", va="center", color="w" if value < middle else "k")
    figure.colorbar(image)


def _roofline(figure: "Figure", runs: Sequence[ReportRun], wanted: str) -> None:
    found = roof(runs, families(runs))
    if not found.spots:
        raise InvalidValueError("nothing was measured: there is nothing to draw")
    axes = figure.add_subplot()
    everywhere = [each for spots in found.spots for each in spots.intensity]
    everywhere += [ceiling.ridge for ceiling in found.ceilings]
    low, high = min(everywhere) / 2, max(everywhere) * 2
    for i, line in enumerate(found.ceilings):
        x, y = [low, line.ridge, high], [low * line.tflops / line.ridge, line.tflops, line.tflops]
        axes.plot(x, y, color=COLOURS[i % len(COLOURS)], label=line.name)
    for i, spots in enumerate(found.spots, start=len(found.ceilings)):
        colour = COLOURS[i % len(COLOURS)]
        axes.plot(spots.intensity, spots.tflops, ".", color=colour, alpha=0.7, label=spots.name)
    axes.set(xlabel="FLOP per byte", ylabel="TFLOP/s", xscale="log", yscale="log")
    axes.legend(fontsize=7)
    _plain(axes)


def _drift(figure: "Figure", runs: Sequence[ReportRun], wanted: str) -> None:
    courses = [
        (run.name, course)
        for run in runs
        for course in device.courses(run, [each.uuid for each in device.devices(run)[: device.MOST_DRAWN]])
    ]
    if not courses:
        raise InvalidValueError("the Shards carry no times: there is nothing to draw")
    figure.set_size_inches(SIZE[0], 1.4 * SIZE[1])
    panels = figure.subplots(4, 1, sharex=True)
    for i, (name, course) in enumerate(courses):
        colour = COLOURS[i % len(COLOURS)]
        label = course.uuid if len(runs) == 1 else f"{name}, {course.uuid}"
        panels[0].plot(course.round_minutes, course.level, ".", color=colour, markersize=3)
        panels[0].plot(course.canary_minutes, course.canary_level, "D-", color=colour, markersize=4, linewidth=0.8)
        for axes, values in zip(panels[1:], (course.clock_mean, course.power, course.temperature), strict=True):
            known = [float("nan") if value is None else value for value in values]
            axes.plot(course.minutes, known, ".-", color=colour, linewidth=1, label=label)
    for axes, title in zip(panels, ("level, %", "SM clock, MHz", "power, W", "°C"), strict=True):
        axes.set_ylabel(title)
        _plain(axes)
    panels[-1].set_xlabel("minutes since the first Shard")
    panels[1].legend(fontsize=7)


DRAWN: Mapping[str, "Callable[[Figure, Sequence[ReportRun], str], None]"] = {
    "family": _family,
    "heatmap": _heatmap,
    "gain": _gain,
    "roofline": _roofline,
    "drift": _drift,
}
