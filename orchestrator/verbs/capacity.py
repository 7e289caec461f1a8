"""``capacity``: GEMM time of a model's step on each GPU model that was measured, and how many GPUs a target needs."""

import argparse
import json
import sys

from orchestrator.capacity_arguments import KEYS, parse
from orchestrator.printing import printed
from orchestrator.verbs.arguments import add_dir, add_model_words

EXIT_CODES = (
    "exit codes: 0 planned; 1 a shard of a run could not be read; 2 usage, or a GEMM that was neither measured nor "
    "lies between measured ones; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model_words(
        parser, KEYS, about="model, layout, results and target", as_json="everything", exit_codes=EXIT_CODES
    )
    add_dir(parser)


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
