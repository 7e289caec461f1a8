"""A shell asks for completions: this program answers by argcomplete, and ends."""

import argparse
import os
from collections.abc import Mapping
from typing import Any, NoReturn

from argcomplete.finders import CompletionFinder
from argcomplete.lexers import split_line

from orchestrator.cli import COMPLETING, verb_parser
from orchestrator.completion import Offers, completed
from orchestrator.verbs import VERBS


class Finder(CompletionFinder):
    """As argcomplete finds them, but a verb's words may stand on both sides of its options."""

    def collect_completions(
        self, active_parsers: list[argparse.ArgumentParser], parsed_args: argparse.Namespace, cword_prefix: str
    ) -> list[str]:
        """Add the words of the verb wherever no option waits for its value."""
        found = super().collect_completions(active_parsers, parsed_args, cword_prefix)
        parser: Any = active_parsers[-1]
        waiting = [action for action in parser.active_actions if action.option_strings and action.nargs != 0]
        words = next((action for action in parser._get_positional_actions() if action.nargs in ("*", "+")), None)
        if cword_prefix.startswith("-") or waiting or words is None or words in parser.active_actions:
            return found
        offers: Mapping[str, str] = words.completer(prefix=cword_prefix, parsed_args=parsed_args)
        return [*found, *(word for word in offers if self.validator(word, cword_prefix))]


def answer() -> NoReturn:
    """Write what may follow to where the shell reads it, and end."""
    own = int(os.environ[COMPLETING])  # words of the program's name: 3 for python -m orchestrator
    *_, before, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    words = before[own:]
    verb = words[0] if words and words[0] in VERBS else None
    parser = verb_parser(verb or "run")
    if verb:
        os.environ[COMPLETING] = str(own + 1)
    elif not words:
        _offer_verbs(parser)
    Finder()(parser, always_complete_options=False, append_space=None)
    raise AssertionError("argcomplete ends the program")


def _offer_verbs(parser: argparse.ArgumentParser) -> None:
    """Let the first word be a verb too: without one it is that of a run. Keys are offered to those who begin one."""
    words: Any = next(action for action in parser._actions if action.dest == "words")
    of_run = words.completer

    def first(prefix: str, **context: Any) -> Offers:
        found = of_run(prefix, **context)
        return {**VERBS, **{word: line for word, line in found.items() if prefix or "." not in word}}

    completed(words, first)
