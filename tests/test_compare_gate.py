"""The gate: what a slowdown is called, what noise is not, how often it is wrong on runs with known truth."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from orchestrator import cli
from orchestrator.compare_gate import CONFIDENCE, EXCESS_PCT, LEVEL_PCT, Gate, gate, judge
from orchestrator.compare_levels import Floats, family_change, rounds_of
from orchestrator.store import RunStore, shard_table
from tasks.family import Family
from tasks.gemm import Gemm
from tasks.settings import Timing
from tests.builders import Cost, as_bundle, measurement, up_family
from tests.reruns import again

EXAMPLE = RunStore.open(Path(cli.__file__).parents[1] / "results" / "examples" / "h200-seed-and-mlp")
AGAIN = Path(__file__).parent / "data" / "h200-again"
"""Two Families of two runs one after the other on one H200."""
VALUES = (64, 128, 192, 256, 320)
FAMILIES = tuple(up_family(VALUES, tp=tp) for tp in (1, 2, 4))
SLOW_FAMILY = "mlp-h4096-tp4-b4-s2048-fp16"


def store_of(
    path: Path,
    cost: Cost,
    *,
    seed: int = 0,
    noise: float = 0.002,
    rounds: int = 40,
    failed: Mapping[str, tuple[str, str]] | None = None,
    families: tuple[Family, ...] = FAMILIES,
) -> RunStore:
    store = RunStore.create(path.parent, path.name, {})
    for i, family in enumerate(families):
        statuses = {name: status for name, status in (failed or {}).items() if name in ids(family)}
        measured = measurement(family, cost, random_seed=100 * seed + i, noise=noise, rounds=rounds, status=statuses)
        store.write_shard(
            shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p")
        )
    return store


def ids(family: Family) -> set[str]:
    return {gemm.gemm_id for gemm in family.gemms}


def steady(gemm: Gemm, number: int) -> float:
    return gemm.flops * 1e-12


def named(found: Gate) -> list[tuple[str, int | None]]:
    return [(each.family_id, each.value) for each in found.slower]


# What is named


def test_equal_runs_pass(tmp_path: Path) -> None:
    found = gate(store_of(tmp_path / "a", steady), store_of(tmp_path / "b", steady, seed=1), 3.0)
    assert (found.passed, found.slower, found.families, found.candidates) == (True, (), 3, 15)


def test_a_slower_family_is_named_once_with_its_interval(tmp_path: Path) -> None:
    one = (up_family(VALUES, h=64), up_family(VALUES, h=128))
    cost: Cost = lambda gemm, number: steady(gemm, number) * (1.05 if gemm.k == 128 else 1.0)  # noqa: E731
    old, new = (
        store_of(tmp_path / name, which, seed=i, families=one)
        for i, (name, which) in enumerate([("a", steady), ("b", cost)])
    )
    (slower,) = gate(old, new, 3.0).slower
    assert (slower.family_id, slower.value, slower.candidates) == ("mlp_up-h128-tp1-b4-s8-fp16", None, 5)
    assert slower.percent == pytest.approx(5.0, abs=0.3)
    assert slower.low == pytest.approx(5.0 - LEVEL_PCT, abs=0.4)
    assert 0 < slower.low < 5.0 < slower.high


def test_a_slower_candidate_is_named_alone(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady)
    new = store_of(tmp_path / "b", lambda gemm, number: steady(gemm, number) * (1.06 if gemm.n == 320 else 1.0), seed=1)
    assert named(gate(old, new, 3.0)) == [("mlp_up-h64-tp1-b4-s8-fp16", 320)]


def test_a_candidate_that_is_slower_still_is_named_beside_its_family(tmp_path: Path) -> None:
    families = (up_family(VALUES),)
    cost: Cost = lambda gemm, number: steady(gemm, number) * (1.3 if gemm.n == 320 else 1.06)  # noqa: E731
    old = store_of(tmp_path / "a", steady, families=families)
    found = gate(old, store_of(tmp_path / "b", cost, seed=1, families=families), 3.0)
    assert [value for _, value in named(found)] == [None, 320]
    assert found.slower[1].percent == pytest.approx(30.0, abs=1.0)


def test_less_than_the_floor_is_not_named(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady)
    new = store_of(tmp_path / "b", lambda gemm, number: 1.02 * steady(gemm, number), seed=1)
    assert gate(old, new, 3.0).passed
    assert len(gate(old, new, 1.0).slower) == 3  # 2% is beyond what a level moves


def test_what_levels_move_from_run_to_run_is_not_named_whatever_the_floor(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady, noise=0.0)
    new = store_of(tmp_path / "b", lambda gemm, number: 1.013 * steady(gemm, number), noise=0.0)
    assert gate(old, new, 0.0).passed


def test_what_a_candidate_moves_within_its_family_is_not_named_whatever_the_floor(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady, noise=0.0)
    for percent, named_ones in ((EXCESS_PCT - 0.1, 0), (EXCESS_PCT + LEVEL_PCT, 1)):
        slower = 1 + percent / 100
        new = store_of(
            tmp_path / f"b{named_ones}",
            lambda gemm, number, slower=slower: steady(gemm, number) * (slower if gemm.n == 320 else 1.0),  # type: ignore[misc]
            noise=0.0,
        )
        assert len(gate(old, new, 0.0).slower) == named_ones


def test_the_more_is_judged_the_wider_is_each_interval(tmp_path: Path) -> None:
    """Bonferroni: half of the error over the Families, half over the Candidates."""
    cost: Cost = lambda gemm, number: steady(gemm, number) * (1.3 if gemm.n == 320 else 1.06)  # noqa: E731

    def both(families: tuple[Family, ...]) -> list[float]:
        name = f"{len(families)}-{len(families[0].candidates)}"
        old = store_of(tmp_path / f"a{name}", steady, families=families, noise=0.02)
        new = store_of(tmp_path / f"b{name}", cost, seed=1, families=families, noise=0.02)
        key = families[0].family_id
        found = {
            each.value: each.high - each.low
            for each in judge_without_allowance(old, new).slower
            if each.family_id == key
        }
        return [found[None], found[320]]

    def judge_without_allowance(old: RunStore, new: RunStore) -> Gate:
        before, after = rounds_of(old), rounds_of(new)
        return judge({key: (before[key], after[key]) for key in before}, 3.0, level_pct=0.0, excess_pct=0.0)

    one = both((up_family(VALUES),))
    several = both(tuple(up_family(VALUES, tp=tp, h=64 * tp) for tp in (1, 2, 4, 8)))
    assert several[0] > 1.1 * one[0]
    assert several[1] > 1.1 * one[1]


def test_faster_is_no_fault(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady)
    assert gate(old, store_of(tmp_path / "b", lambda gemm, number: 0.8 * steady(gemm, number)), 0.0).passed


def test_what_fails_now_fails_the_gate_and_what_was_not_tried_does_not(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady)
    broken = min(ids(FAMILIES[2]) - ids(FAMILIES[0]) - ids(FAMILIES[1]))  # tp 4 alone has it
    new = store_of(tmp_path / "b", steady, seed=1, failed={broken: ("wrong_result", "off by 3")})
    found = gate(old, new, 3.0)
    assert not found.passed
    assert [(each.family_id, each.why) for each in found.failed] == [
        ("mlp_up-h64-tp4-b4-s8-fp16", "wrong_result: up: off by 3")
    ]
    fewer = store_of(tmp_path / "c", steady, seed=1, families=FAMILIES[:2])
    found = gate(old, fewer, 3.0)
    assert (found.passed, found.not_in_new) == (True, 1)
    skipped = store_of(tmp_path / "d", steady, seed=1, failed={broken: ("skipped", "needs 3 GiB")})
    found = gate(old, skipped, 3.0)
    assert found.passed
    assert [(each.value, each.why) for each in found.not_judged] == [(64, "skipped: up: needs 3 GiB")]


def test_what_is_unsupported_now_and_was_measured_before_fails_the_gate(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady, families=FAMILIES[:1])
    refused = {gemm.gemm_id: ("unsupported", "not in this torch") for gemm in FAMILIES[0].gemms[:1]}
    found = gate(old, store_of(tmp_path / "b", steady, seed=1, failed=refused, families=FAMILIES[:1]), 3.0)
    assert not found.passed
    assert [each.why for each in found.failed] == ["unsupported: up: not in this torch"]
    every = {gemm.gemm_id: ("unsupported", "not in this torch") for gemm in FAMILIES[0].gemms}
    assert len(gate(old, store_of(tmp_path / "c", steady, failed=every, families=FAMILIES[:1]), 3.0).failed) == 5


def test_candidates_that_are_not_in_the_second_run_are_listed(tmp_path: Path) -> None:
    old = store_of(tmp_path / "a", steady, families=(up_family(VALUES),))
    found = gate(old, store_of(tmp_path / "b", steady, seed=1, families=(up_family(VALUES[:3]),)), 3.0)
    assert found.passed
    assert [(each.value, each.why) for each in found.not_judged] == [
        (value, "it is not in the second run") for value in VALUES[3:]
    ]


def test_too_few_rounds_are_not_judged_and_said_so(tmp_path: Path) -> None:
    old, new = (store_of(tmp_path / name, steady, rounds=3) for name in "ab")
    found = gate(old, new, 3.0)
    assert found.passed
    assert {each.why for each in found.not_judged} == {"too few rounds for an interval"}


def test_families_in_which_less_than_the_floor_is_noise_are_counted(tmp_path: Path) -> None:
    old, new = (store_of(tmp_path / name, steady, noise=0.1, rounds=20, seed=i) for i, name in enumerate("ab"))
    found = gate(old, new, 3.0)
    assert len(found.unseen) == 3
    assert found.unseen[0][1] >= found.unseen[1][1] > 3.0


def test_a_boost_once_the_slow_have_left_is_not_the_level(tmp_path: Path) -> None:
    """A Candidate leaves after 12 rounds. Then the chip boosts by 18%, in BASE to the end, in NEW for ten rounds."""

    def boosting(rounds: int) -> Cost:
        def cost(gemm: Gemm, number: int) -> float:
            left = math.nan if gemm.n == 320 and number >= 12 else 1.0
            return steady(gemm, number) * left * (0.82 if 12 <= number < 12 + rounds else 1.0)

        return cost

    families = (up_family(VALUES),)
    old = store_of(tmp_path / "a", boosting(40), families=families)
    new = store_of(tmp_path / "b", boosting(10), seed=1, families=families)
    assert gate(old, new, 0.0).passed
    change = family_change(*(next(iter(rounds_of(store).values())) for store in (old, new)))
    assert change.level is not None
    assert change.level.estimate == pytest.approx(0.0, abs=0.002)
    assert change.excess[320].estimate == pytest.approx(0.0, abs=0.003)  # by what it cost beside the others


def test_unlike_candidates_have_one_level(tmp_path: Path) -> None:
    """Half of the Candidates cost ten times the others: what the Family got slower by is no jump between them."""
    families = (up_family(VALUES[:4]),)
    unlike: Cost = lambda gemm, number: steady(gemm, number) * (10.0 if gemm.n in VALUES[:2] else 1.0)  # noqa: E731
    slower: Cost = lambda gemm, number: 1.04 * unlike(gemm, number)  # noqa: E731
    old = store_of(tmp_path / "a", unlike, families=families)
    new = store_of(tmp_path / "b", slower, seed=1, families=families)
    (named,) = gate(old, new, 3.0).slower
    assert (named.value, named.candidates) == (None, 4)
    assert named.percent == pytest.approx(4.0, abs=0.2)


# How often it is wrong


def alarms(path: Path, pairs: int, level_pct: float, excess_pct: float, move: float) -> int:
    """Of so many pairs of equal runs, in how many anything is named at no floor.

    The level wanders from round to round by 1%, correlated by 0.5, and differs between two runs by up to ``move``.
    """
    random = np.random.default_rng(7)
    count = 0
    for pair in range(pairs):
        both = []
        for side in range(2):
            wander = np.exp(autoregression(random, 0.5, 0.01) + random.uniform(-move, move) / 2)

            def cost(gemm: Gemm, number: int, wander: Floats = wander) -> float:
                return steady(gemm, number) * float(wander[number])

            both.append(
                rounds_of(
                    store_of(path / f"{pair}-{side}", cost, seed=2 * pair + side, noise=0.004, families=FAMILIES[:2])
                )
            )
        families = {key: (both[0][key], both[1][key]) for key in both[0]}
        count += not judge(families, 0.0, level_pct=level_pct, excess_pct=excess_pct).passed
    return count


def autoregression(random: np.random.Generator, correlation: float, spread: float) -> Floats:
    """Forty logarithms of a level that wanders as a chip's clock does."""
    found = [spread * random.standard_normal()]
    for _ in range(39):
        found.append(correlation * found[-1] + math.sqrt(1 - correlation**2) * spread * random.standard_normal())
    return np.array(found)


