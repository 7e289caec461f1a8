"""``compare``: runs and published tables on the shapes that they share, and a gate for upgrades."""

import argparse
import sys
from typing import TYPE_CHECKING

from orchestrator.completion import completed, runs_and_tables
from orchestrator.errors import InvalidValueError, noted
from orchestrator.printing import printed_as, width
from orchestrator.verbs.arguments import add_forms, add_places, positive
from tasks.settings import BASELINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.compare_gate import Gate
    from orchestrator.compare_side import Side

EXIT_CODES = (
    "exit codes: 0 compared, and the gate passed; 1 a shard could not be read; 2 usage, or what cannot be compared; "
    "3 slower, or failing, by --fail-if-slower; 130 interrupted"
)
GATE_FAILED = 3
TOP = 5


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    words = parser.add_argument(
        "words",
        nargs="*",
        metavar="A B [C …]",
        help="runs (path, URI, name or latest) and published tables (PATH or GPU=PATH: aiconfigurator's "
        "gemm_perf.parquet or vidur's mlp.csv, or their folder); A is what the others are compared with",
    )
    completed(words, runs_and_tables)
    add_places(parser)
    parser.add_argument("--top", type=positive, default=TOP, help=f"values to print per family (default: {TOP})")
    parser.add_argument(
        "--fail-if-slower",
        type=_percent,
        metavar="PERCENT",
        help="exit with 3 where B is slower than A by this much and beyond noise; A and B are runs",
    )
    add_forms(parser, as_json="everything that was found out", as_csv="the speed-up of every group and side")
    parser.epilog = EXIT_CODES


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a percentage from 0 to below 1000, such as 3%")
    return value


def execute(arguments: argparse.Namespace) -> int:
    """Compare and print; 3 where the gate fails, else 1 where a shard could not be read."""
    from orchestrator.compare import compare, csv_table, document
    from orchestrator.compare_sides import open_sides
    from orchestrator.compare_tables import comparison_tables
    from orchestrator.explain_tables import text

    sides = open_sides(arguments.words, arguments.dir, arguments.spool)
    with noted(problem for side in sides for problem in side.problems):
        gate = None if arguments.fail_if_slower is None else _gate(sides, arguments)
        found = compare(sides, gate)
    whole = printed_as(
        arguments.form,
        tables=lambda: sys.stdout.write(text(comparison_tables(found, arguments.top), width())),
        document=lambda: document(found),
        table=lambda: csv_table(found),
    )
    if gate is not None and not gate.passed:
        return GATE_FAILED
    return int(not whole or any(side.problems for side in sides))


def _gate(sides: "Sequence[Side]", arguments: argparse.Namespace) -> "Gate":
    from orchestrator.compare_gate import gate
    from orchestrator.store import RunStore

    if len(arguments.words) != 2 or any(side.imported for side in sides):
        raise InvalidValueError(
            "--fail-if-slower needs two runs, the one before and the one after: a published table has no samples"
        )
    protocol = sides[0].protocol or {}
    if protocol["protocol"] in BASELINES:
        raise InvalidValueError(f"--fail-if-slower: protocol {protocol['protocol']} has no rounds, and so no interval")
    base, new = (RunStore.open(path) for path in dict.fromkeys(side.path for side in sides))
    return gate(base, new, arguments.fail_if_slower)
