"""What choosing well was worth over all Families."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.report.family import ReportFamily


@dataclass(frozen=True, kw_only=True, slots=True)
class Gains:
    """Gains over the baseline, 0.03 is 3%; None where no Family has one. least_family, most_family: their titles.

    contested: Families with more than one measured Candidate. alone: Families whose best no other Candidate equals;
    tied: those where some do. unresolved: Families whose order is not resolved.
    """

    families: int
    measured: int
    least: float | None
    median: float | None
    most: float | None
    least_family: str
    most_family: str
    contested: int
    alone: int
    tied: int
    unresolved: int


def gains(families: Sequence[ReportFamily]) -> Gains:
    """Sum up the verdicts; a Family on several GPU models or in several runs counts once for each."""
    found = [(series.verdict, family.title) for family in families for series in family.series]
    known = sorted(((each.gain, title) for each, title in found if each.gain is not None), key=lambda pair: pair[0])
    measured = [each for each, _ in found if each.best is not None]
    return Gains(
        families=len(families),
        measured=len(measured),
        least=known[0][0] if known else None,
        median=median(gain for gain, _ in known) if known else None,
        most=known[-1][0] if known else None,
        least_family=known[0][1] if known else "",
        most_family=known[-1][1] if known else "",
        contested=sum(each.measured > 1 for each in measured),
        alone=sum(not each.tied and each.measured > 1 for each in measured),
        tied=sum(bool(each.tied) for each in measured),
        unresolved=sum(not each.resolved for each in measured),
    )
