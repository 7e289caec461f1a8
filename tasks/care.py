"""How carefully a Bundle is treated that may hold a Gemm which takes its device's worker down."""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.gemm import Gemm
from tasks.records import GemmFacts

OnTrying = Callable[[Gemm], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Care:
    """What is known of a Bundle from earlier attempts at it.

    one_by_one: name each Gemm before it runs for the first time and wait for it, so that the guilty one is known if the
    process dies or hangs; else all of them are queued at once, which is faster.
    last: a Gemm for which memory does not suffice is given up; else the whole attempt fails, so that a process with
    clean memory can try again.
    lost: Gemms that are given up already: they do not run.
    limit: a Gemm that ran out of memory on this model of device: those that need as much or more are skipped.
    """

    one_by_one: bool = False
    last: bool = True
    lost: tuple[GemmFacts, ...] = ()
    limit: Gemm | None = None

    def too_large(self, gemm: Gemm) -> str | None:
        """Why ``gemm`` is not tried, or None."""
        if self.limit is None or gemm.bytes < self.limit.bytes:
            return None
        return f"needs as much memory as {self.limit.gemm_id}, or more, which ran out of it"

    def wanted(self, gemms: tuple[Gemm, ...]) -> tuple[Gemm, ...]:
        """The Gemms that are not given up."""
        lost = {facts.gemm_id for facts in self.lost}
        return tuple(gemm for gemm in gemms if gemm.gemm_id not in lost)
