"""Arguments that several verbs take alike. Imports nothing heavy: some of these verbs answer at once."""

import argparse
from collections.abc import Mapping

from orchestrator.completion import completed, words_of
from orchestrator.forms import CSV, JSON, TABLES
from orchestrator.words import Key, listed


def add_dir(parser: argparse.ArgumentParser) -> None:
    """Add ``--dir``."""
    parser.add_argument("--dir", default="results", help="directory or URI that holds the runs (default: results)")


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add ``--dir`` and ``--spool``, for what reads runs that may be in a store."""
    add_dir(parser)
    parser.add_argument(
        "--spool", default=None, help="run.spool of the sweep, where a run of a URI is kept (default: ~/.local/state)"
    )


def add_forms(
    parser: argparse.ArgumentParser, *, as_json: str, as_csv: str | None
) -> "argparse._MutuallyExclusiveGroup":
    """Add ``--json`` and ``--csv``, one of which may be given; both set ``form``. as_json, as_csv: what they print."""
    parser.set_defaults(form=TABLES)
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--json", dest="form", action="store_const", const=JSON, help=f"print {as_json} as one JSON object"
    )
    if as_csv is not None:
        group.add_argument(
            "--csv",
            dest="form",
            action="store_const",
            const=CSV,
            help=f"print {as_csv} as CSV; a text that a spreadsheet would take for a formula gets a ' before it",
        )
    return group


def positive(text: str) -> int:
    """Read a whole number of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a whole number >= 1")
    return int(text)


def add_model_words(
    parser: argparse.ArgumentParser, keys: Mapping[str, Key], *, about: str, as_json: str, as_csv: str, exit_codes: str
) -> None:
    """Add the ``key=value`` words of a verb that is about a model, its forms, and what ``--help`` says of the words."""
    words = parser.add_argument("words", nargs="*", metavar="key=value", help=f"{about}; see below")
    completed(words, words_of(lambda: keys))
    add_forms(parser, as_json=as_json, as_csv=as_csv)
    parser.epilog = f"keys:\n{listed(keys)}\n\nDimensions are a model, or replace those of one.\n\n{exit_codes}"
