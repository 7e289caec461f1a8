"""One sentence a Family: who is best, who ties, what it gains, and what to know before believing it."""

from typing import Any

from orchestrator.report.verdict import verdict
from tests.builders import RANKING_ROW

FAILED = {
    **{"rank": None, "tie_group": None, "status": "oom", "message": "too big", "tflops": None, "relative": None},
    **{"speedup": None, "speedup_low": None, "speedup_high": None},
}


def row(value: int, relative: float, tie: int, **changes: Any) -> dict[str, Any]:
    """A ranked Candidate that costs ``relative`` times the best; the baseline, where there is one, costs twice that."""
    faster = 2.0 / relative
    return {
        **RANKING_ROW,
        **{"value": value, "d_ff": value, "params": value * 1000, "relative": relative, "tie_group": tie, "rank": tie},
        **{"tflops": 600.0 / relative, "speedup": faster, "speedup_low": faster * 0.99, "speedup_high": faster * 1.01},
        **changes,
    }


def test_the_best_stands_alone_with_its_gain_over_the_baseline() -> None:
    base = row(100, 2.0, 2, baseline=True, speedup=1.0)
    found = verdict([row(128, 1.0, 1), base])
    assert found.sentence == ("d_ff 128 is best at 600.0 TFLOP/s, +100.0% over the baseline 100. No other is as fast.")
    assert (found.best, found.gain, found.tied, found.baseline) == (128, 1.0, (), 100)


def test_of_a_tie_group_the_estimated_best_leads_and_the_leanest_is_named() -> None:
    # In the ranking's order: those with fewer parameters first.
    found = verdict([row(120, 1.002, 1), row(128, 1.0, 1), row(136, 1.001, 1), row(100, 2.0, 4, baseline=True)])
    assert (found.best, found.tied, found.lean) == (128, (120, 136), 120)
    assert "120, 136 cannot be told from it; of these 120 has the fewest parameters (120,000)" in found.sentence


def test_a_best_that_cannot_be_told_from_the_baseline_has_no_gain_in_its_sentence() -> None:
    found = verdict(
        [row(128, 1.0, 1, speedup=1.01, speedup_low=0.99, speedup_high=1.03), row(96, 1.01, 1, baseline=True)]
    )
    assert not found.distinct
    assert "cannot be told from the baseline 96" in found.sentence
    assert "%" not in found.sentence


def test_the_baseline_may_be_the_best_or_missing_or_not_measured() -> None:
    found = verdict([row(128, 1.0, 1, baseline=True, speedup=1.0), row(96, 1.5, 2)])
    assert "it is the baseline" in found.sentence
    assert (found.gain, found.distinct) == (0.0, False)
    nothing = {"speedup": None, "speedup_low": None, "speedup_high": None}
    assert "there is no baseline" in verdict([row(128, 1.0, 1, **nothing)]).sentence
    failed = row(96, 1.0, 1, baseline=True) | FAILED
    assert "the baseline 96 was not measured" in verdict([row(128, 1.0, 1, **nothing), failed]).sentence


def test_what_was_not_measured_is_counted() -> None:
    found = verdict([row(128, 1.0, 1), row(96, 1.5, 2), row(64, 1.0, 1) | FAILED, row(32, 1.0, 1) | FAILED])
    assert (found.measured, found.failed) == (2, 2)
    assert found.sentence.endswith("Not measured: 2 oom.")


def test_where_all_have_as_many_parameters_none_has_the_fewest() -> None:
    alike = [row(64, 1.001, 1, axis="batch", params=1000), row(128, 1.0, 1, axis="batch", params=1000)]
    assert verdict(alike).sentence.count("parameters") == 0


def test_a_family_of_failures_says_so() -> None:
    found = verdict([row(64, 1.0, 1) | FAILED])
    assert (found.best, found.sentence) == (None, "Nothing was measured: 1 oom.")


def test_many_ties_are_counted_not_listed() -> None:
    all_alike = verdict([row(100 + i, 1.0 + i / 1e4, 1) for i in range(9)])
    assert "None of the 9 can be told from another" in all_alike.sentence
    most = verdict([*(row(100 + i, 1.0 + i / 1e4, 1) for i in range(9)), row(200, 2.0, 10)])
    assert "101, 102, 103, 104, 105, 106 and 2 more cannot be told from it" in most.sentence


def test_what_makes_an_order_doubtful_is_in_the_sentence() -> None:
    told: list[tuple[dict[str, Any], str]] = [
        ({"throttled": True}, "throttled"),
        ({"protocol": "seed", "resolved": False, "stop_reason": "fixed"}, "One figure a shape: no intervals"),
        (
            {"protocol": "seed", "resolved": False, "stop_reason": "interrupted"},
            "One figure a shape: no intervals; not all (interrupted)",
        ),
        ({"protocol": "sequential", "resolved": False, "stop_reason": "fixed"}, "what drifted is part of the figures"),
        ({"resolved": False, "stop_reason": "max_seconds, resolved"}, "not resolved (max_seconds)"),
        ({"resolved": False, "stop_reason": "resolved"}, "not resolved (it was before its last rounds)"),
    ]
    for change, words in told:
        assert words in verdict([row(128, 1.0, 1, **change), row(96, 1.5, 2, **change)]).sentence


def test_whether_the_order_is_resolved_is_known_beside_what_is_told() -> None:
    def resolved(**change: Any) -> bool:
        return verdict([row(128, 1.0, 1, **change), row(96, 1.5, 2, **change)]).resolved

    assert resolved()
    assert not resolved(
        throttled=True, resolved=False, stop_reason="max_rounds"
    )  # the sentence tells of the throttling
    assert resolved(protocol="seed", resolved=False, stop_reason="fixed")
    assert resolved(protocol="sequential", resolved=False, stop_reason="fixed")
