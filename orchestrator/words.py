"""The ``key=value`` words of a verb: each is checked by its key's rule, and everything wrong is told at once."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from orchestrator import catalogue
from orchestrator.errors import ConfigError, InvalidValueError, Problem, nearest, shorten
from orchestrator.rules import Choice, Integer, Rule, Switch
from orchestrator.yaml_text import refuse_ambiguous

ALIASES: Mapping[str, str] = MappingProxyType({"batch": "b", "seq": "s"})
"""What ``space`` calls a key of the verbs."""
RESUME_WORDS = ("resume", "resume_anyway", "retry")
"""Arguments of a run that are no keys of its configuration."""
_WHOLE = re.compile(r"[+-]?[0-9]+(_[0-9]+)*")
_LONGEST = 40
_SWITCH: Mapping[str, object] = MappingProxyType({"true": True, "false": False})


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """What a key takes, and its line of help. An Integer that is ``listed`` gives a tuple."""

    rule: Rule
    help: str


def one_of(what: str, names: Collection[str], help: str) -> Key:
    """Return a key that takes one of ``names``; ``{}`` in its help is all of them."""
    return Key(rule=Choice(what=what, names=lambda: names), help=help.format("|".join(names)))


GPU = Key(
    rule=Choice(what="GPU", names=catalogue.names),
    help="GPU of the catalogue, or a family: the one that its ready-made sweep is planned for",
)


def listed(keys: Mapping[str, Key]) -> str:
    """Return the keys with their help, a line each; where there are two names for one, both."""
    other = {key: f"{key}/{alias}" for alias, key in ALIASES.items()}
    return "\n".join(f"  {other.get(name, name):<13} {key.help}" for name, key in keys.items())


class Words:
    """Values by key, the word that each is from, notes for the user, and the problems met on the way.

    Of several words with one key the last counts. known: the keys as a message lists them.
    """

    def __init__(self, words: Sequence[str], keys: Mapping[str, Key], known: str = "") -> None:
        self.values: dict[str, Any] = {}
        self.origins: dict[str, str] = {}
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._keys = keys
        self._known = known or ", ".join(keys)
        for word in words:
            self._read(word)

    def given(self, *keys: str) -> dict[str, Any]:
        """Return those of ``keys`` that have a value."""
        return {key: self.values[key] for key in keys if key in self.values}

    def origin(self, *keys: str) -> str:
        """Name the words that set ``keys``."""
        return " and ".join(dict.fromkeys(self.origins[key] for key in keys if key in self.origins)) or "arguments"

    def report(self, origin: str, message: str) -> None:
        """Record what is wrong, once."""
        problem = Problem(origin=origin, message=message)
        if problem not in self.problems:
            self.problems.append(problem)

    def refuse(self) -> None:
        """Raise ConfigError with everything that is wrong, if anything is."""
        if self.problems:
            raise ConfigError(self.problems)

    def gpu(self) -> catalogue.GpuSpec | None:
        """Return the GPU that ``gpu=`` names, and note which one of a family that is; None where there is none."""
        name = self.values.get("gpu")
        if name is None:
            return None
        taken = catalogue.representative(name)
        if others := [spec.key for spec in catalogue.family_or_key(name) if spec != taken]:
            self.notes.append(f"gpu={name} is taken as {taken.key}; name another by its key: {', '.join(others)}")
        return taken

    def _read(self, word: str) -> None:
        origin = f"argument '{shorten(word)}'"
        name, equals, text = (part.strip() for part in word.partition("="))
        key = ALIASES.get(name, name)
        if not equals:
            self.report(origin, "is not of the form key=value, such as tp=8 or model=llama-2-7b")
        elif key not in self._keys:
            close = nearest(name, [*self._keys, *(alias for alias, key in ALIASES.items() if key in self._keys)])
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            self.report(origin, f"unknown key '{shorten(name)}'; {hint}there are: {self._known}")
        else:
            self.origins[key] = origin
            try:
                self.values[key] = _value(self._keys[key].rule, text)
            except InvalidValueError as error:
                self.report(origin, f"{name}: {error}")


def _value(rule: Rule, text: str) -> object:
    if isinstance(rule, Integer):
        numbers = tuple(rule.check(_number(part.strip())) for part in (text.split(",") if rule.listed else [text]))
        return numbers if rule.listed else numbers[0]
    return rule.check(_SWITCH.get(text, text) if isinstance(rule, Switch) else text)


def _number(text: str) -> int | str | None:
    """Read a whole number in decimal digits, which may be grouped (``1_024``); other texts stay what they are."""
    refuse_ambiguous(text)
    return int(text) if _WHOLE.fullmatch(text) and len(text) <= _LONGEST else text or None