@pytest.mark.slow
def test_equal_runs_have_a_false_alarm_in_at_most_one_of_twenty(tmp_path: Path) -> None:
    """The intervals alone: no floor, nothing allowed for what moves between runs, and nothing that does."""
    assert alarms(tmp_path, 100, 0.0, 0.0, 0.0) <= 10  # more than 10 of 100 has a chance of 1% at 5%


@pytest.mark.slow
def test_levels_that_move_as_measured_raise_no_more(tmp_path: Path) -> None:
    """The rule as it is, at no floor: levels that differ by up to 1.3% between runs."""
    assert alarms(tmp_path, 60, LEVEL_PCT, EXCESS_PCT, 0.013) <= 7  # of 60: a chance of 1% at 5%


# What was measured


def main(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(["compare", *words])
    return code, capsys.readouterr().out


def test_two_runs_on_one_device_pass_at_no_floor_although_their_boosts_differ() -> None:
    """Of one Family the second run had three times as many rounds, in which the chip had ended its boost of 16%."""
    first, second = (RunStore.open(AGAIN / name) for name in ("first", "second"))
    for old, new in ((first, second), (second, first)):
        assert gate(old, new, 0.0).passed
        found = gate(old, new, 3.0)
        assert (found.families, found.not_judged, found.unseen) == (2, (), ())


def test_the_example_measured_again_on_another_device_passes(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = main(capsys, str(EXAMPLE.path), str(AGAIN / "first"), "--fail-if-slower", "3%")
    assert code == 0
    assert "gate passed: 0 slower by 3% or more and beyond noise, of 2 families" in out
    assert max(map(len, out.splitlines())) <= max(80, len(str(AGAIN / "first")), len(str(EXAMPLE.path)))


def test_the_example_drawn_again_from_its_own_rounds_passes(tmp_path: Path) -> None:
    found = gate(EXAMPLE, again(EXAMPLE, tmp_path / "new", seed=1), 3.0)
    assert (found.passed, found.families) == (True, 16)


def test_a_family_that_was_measured_again_5_percent_slower_is_named_and_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = again(EXAMPLE, tmp_path / "new", seed=1, factor=lambda row: 1.05 if row["bundle_id"] == SLOW_FAMILY else 1.0)
    words = [str(EXAMPLE.path), str(new.path), "--fail-if-slower", "3%"]
    code, out = main(capsys, *words, "--json")
    assert code == 3
    found = json.loads(out)["gate"]
    assert [(each["family_id"], each["value"], each["candidates"]) for each in found["slower"]] == [
        (SLOW_FAMILY, None, 51)
    ]
    assert found["passed"] is False
    _, out = main(capsys, *words)
    assert f"{SLOW_FAMILY} (all 51)" in out
    assert "gate failed: 1 slower by 3% or more" in out


def test_every_family_of_the_example_is_seen_when_it_is_5_percent_slower(tmp_path: Path) -> None:
    new = again(EXAMPLE, tmp_path / "new", seed=2, factor=lambda row: 1.05)
    found = gate(EXAMPLE, new, 3.0)
    assert [value for _, value in named(found)] == [None] * 16


def test_the_confidence_is_that_of_the_docs() -> None:
    text = (EXAMPLE.path.parents[2] / "docs" / "compare.md").read_text("utf-8")
    assert f"{CONFIDENCE:.0%}" in text
    assert f"{LEVEL_PCT:g}%" in text
    assert f"{EXCESS_PCT:g}%" in text
