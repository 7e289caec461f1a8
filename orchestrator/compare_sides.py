"""What a user wants compared: every word opened as a run or a published table, and what must not be compared."""

from collections.abc import Sequence

from orchestrator.compare_run import sides_of_run
from orchestrator.compare_side import Side, side_of_table
from orchestrator.errors import InvalidValueError, StoreError, each_of
from orchestrator.imports import TimingTable, is_named_like_one, is_table, read_table
from orchestrator.runs import find_run
from orchestrator.store import RunStore


def open_sides(words: Sequence[str], directory: str, spool: str | None = None) -> list[Side]:
    """Open runs (path, URI, name, latest) and tables (PATH or GPU=PATH); a run of several GPU models is several sides.

    directory, spool: as ``find_run`` takes them.

    Raises:
        StoreError, InvalidValueError: one cannot be read, there are fewer than two, one comes twice, or protocols
            differ.
        SeveralErrors: several cannot be read.
    """
    sides = open_results(words, directory, spool)
    if len(sides) < 2:
        what = f"'{words[0]}' is of one GPU model" if words else "nothing was named"
        raise InvalidValueError(f"two runs or tables are needed to compare, {what}: compare A B [C …]")
    return sides


def open_results(words: Sequence[str], directory: str, spool: str | None = None) -> list[Side]:
    """Open what ``open_sides`` opens, one or more; raises what it raises but for their number."""
    opened = each_of(lambda word: (word, _opened(word, directory, spool)), words)  # all, before one is ranked
    sides = [side for found in each_of(lambda each: _sides(*each), opened) for side in found]
    _distinct(sides)
    _one_protocol(sides)
    return sides


def _opened(word: str, directory: str, spool: str | None) -> RunStore | TimingTable:
    if is_table(word):
        return read_table(word)
    try:
        return find_run(word, directory, spool)
    except StoreError as error:
        if is_named_like_one(word):
            return read_table(word)  # which says what is wrong with it
        raise StoreError(f"{error}; or the path of a published table") from error


def _sides(word: str, found: RunStore | TimingTable) -> list[Side]:
    return sides_of_run(word, found) if isinstance(found, RunStore) else [side_of_table(word, found)]


def _distinct(sides: Sequence[Side]) -> None:
    seen: dict[tuple[str, str], Side] = {}
    for side in sides:
        other = seen.setdefault((side.path, side.gpu), side)
        if other is not side:
            raise InvalidValueError(f"'{other.name}' and '{side.name}' are the same: {side.path}")


def _one_protocol(sides: Sequence[Side]) -> None:
    """Runs are compared only where they were measured in the same way."""
    runs = [side for side in sides if side.protocol is not None]
    for side in runs[1:]:
        first, own = runs[0].protocol or {}, side.protocol or {}
        if different := [f"{key} {first[key]} and {own[key]}" for key in own if first.get(key) != own[key]]:
            raise InvalidValueError(
                f"'{runs[0].name}' and '{side.name}' were measured by different protocols, which are not compared: "
                + ", ".join(different)
            )
