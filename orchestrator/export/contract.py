"""What every exporter is: a pure function from what was measured to files, and what it may be told."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.errors import ExportError
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection


@dataclass(frozen=True, kw_only=True, slots=True)
class Export:
    """Files by their path under the output directory, and what did not get into them.

    gemms: how many are in the files. left_out: how many of what, by a line that says why. notes: what to know.
    sources: files and folders that were copied; nothing may be written there.
    """

    files: Mapping[str, bytes]
    gemms: int
    left_out: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    sources: tuple[Path, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Exporter:
    """One target.

    export: the same arguments give the same bytes; it reads nothing but what ``--into`` names and writes nothing.
    facts: keys of FACTS that it uses. options: which of ``into``, ``name``, ``framework`` and ``version`` it takes.
    summary: it writes one figure for many shapes, and so asks for the Candidates that one would choose.
    """

    export: Callable[[Selection, Request], Export]
    facts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    summary: bool = False


def kept(
    target: str, entries: Iterable[Entry], why_not: Callable[[Entry], str | None]
) -> tuple[list[Entry], Counter[str]]:
    """Part the entries that a target can hold from the others, which are counted by the reason.

    Raises:
        ExportError: it can hold none of them.
    """
    inside: list[Entry] = []
    left_out: Counter[str] = Counter()
    for entry in entries:
        reason = why_not(entry)
        if reason is None:
            inside.append(entry)
        else:
            left_out[reason] += 1
    if not inside:
        raise nothing(target, left_out)
    return inside, left_out


def nothing(target: str, left_out: Mapping[str, int]) -> ExportError:
    """The error of an export in which nothing is left."""
    lines = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
    return ExportError(f"nothing of this selection can be written for {target}: {lines or 'no Gemm was measured'}")
