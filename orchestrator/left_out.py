"""What a space leaves out, as columns."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.column import Array
from orchestrator.sift import UNWANTED, Sifted
from orchestrator.skips import Skip
from orchestrator.slate import key_fields
from orchestrator.slates import Slates


class SkippedPoints:
    """Points that ``sift`` left out."""

    def __init__(self, sifted: Sifted) -> None:
        """Take the sifted Points."""
        self._sifted = sifted
        self._rows = np.flatnonzero(sifted.codes)

    def __len__(self) -> int:
        return len(self._rows)

    def skip(self, place: int) -> Skip:
        """The Skip of one Point."""
        sifted, row = self._sifted, int(self._rows[place])
        slate = sifted.slates.slate(int(sifted.owners[row]))
        value = int(sifted.slates.values[row])
        kind = sifted.kinds[sifted.codes[row]]
        reason = sifted.unmet if kind == UNWANTED else slate.refusal(value)[1]
        return Skip(**key_fields(slate.key), value=value, points=1, kind=kind, reason=reason)

    def counts(self) -> dict[str, int]:
        """How many Points there are of each kind."""
        codes = self._codes()
        count = np.bincount(codes, minlength=1)
        found = [code for code in range(1, len(count)) if count[code]]
        found.sort(key=lambda code: int(np.argmax(codes == code)))
        return {self._sifted.kinds[code]: int(count[code]) for code in found}

    def places(self, kind: str) -> Iterable[int]:
        """Where those of a kind are."""
        if kind not in self._sifted.kinds:
            return ()
        found: list[int] = np.flatnonzero(self._codes() == self._sifted.kinds.index(kind)).tolist()
        return found

    def _codes(self) -> Array:
        return self._sifted.codes[self._rows]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class SkippedFamilies:
    """Whole Families that are left out for one reason."""

    slates: Slates
    kind: str
    reason: str

    def __len__(self) -> int:
        return len(self.slates)

    def skip(self, place: int) -> Skip:
        """The Skip of one Family."""
        key = key_fields(self.slates.slate(place).key)
        points = int(np.diff(self.slates.starts[place : place + 2])[0])
        return Skip(**key, value=None, points=points, kind=self.kind, reason=self.reason)

    def counts(self) -> dict[str, int]:
        """How many Points there are."""
        return {self.kind: len(self.slates.values)}

    def places(self, kind: str) -> Iterable[int]:
        """All of them, or none."""
        return range(len(self)) if kind == self.kind else ()
