"""``plan``: what a sweep would measure, skip and cost."""

import argparse
import sys

from orchestrator.printing import printed_as, width
from orchestrator.space import expand_space
from orchestrator.verbs.common import add_sweep, configured, printed_cfg


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser, as_json="the plan", as_csv="a row a family")


def execute(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    # numpy is loaded now that the arguments are known to be right
    from orchestrator.plan import plan
    from orchestrator.plan_document import csv_table, document
    from orchestrator.plan_text import lines

    expansion = expand_space(config)
    found = plan(config, expansion)
    whole = printed_as(
        arguments.form,
        tables=lambda: sys.stdout.write("\n".join(lines(config, expansion, found, width())) + "\n"),
        document=lambda: document(config, expansion, found),
        table=lambda: csv_table(expansion),
    )
    return int(not whole)
