"""``status``: how far a run is, on what, and what failed."""

import argparse
import sys

from orchestrator.errors import printable
from orchestrator.printing import printed_as, width
from orchestrator.verbs.arguments import add_forms
from orchestrator.verbs.common import add_run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_run(parser)
    add_forms(parser, as_json="everything", as_csv="a row a GEMM with its status and message")


def execute(arguments: argparse.Namespace) -> int:
    """Print the status; 1 where a Gemm failed or a Shard could not be read."""
    from orchestrator.run_status import csv_table, document, lines, run_status
    from orchestrator.runs import find_run

    found = run_status(find_run(arguments.run, arguments.dir, arguments.spool))
    whole = printed_as(
        arguments.form,
        tables=lambda: sys.stdout.write(printable("\n".join(lines(found, width())) + "\n")),
        document=lambda: document(found),
        table=lambda: csv_table(found),
    )
    return int(found.failed or not whole)
