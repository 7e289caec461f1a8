"""``layer``: where the time of a transformer layer goes, on one device of this machine."""

import argparse
import sys
from typing import TYPE_CHECKING

from orchestrator.layer_arguments import KEYS, Asked, parse
from orchestrator.printing import printed_as
from orchestrator.verbs.arguments import add_model_words

if TYPE_CHECKING:
    from orchestrator.layer_result import LayerResult

EXIT_CODES = (
    "exit codes: 0 all measured; 1 a variant lacks a component; 2 usage, a model that cannot be read, or no one GPU; "
    "130 interrupted"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_model_words(
        parser,
        KEYS,
        about="the model and how it runs",
        as_json="everything, samples too,",
        as_csv="the components of every variant",
        exit_codes=EXIT_CODES,
    )


def execute(arguments: argparse.Namespace) -> int:
    """Time each layer, and print; 1 where a variant lacks a component."""
    asked = parse(arguments.words)
    results = _measured(asked)
    from orchestrator.layer_result import csv_table, document
    from orchestrator.layer_tables import show

    whole = printed_as(
        arguments.form,
        tables=lambda: show(results),
        document=lambda: document(results),
        table=lambda: csv_table(results),
    )
    return int(not whole or not all(result.whole for result in results))


def _measured(asked: Asked) -> "list[LayerResult]":
    from orchestrator.layer_result import measure, timing_of
    from orchestrator.layer_tables import title
    from orchestrator.one_gpu import open_one

    device = open_one()
    timing = timing_of(asked.rounds, asked.seed, on_cpu=device.info.kind == "cpu")
    results: list[LayerResult] = []
    for case in asked.cases:
        sys.stderr.write(f"timing on {device.info.gpu}: {title(case)}\n")
        results.append(measure(device, case, timing))
    return results
