"""``check``: which rules a model's shape breaks on a GPU, and the nearest values that keep them."""

import argparse
import json
import sys

from orchestrator.check import check
from orchestrator.check_arguments import KEYS, parse
from orchestrator.check_finding import FAIL
from orchestrator.printing import printed
from orchestrator.words import listed

EXIT_CODES = (
    "exit codes: 0 no rule fails; 1 a rule fails; 2 usage, or a model or run that cannot be read; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    parser.add_argument("words", nargs="*", metavar="key=value", help="the model and how it runs; see below")
    parser.add_argument("--json", action="store_true", help="print the findings as one JSON object")
    parser.add_argument("--dir", default="results", help="directory or URI that holds the runs (default: results)")
    parser.epilog = (
        f"keys:\n{listed(KEYS)}\n\nh, a, layers, v and d_ff are a model, or replace values of one.\n\n{EXIT_CODES}"
    )


def execute(arguments: argparse.Namespace) -> int:
    """Judge, and print; 1 where a rule fails."""
    asked = parse(arguments.words)
    case = asked.case
    notes = asked.notes
    if asked.results is not None:
        from orchestrator.check_results import with_results

        evidence = with_results(case, asked.results, arguments.dir)
        case, notes = evidence.case, (*notes, *evidence.notes)
    findings = check(case)
    from orchestrator.check_report import document, show

    def report() -> None:
        if arguments.json:
            sys.stdout.write(json.dumps(document(case, findings, notes), indent=2) + "\n")
        else:
            show(case, findings, notes)

    whole = printed(report)
    return int(not whole or any(finding.status == FAIL for finding in findings))
