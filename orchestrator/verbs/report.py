"""``report``: runs to look at, as one HTML file, as Markdown, or as a single plot."""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.completion import completed, run_names
from orchestrator.errors import InvalidValueError, StoreError, noted, printable
from orchestrator.report import FORMATS, PLOTS
from orchestrator.verbs.arguments import add_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.report.source import ReportRun

EXIT_CODES = (
    "exit codes: 0 written; 1 written, but a shard could not be read; 2 usage, no such run, or a disk that refuses; "
    "130 interrupted"
)

NEEDED = {"html": ("jinja2", "plotly"), "png": ("matplotlib",), "svg": ("matplotlib",)}
"""What a format is made with, and no other verb needs."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    runs = parser.add_argument(
        "runs", nargs="*", metavar="RUN", help="path, URI, name or latest (the default); several stand side by side"
    )
    completed(runs, run_names)
    add_places(parser)
    parser.add_argument("--out", metavar="FILE", help="where it goes (default: report.html, report.png, …)")
    parser.add_argument("--format", choices=FORMATS, help="what is written (default: by the name of --out, else html)")
    parser.add_argument(
        "--layer", metavar="FILE", action="append", default=[], help="what `layer --json` printed, for its shares"
    )
    parser.add_argument(
        "--plot", choices=PLOTS, metavar="PLOT", help="png, svg: which plot (default: family); see below"
    )
    parser.add_argument("--family", metavar="ID", help="png, svg: the Family whose id begins with this")
    parser.add_argument(
        "--include-suspects",
        action="store_true",
        help="rank also what devices measured while their canaries were off their model's",
    )
    formats, plots = ("\n".join(f"  {name:<10} {text}" for name, text in table.items()) for table in (FORMATS, PLOTS))
    parser.epilog = f"formats:\n{formats}\n\nplots:\n{plots}\n\n{EXIT_CODES}"


def execute(arguments: argparse.Namespace) -> int:
    """Rank the runs, draw up the report and write it; 1 where a shard could not be read."""
    form = _format(arguments)
    _refuse_strangers(arguments, form)
    out = _place(arguments.out, form)
    if missing := [name for name in NEEDED.get(form, ()) if find_spec(name) is None]:
        names = " and ".join(missing)
        raise InvalidValueError(f"--format {form} needs {names}, not installed here: pip install {' '.join(missing)}")
    from orchestrator.report.layers import read_layers
    from orchestrator.report.source import open_runs

    layers = read_layers(arguments.layer)
    where = arguments.dir, arguments.spool
    runs = open_runs(arguments.runs or ["latest"], *where, include_suspects=arguments.include_suspects)
    if form == "html":
        from orchestrator.report.page import html

        content = html(runs, layers)
    elif form == "md":
        from orchestrator.report.markdown import markdown

        content = markdown(runs, layers).encode("utf-8", "replace")
    else:
        from orchestrator.report.picture import picture

        with noted(line for run in runs for line in run.ranking.problems):
            content = picture(runs, form, arguments.plot or "family", arguments.family or "")
    _write(out, content, runs)
    return int(any(run.ranking.problems for run in runs))


def _format(arguments: argparse.Namespace) -> str:
    suffix = Path(arguments.out or "").suffix.lower().removeprefix(".")
    if arguments.format or suffix in FORMATS:
        return str(arguments.format or suffix)
    if suffix.isalpha() and suffix != "htm":
        forms = ", ".join(FORMATS)
        raise InvalidValueError(f"--out {arguments.out}: a report is {forms}; --format says which it is to be")
    return "html"


def _refuse_strangers(arguments: argparse.Namespace, form: str) -> None:
    """Raise where an option is not of the format: it would be passed over in silence."""
    of_plots = {"--plot": arguments.plot, "--family": arguments.family}
    given = [name for name, value in of_plots.items() if value is not None]
    if given and form not in ("png", "svg"):
        raise InvalidValueError(f"{' and '.join(given)}: only of --format png and svg, not {form}")
    if arguments.layer and form in ("png", "svg"):
        raise InvalidValueError(f"--layer: only of --format html and md, not {form}")
    if arguments.family is not None and arguments.plot not in (None, "family"):
        raise InvalidValueError(f"--family: only of --plot family, not {arguments.plot}")


def _place(out: str | None, form: str) -> Path | None:
    """Where the file goes, None for standard output; refused at once where nothing can be written there."""
    from orchestrator.results import check_directory

    if out is None and form == "md":
        return None
    path = Path(out or f"report.{form}")
    if not path.name:
        raise InvalidValueError(f"--out {out!r} names no file")
    if path.is_dir():
        raise StoreError(f"--out {path} is a folder: name a file in it")
    if path.exists() and not path.is_file():
        raise StoreError(f"--out {path} is no regular file")
    check_directory(path.parent, "--out")
    return path.resolve() if path.is_symlink() else path


def _write(out: Path | None, content: bytes, runs: "Sequence[ReportRun]") -> None:
    from orchestrator.atomic import write_atomic

    if out is None:
        sys.stdout.write(content.decode())
    else:
        write_atomic(out, content)
        sys.stdout.write(f"{out}: {', '.join(run.name for run in runs)}, {len(content) / 1e6:.1f} MB\n")
    for line in (line for run in runs for line in (*run.ranking.problems, *run.ranking.notes)):
        sys.stderr.write(f"{printable(line)}\n")
