"""What choosing well was worth over all Families."""

from orchestrator.report.family import families
from orchestrator.report.gains import gains
from orchestrator.report.markdown import markdown
from tests.reports import candidates, made_run


def test_gains_are_summed_up_over_all_rankings() -> None:
    # The baseline of n Candidates costs 1 + 0.01 (n - 1) times the best: 2%, 4% and 10%.
    found = gains(families([made_run(candidates(0, 3) + candidates(25, 5) + candidates(50, 11))]))
    assert [round(gain or 0, 3) for gain in (found.least, found.median, found.most)] == [0.02, 0.04, 0.1]
    assert "tp=1" in found.least_family
    assert "tp=4" in found.most_family
    assert (found.families, found.measured, found.alone, found.tied) == (3, 3, 3, 0)


def test_nothing_measured_has_no_gain() -> None:
    found = gains(families([made_run([])]))
    assert (found.families, found.measured, found.median) == (0, 0, None)


def test_one_candidate_has_nobody_to_be_faster_than() -> None:
    run = made_run(candidates(0, 1) + candidates(25, 5))
    found = gains(families([run]))
    assert (found.measured, found.contested, found.alone) == (2, 1, 1)
    alone = markdown([made_run(candidates(0, 1))], [])
    assert "faster than all others" not in alone
    assert "In 1 of 1 rankings one Candidate is faster than all others." in markdown([run], [])
