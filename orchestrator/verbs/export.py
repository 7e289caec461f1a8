"""``export``: what a run measured, as files for another tool."""

import argparse
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.completion import choices, completed, words_of
from orchestrator.errors import noted, printable
from orchestrator.export import TARGETS, exporter
from orchestrator.export.facts import FACTS
from orchestrator.export.request import CANDIDATES, FRAMEWORKS, HELP, OPTIONS, known_target, parse
from orchestrator.forms import JSON, write_json
from orchestrator.rules import Choices, Text
from orchestrator.verbs.arguments import add_forms, add_places
from orchestrator.words import Key
from tasks.gemm import ELEMENT_BYTES

if TYPE_CHECKING:
    from orchestrator.export.contract import Export
    from orchestrator.export.selection import Selection

EXIT_CODES = (
    "exit codes: 0 written; 1 written, but a shard could not be read; 2 usage, no such run, nothing to write, or files "
    "that are there already; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    words = parser.add_argument(
        "words", nargs="*", metavar="RUN | key=value", help="the run, and what of it; see below"
    )
    completed(words, words_of(_words, runs=True))
    target = parser.add_argument("--to", required=True, metavar="TARGET", help="|".join(TARGETS))
    completed(target, choices(lambda: TARGETS))
    parser.add_argument("--out", metavar="DIR", help="where the files go (default: exports/RUN/TARGET)")
    parser.add_argument("--force", action="store_true", help="overwrite files that are there already")
    parser.add_argument("--gpu", help="GPU model of the run, where it has several: its name, or the catalogue's")
    parser.add_argument(
        "--into", metavar="SYSTEM", help="aiconfigurator, calculon: a shipped system to copy, only read"
    )
    parser.add_argument("--as", dest="name", metavar="NAME", help="what the copy, or the system, is called")
    framework = parser.add_argument("--framework", help=f"aiconfigurator: {'|'.join(FRAMEWORKS)}")
    completed(framework, choices(lambda: FRAMEWORKS))
    parser.add_argument("--version", help="aiconfigurator: the framework's version")
    parser.add_argument(
        "--include-suspects",
        action="store_true",
        help="export also what devices measured while their canaries were off their model's",
    )
    add_places(parser)
    add_forms(parser, as_json="what was written and left out", as_csv=None)
    parser.epilog = (
        f"targets:\n{_listed(TARGETS)}\n\n"
        f"what of the run (RUN: path, URI, name or latest, the default):\n{_listed(_keys(HELP))}\n\n"
        f"facts, where a target wants one that neither the run nor the catalogue says:\n{_listed(_keys(FACTS))}\n\n"
        f"{EXIT_CODES}"
    )


def _words() -> dict[str, Key]:
    from orchestrator.roles import ROLES

    names = {"role": tuple(ROLES), "dtype": tuple(ELEMENT_BYTES), "candidates": CANDIDATES}
    rules = {name: Choices(what=name, names=lambda own=own: own) for name, own in names.items()}  # type: ignore[misc]
    return {name: Key(rule=rules.get(name, Text()), help=line) for name, line in {**HELP, **FACTS}.items()}


def _keys(lines: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}=": line for name, line in lines.items()}


def _listed(lines: Mapping[str, str]) -> str:
    width = max(map(len, lines))
    return "\n".join(f"  {name:<{width}} {line}" for name, line in lines.items())


def execute(arguments: argparse.Namespace) -> int:
    """Rank, export, write and say what was left out; 1 where a shard could not be read."""
    target = exporter(known_target(arguments.to))
    options = {name: getattr(arguments, name) for name in OPTIONS}
    request = parse(arguments.to, arguments.words, options, (*target.facts, *target.options))
    request = replace(request, gpu=arguments.gpu)
    from orchestrator.export.measured import select
    from orchestrator.export.writing import write
    from orchestrator.ranking import rank
    from orchestrator.runs import find_run

    store = find_run(request.run, arguments.dir, arguments.spool)
    ranking = rank(store, include_suspects=arguments.include_suspects)
    with noted(ranking.problems):
        selection = select(store, ranking, request, best=target.summary)
        found = target.export(selection, request)
    out = Path(arguments.out) if arguments.out else Path("exports") / store.name / request.target
    write(out, found.files, force=arguments.force, sources=found.sources)
    if arguments.form == JSON:
        write_json(_document(out, request.target, selection, found), sys.stdout)
    else:
        sys.stdout.write(printable("\n".join(_told(out, selection, found)) + "\n"))
    for line in (*ranking.problems, *ranking.notes):
        sys.stderr.write(f"{printable(line)}\n")
    return int(bool(ranking.problems))


def _document(out: Path, target: str, selection: "Selection", found: "Export") -> dict[str, Any]:
    return {
        "target": target,
        "run": selection.run,
        "gpu": selection.gpu,
        "directory": str(out),
        "files": sorted(found.files),
        "gemms": found.gemms,
        "left_out": [
            {"count": count, "reason": reason}
            for counts in (selection.left_out, found.left_out)
            for reason, count in counts.items()
        ],
        "notes": list(found.notes),
    }


def _told(out: Path, selection: "Selection", found: "Export") -> list[str]:
    files = sorted(found.files)
    shown = files if len(files) <= 4 else [*files[:3], f"… ({len(files)} files)"]
    left_out = [
        f"  {count} {reason}" for counts in (selection.left_out, found.left_out) for reason, count in counts.items()
    ]
    return [
        f"{found.gemms} Gemms of {selection.gpu} to {out}: {', '.join(shown)}",
        *(["left out:", *left_out] if left_out else []),
        *found.notes,
    ]
