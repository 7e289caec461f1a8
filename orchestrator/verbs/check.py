"""``check``: which rules a model's shape breaks on a GPU, and the nearest values that keep them."""

import argparse

from orchestrator.check import check
from orchestrator.check_arguments import KEYS, parse
from orchestrator.check_finding import FAIL
from orchestrator.printing import printed_as
from orchestrator.verbs.arguments import add_model_words, add_places

EXIT_CODES = (
    "exit codes: 0 no rule fails; 1 a rule fails, or a shard of the run could not be read; 2 usage, or a model or run "
    "that cannot be read; 130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model_words(
        parser,
        KEYS,
        about="the model and how it runs",
        as_json="the findings",
        as_csv="the findings",
        exit_codes=EXIT_CODES,
    )
    add_places(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Judge, and print; 1 where a rule fails or a shard could not be read."""
    asked = parse(arguments.words)
    case = asked.case
    notes = asked.notes
    problems: tuple[str, ...] = ()
    if asked.results is not None:
        from orchestrator.check_results import with_results

        evidence = with_results(case, asked.results, arguments.dir, arguments.spool)
        case, notes, problems = evidence.case, (*notes, *evidence.notes), evidence.problems
    findings = check(case)
    from orchestrator.check_report import csv_table, document, show

    whole = printed_as(
        arguments.form,
        tables=lambda: show(case, findings, notes),
        document=lambda: document(case, findings, notes),
        table=lambda: csv_table(findings, notes),
    )
    return int(not whole or bool(problems) or any(finding.status == FAIL for finding in findings))
