"""Arguments that several verbs take alike. Imports nothing heavy: some of these verbs answer at once."""

import argparse
from collections.abc import Mapping

from orchestrator.words import Key, listed


def add_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--dir``."""
    parser.add_argument("--dir", default="results", help="directory or URI that holds the runs (default: results)")


def positive(text: str) -> int:
    """Read an option's whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number >= 1")
    return int(text)


def add_model_words(
    parser: argparse.ArgumentParser, keys: Mapping[str, Key], *, about: str, as_json: str, exit_codes: str
) -> None:
    """Add the ``key=value`` words of a verb that is about a model, ``--json``, and what ``--help`` says of both."""
    parser.add_argument("words", nargs="*", metavar="key=value", help=f"{about}; see below")
    parser.add_argument("--json", action="store_true", help=f"print {as_json} as one JSON object")
    parser.epilog = f"keys:\n{listed(keys)}\n\nDimensions are a model, or replace those of one.\n\n{exit_codes}"
