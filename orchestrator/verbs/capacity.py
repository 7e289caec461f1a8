"""``capacity``: GEMM time of a model's step on each GPU model that was measured, and how many GPUs a target needs."""

import argparse
import json
import sys

from orchestrator.capacity_arguments import KEYS, parse
from orchestrator.printing import printed
from orchestrator.words import listed

EXIT_CODES = (
    "exit codes: 0 planned; 1 a shard of a run could not be read; 2 usage, or a GEMM that was neither measured nor "
    "lies between measured ones; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("words", nargs="*", metavar="key=value", help="model, layout, results and target; see below")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--dir", default="results", help="directory or URI that holds the runs (default: results)")
    parser.epilog = (
        f"keys:\n{listed(KEYS)}\n\nh, a, layers, v and d_ff are a model, or replace values of one.\n\n{EXIT_CODES}"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Plan and print; 1 where a shard could not be read."""
    asked = parse(arguments.words)
    from orchestrator.capacity import capacity
    from orchestrator.capacity_document import document
    from orchestrator.capacity_sides import joined_runs
    from orchestrator.capacity_tables import capacity_tables
    from orchestrator.compare_sides import open_results
    from orchestrator.explain_tables import text

    found = capacity(asked, joined_runs(open_results(asked.results, arguments.dir)))

    def report() -> None:
        if arguments.json:
            sys.stdout.write(json.dumps(document(found), indent=2, allow_nan=False) + "\n")
        else:
            sys.stdout.write(text(capacity_tables(found)))

    whole = printed(report)
    return int(not whole or any(each.side.problems for each in found.sides))
