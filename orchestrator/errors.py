"""What can go wrong for a user, under one root: the text is complete, a traceback is never needed to act on it."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

Asked = TypeVar("Asked")
Found = TypeVar("Found")


class OrchestratorError(Exception):
    """Root of the errors that a user can act on; ``str(error)`` is the whole message."""

    exit_code = 2

    def __str__(self) -> str:
        """Return the message and, a line each, the notes that were added to it."""
        return "\n".join((super().__str__(), *getattr(self, "__notes__", ())))


class InvalidValueError(OrchestratorError):
    """A value that cannot be used: the message says why and what is right, without naming where it came from."""


class ClusterError(OrchestratorError):
    """The cluster cannot be reached, or has no device that the request can run on."""


class EngineLostError(ClusterError):
    """Ray itself has ended under a sweep: nobody can be asked for anything any more."""


class StoreError(OrchestratorError):
    """A run directory that cannot be read or written."""


class RunExistsError(StoreError):
    """A run that is to be made, by a name that another one has."""


class ResumeError(OrchestratorError):
    """A run that must not be continued as asked: the text lists what differs."""


class ExportError(OrchestratorError):
    """A ranking that cannot be written for another tool as asked."""


class SpaceError(OrchestratorError):
    """A search space in which nothing is left to measure."""


class SeveralErrors(OrchestratorError):
    """What is wrong with several of the things that were named, one after the other."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One thing wrong with the configuration: ``origin`` is a file (``conf/a100.yaml``) or an argument."""

    origin: str
    message: str

    def __str__(self) -> str:
        """Return the line that a user reads."""
        return f"{self.origin}: {self.message}"


class ConfigError(OrchestratorError):
    """Everything that is wrong with a configuration, one line each: first what cannot be read, then wrong values."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        """Keep ``problems``; the text lists them all."""
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def each_of(read: Callable[[Asked], Found], asked: Iterable[Asked]) -> list[Found]:
    """Return ``read`` of everything that is asked for.

    Raises:
        OrchestratorError: that of the only one that is wrong; SeveralErrors where more are.
    """
    found: list[Found] = []
    wrong: dict[str, OrchestratorError] = {}
    for each in asked:
        try:
            found.append(read(each))
        except OrchestratorError as error:
            wrong.setdefault(str(error), error)
    if len(wrong) > 1:
        raise SeveralErrors("\n".join(wrong))
    if wrong:
        raise next(iter(wrong.values()))
    return found


@contextmanager
def noted(lines: Iterable[str]) -> Iterator[None]:
    """Add ``lines`` to an error that ends the block: what could not be read may be why something is not found."""
    try:
        yield
    except OrchestratorError as error:
        for line in lines:
            error.add_note(line)
        raise


def nearest(name: str, names: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to ``limit`` of ``names`` that look like ``name``, best first.

    >>> nearest("mlp_dwn", ["mlp", "mlp_down", "seed_bmm"], limit=1)
    ['mlp_down']
    """
    folded = {other.lower(): other for other in names}
    return [folded[match] for match in difflib.get_close_matches(name.lower(), folded, n=limit, cutoff=0.6)]


def unknown(what: str, name: str, names: Iterable[str]) -> str:
    """Say that ``name`` is no known ``what``, with the nearest names and all the names that there are."""
    known = list(names)
    close = nearest(name, known)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    return f"unknown {what} '{name}'; {hint}there are: {', '.join(known)}"


def unknown_part(name: str, names: Iterable[str]) -> str:
    """Say that a mapping takes no such part; without a space after its colon YAML takes part and value for one name.

    >>> unknown_part("start:1", ["start", "stop"])
    "'start:1' is no part and its value: a space must follow the colon, as in {start: 1}"
    """
    known = list(names)
    part, colon, value = name.partition(":")
    if colon and part in known:
        return f"'{name}' is no part and its value: a space must follow the colon, as in {{{part}: {value or 1}}}"
    return unknown("part", name, known)


def describe(value: object) -> str:
    """Name a value the way YAML writes it, with its type where that is what went wrong.

    >>> describe(True), describe(2.5), describe(None), describe("x")
    ('true (a boolean)', '2.5 (a decimal number)', 'nothing (null)', "'x'")
    """
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return f"{str(value).lower()} (a boolean)"
    if isinstance(value, float):
        return f"{value!r} (a decimal number)"
    if isinstance(value, int) and abs(value) > 10**20:
        return f"a whole number of {len(hex(abs(value))) - 2} hexadecimal digits"
    return shorten(str(value)) if isinstance(value, (int, list, dict)) else repr(shorten(str(value)))


def shorten(text: str, limit: int = 80) -> str:
    r"""Put a text on one line of bounded length: long ones are cut, what cannot be printed is written as ``\n``."""
    return _escaped(text if len(text) <= limit else text[: limit - 1] + "…")


def printable(text: str) -> str:
    r"""Write what would command the terminal as it is in Python (``\x1b``); lines stay lines."""
    return "\n".join(map(_escaped, text.split("\n")))


def _escaped(text: str) -> str:
    return (
        text
        if text.isprintable()
        else "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    )
