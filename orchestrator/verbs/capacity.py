"""``capacity``: GEMM time of a model's step on each GPU model that was measured, and how many GPUs a target needs."""

import argparse
import sys

from orchestrator.capacity_arguments import KEYS, parse
from orchestrator.errors import noted
from orchestrator.printing import printed_as, width
from orchestrator.verbs.arguments import add_model_words, add_places

EXIT_CODES = (
    "exit codes: 0 planned; 1 a shard of a run could not be read; 2 usage, or a GEMM that was neither measured nor "
    "lies between measured ones; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model_words(
        parser,
        KEYS,
        about="model, layout, results and target",
        as_json="everything",
        as_csv="the GEMMs of every side",
        exit_codes=EXIT_CODES,
    )
    add_places(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Plan and print; 1 where a shard could not be read."""
    asked = parse(arguments.words)
    from orchestrator.capacity import capacity
    from orchestrator.capacity_document import csv_table, document
    from orchestrator.capacity_sides import joined_runs
    from orchestrator.capacity_tables import capacity_tables
    from orchestrator.compare_sides import open_results
    from orchestrator.explain_tables import text

    sides = joined_runs(open_results(asked.results, arguments.dir, arguments.spool))
    with noted(problem for side in sides for problem in side.problems):
        found = capacity(asked, sides)
    whole = printed_as(
        arguments.form,
        tables=lambda: sys.stdout.write(text(capacity_tables(found, width()), width())),
        document=lambda: document(found),
        table=lambda: csv_table(found),
    )
    return int(not whole or any(each.side.problems for each in found.sides))
