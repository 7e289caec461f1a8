"""What a shell offers for a word that is begun: names of runs, and ``key=value`` words with the values of choices.

Nothing is looked up before a shell asks: verbs that are run only hang these on their arguments.
"""

import argparse
import glob
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from orchestrator.rules import Choice, Choices, Rule, Switch

Offers = dict[str, str]
"""Words and what each means."""


class Keyed(Protocol):
    """What a key takes, and its line of help."""

    @property
    def rule(self) -> Rule:
        """What it takes."""

    @property
    def help(self) -> str:
        """Its line of help."""


class Completer(Protocol):
    """Words for an argument, those that do not begin with ``prefix`` among them or not. context: argcomplete's."""

    def __call__(self, prefix: str, **context: Any) -> Offers:
        """Return them."""


Keys = Callable[[], Mapping[str, Keyed]]


def completed(action: argparse.Action, completer: Completer) -> None:
    """Let a shell complete an argument."""
    action.completer = completer  # type: ignore[attr-defined]


def run_names(prefix: str, **context: Any) -> Offers:
    """Offer the runs of ``--dir``, and paths for what is begun as one."""
    return _runs(prefix, context)


def words_of(keys: Keys, *, runs: bool = False) -> Completer:
    """Offer ``key=value`` words, and with ``runs`` those of RUN."""

    def offered(prefix: str, **context: Any) -> Offers:
        name, equals, text = prefix.partition("=")
        if equals:
            return _values(name, text, keys().get(name), context)
        own = {f"{key}=": entry.help for key, entry in keys().items()}
        parts = {
            f"{key}.{part}=": "" for key, entry in keys().items() for part in entry.rule.parts if f"{key}." in prefix
        }
        return {**(_runs(prefix, context) if runs else {}), **own, **parts}

    return offered


def runs_and_tables(prefix: str, **context: Any) -> Offers:
    """Offer runs, and files as PATH or GPU=PATH."""
    name, equals, path = prefix.partition("=")
    return {f"{name}={found}": "" for found in _paths(path)} if equals else {**_runs(prefix, context), **_paths(prefix)}


def choices(names: Callable[[], Mapping[str, str] | Iterable[str]]) -> Completer:
    """Offer names, with what they mean where that is known."""

    def offered(prefix: str, **context: Any) -> Offers:
        found = names()
        return dict(found) if isinstance(found, Mapping) else dict.fromkeys(found, "")

    return offered


def _values(name: str, text: str, key: Keyed | None, context: Mapping[str, Any]) -> Offers:
    """Offer the values of a key; of a list the next one that it has not yet."""
    begun, comma, last = text.rpartition(",")
    found = {value for value in _known(name, last, key, context) if value not in begun.split(",")}
    return {f"{name}={begun}{comma}{value}": "" for value in sorted(found)}


def _known(name: str, text: str, key: Keyed | None, context: Mapping[str, Any]) -> Iterable[str]:
    if name in _NAMES:
        return _NAMES[name](text, context)
    rule = None if key is None else key.rule
    if isinstance(rule, (Choice, Choices)):
        return [*rule.names(), *(["null"] if rule.optional else [])]
    return ("true", "false") if isinstance(rule, Switch) else ()


def _runs(prefix: str, context: Mapping[str, Any]) -> Offers:
    from orchestrator.address import is_uri
    from orchestrator.runs import EXAMPLES, LATEST, list_examples, list_runs

    place = os.path.expanduser(getattr(context.get("parsed_args"), "dir", None) or "results")
    if is_uri(place) or is_uri(prefix):
        return {}
    names = [path.name for path in list_runs(place)]
    examples = [f"{EXAMPLES}/{path.name}" for path in list_examples(place)]
    known = {**({LATEST: "the last one"} if names else {}), **dict.fromkeys(names, ""), **dict.fromkeys(examples, "")}
    return known if any(name.startswith(prefix) for name in known) else _paths(prefix)


def _paths(prefix: str) -> Offers:
    return {path + os.sep * os.path.isdir(path): "" for path in glob.iglob(glob.escape(prefix) + "*")}


def _sweeps(prefix: str, context: Mapping[str, Any]) -> Iterator[str]:
    from orchestrator.config import conf_names

    yield from conf_names()
    yield from _paths(prefix) if os.sep in prefix else ()


def _models(prefix: str, context: Mapping[str, Any]) -> Iterator[str]:
    from orchestrator.models import names

    yield from names()
    yield from _paths(prefix) if os.sep in prefix else ()


def _statuses(prefix: str, context: Mapping[str, Any]) -> Iterable[str]:
    from tasks.records import STATUSES

    return ("failed", *(status for status in STATUSES if status != "ok"))


_NAMES: Mapping[str, Callable[[str, Mapping[str, Any]], Iterable[str]]] = {
    "conf": _sweeps,
    "model": _models,
    "resume": _runs,
    "results": _runs,
    "retry": _statuses,
    "resume_anyway": lambda prefix, context: ("true", "false"),
    "run.dir": lambda prefix, context: _paths(prefix),
    "run.spool": lambda prefix, context: _paths(prefix),
}
"""Keys whose values are the names of something that is not in their rule."""
