"""What of a Bundle is measured first, and what then: everything at once, or level by level where a Family is wide."""

from collections.abc import Iterable, Sequence

from tasks.comparison import Comparison
from tasks.family import Bundle, Family, Part
from tasks.gemm import Gemm
from tasks.records import GemmFacts
from tasks.settings import Timing
from tasks.wide import LEVEL_ROUNDS, Search


class Levels:
    """gemms: those of the level. rounds: how many it has; None for the race, the last one. wide: whether others are."""

    def __init__(self, bundle: Bundle, timing: Timing) -> None:
        self._bundle = bundle
        self._searches = [(family, Search(family)) for family in bundle.families]
        self.wide = timing.goal == "top" and any(search.wide for _, search in self._searches)
        self._asked: set[Gemm] = set()
        self.rounds = LEVEL_ROUNDS if self.wide else None
        self.gemms = self._of([search.first() for _, search in self._searches]) if self.wide else bundle.gemms

    def following(self, comparisons: Sequence[Comparison]) -> None:
        """Go on to what follows from a level that compared each Family so."""
        found = [
            search.following(comparison) for (_, search), comparison in zip(self._searches, comparisons, strict=True)
        ]
        self.gemms = self._of([candidates for candidates, _ in found])
        self.rounds = None if all(race for _, race in found) else LEVEL_ROUNDS

    def left_out(self) -> list[GemmFacts]:
        """Facts of the Gemms that were not worth measuring, with the reason."""
        if not self.wide:
            return []
        reasons: dict[str, str] = {}
        for family, search in self._searches:
            for i, candidate in enumerate(family.candidates):
                missing = [part.gemm.gemm_id for part in candidate.parts if part.gemm not in self._asked]
                if missing:
                    reasons.update(dict.fromkeys(missing, search.why_not(i)))
        return [GemmFacts(gemm_id=gemm_id, status="skipped", message=reason) for gemm_id, reason in reasons.items()]

    def _of(self, chosen: Iterable[Sequence[int]]) -> tuple[Gemm, ...]:
        gemms = {
            part.gemm: None
            for (family, _), candidates in zip(self._searches, chosen, strict=True)
            for part in _parts(family, candidates)
        }
        self._asked.update(gemms)
        return tuple(gemms)


def _parts(family: Family, candidates: Sequence[int]) -> Iterable[Part]:
    for i in candidates:
        yield from family.candidates[i].parts
