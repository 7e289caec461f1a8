"""What a user asks of ``export``: words ``key=value`` and options made into one record, every mistake reported."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from orchestrator.axis import MAX_DIMENSION
from orchestrator.errors import ConfigError, InvalidValueError, Problem, nearest, shorten, unknown
from orchestrator.export import TARGETS
from orchestrator.export.facts import COUNTS, FACTS
from orchestrator.rules import Choice, Integer, Number, Rule
from orchestrator.schema import RUN_NAME

DEFAULT_RUN = "latest"
FRAMEWORKS = ("vllm", "sglang", "trtllm")
CANDIDATES = ("best", "all")
FILTERS: Mapping[str, str] = MappingProxyType(
    {
        "role": "only these roles, such as mlp,qkv",
        "dtype": "only these element types",
        "h": "only these hidden sizes",
        "tp": "only these tensor-parallel sizes",
        "batch": "only these microbatch sizes",
        "seq": "only these sequence lengths",
        "d_ff": "only these feed-forward sizes",
    }
)
"""Columns of the ranking by which a user selects; several values as 1,2,4."""
HELP: Mapping[str, str] = MappingProxyType(
    {
        **FILTERS,
        "candidates": "best: of each Family only those that tie with the best; all [best for calculon and "
        "llm-analysis, which have one figure for many shapes; else all]",
    }
)
TEXTS = ("role", "dtype")
OPTIONS: Mapping[str, str] = MappingProxyType(
    {"into": "--into", "name": "--as", "framework": "--framework", "version": "--version"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What to export. filters: values by column of the ranking. facts: what the user says of the GPU or the model.

    into: a shipped file or system that is copied. name: what the copy, or the system, is to be called.
    """

    target: str
    run: str = DEFAULT_RUN
    gpu: str | None = None
    filters: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    candidates: str | None = None
    facts: Mapping[str, float] = field(default_factory=dict)
    into: Path | None = None
    name: str | None = None
    framework: str | None = None
    version: str | None = None


def parse(target: str, words: Sequence[str], options: Mapping[str, str | None], takes: Iterable[str] = ()) -> Request:
    """Return what is asked for, or raise ConfigError with everything that is wrong; the last of a key counts.

    options: values by the names of OPTIONS. takes: the facts and options that the target uses.
    """
    return _Parser(target, words, options, tuple(takes)).request()


def known_target(target: str) -> str:
    """Return the name of a target, or raise ConfigError with those that there are."""
    if target not in TARGETS:
        raise ConfigError([Problem(origin="argument --to", message=unknown("target", target, TARGETS))])
    return target


class _Parser:
    """Values by key, the words that name a run, and the problems met on the way."""

    def __init__(
        self, target: str, words: Sequence[str], options: Mapping[str, str | None], takes: tuple[str, ...]
    ) -> None:
        self._problems: list[Problem] = []
        self._target, self._takes = target, takes
        self._runs = [word for word in words if not re.match(r"\w+=", word)]
        self._filters: dict[str, tuple[int | str, ...]] = {}
        self._facts: dict[str, float] = {}
        self._candidates: str | None = None
        for word in words:
            if word not in self._runs:
                self._read(word)
        self._options = {name: value for name, value in options.items() if value is not None}
        self._check_options()

    def request(self) -> Request:
        if len(self._runs) > 1:
            self._report("arguments", f"one run at a time, but got {' and '.join(map(repr, self._runs))}")
        if self._problems:
            raise ConfigError(self._problems)
        into = self._options.get("into")
        return Request(
            target=self._target,
            run=self._runs[0] if self._runs else DEFAULT_RUN,
            filters=self._filters,
            candidates=self._candidates,
            facts=self._facts,
            into=None if into is None else Path(into),
            name=self._options.get("name"),
            framework=self._options.get("framework"),
            version=self._options.get("version"),
        )

    def _read(self, word: str) -> None:
        key, _, text = word.partition("=")
        origin = f"argument '{shorten(word)}'"
        try:
            if key == "candidates":
                self._candidates = str(Choice(what="choice", names=lambda: CANDIDATES).check(text))
            elif key in FILTERS:
                self._filters[key] = tuple(_filter(key, part.strip()) for part in text.split(","))
            elif key in FACTS:
                self._facts[key] = _fact(key, text.strip())
                if key not in self._takes:
                    self._report(origin, f"{key} is of no use for {self._target}; it takes: {self._useful()}")
            else:
                close = nearest(key, (*HELP, *FACTS))
                hint = f"did you mean {' or '.join(close)}? " if close else ""
                self._report(origin, f"unknown key '{shorten(key)}'; {hint}there are: {', '.join((*HELP, *FACTS))}")
        except InvalidValueError as error:
            self._report(origin, f"{key}: {error}")

    def _check_options(self) -> None:
        for name, value in self._options.items():
            origin = f"argument {OPTIONS[name]}"
            if name not in self._takes:
                self._report(origin, f"is of no use for {self._target}")
            elif name == "framework" and value not in FRAMEWORKS:
                self._report(origin, unknown("framework", value, FRAMEWORKS))
            elif name in ("name", "version") and not RUN_NAME.fullmatch(value):
                self._report(origin, f"'{shorten(value)}' is no name: use letters, digits, '.', '_', '+' and '-'")

    def _useful(self) -> str:
        return ", ".join(key for key in self._takes if key in FACTS) or "none"

    def _report(self, origin: str, message: str) -> None:
        self._problems.append(Problem(origin=origin, message=message))


def _filter(key: str, text: str) -> int | str:
    if key in TEXTS:
        if not text:
            raise InvalidValueError("empty; give names such as mlp,qkv")
        return text
    return int(_number(text, Integer(high=MAX_DIMENSION)))


def _fact(key: str, text: str) -> float:
    return _number(text, Integer() if key in COUNTS else Number(above=0))


def _number(text: str, rule: Rule) -> float:
    """Read a number, digits may be grouped (``1_024``)."""
    try:
        value: object = int(text)
    except ValueError:
        try:
            value = float(text)
        except ValueError:
            value = text
    checked = rule.check(value)
    assert isinstance(checked, (int, float))
    return checked
