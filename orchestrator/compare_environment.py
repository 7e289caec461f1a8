"""In what environments the runs were made, where they differ."""

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.compare_side import Side

NOT_TOLD = "not told"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One thing, with what each side says of it."""

    name: str
    values: tuple[str, ...]


def differences(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Return what is not the same on all sides; an import tells only who published it."""
    names = dict.fromkeys(name for side in sides for name in side.environment)
    found = (Difference(name=name, values=tuple(_value(side, name) for side in sides)) for name in names)
    published = Difference(name="published by", values=tuple(side.source or "measured here" for side in sides))
    kept = [each for each in found if len(set(each.values)) > 1]
    return (published, *kept) if len(set(published.values)) > 1 else tuple(kept)


def _value(side: Side, name: str) -> str:
    return ", ".join(side.environment.get(name, ())) or NOT_TOLD
