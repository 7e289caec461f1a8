"""From coarse to fine: what of very many Candidates is measured, and whether the best is found."""

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from orchestrator.ranking import rank
from orchestrator.store import RunStore, shard_table
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.levels import Levels
from tasks.measure import measure_bundle
from tasks.pool import Ring
from tasks.records import Measurement, Telemetry
from tasks.settings import Timing
from tasks.wide import CLASS_SAMPLE, LEVEL, LEVEL_ROUNDS, WIDE, Search, alignment_class, evenly
from tests.builders import as_bundle, up_family
from tests.scripted import ScriptedDevice

VALUES = range(1200, 6000, 4)
TOP = Timing(goal="top", soak_min_s=0, soak_max_s=0)


def wide_family(values: range = VALUES) -> Family:
    """Candidates of one small Gemm each, so that preparing them is no matter."""
    return Family(
        role="mlp_up",
        h=16,
        tp=1,
        batch=1,
        seq=8,
        dtype="fp32",
        candidates=tuple(
            Candidate(
                value=value,
                local_dim=value,
                parts=(Part(name="up", gemm=Gemm(kind="mm", b=1, m=8, n=value, k=16, dtype="fp32", layout="nt")),),
            )
            for value in values
        ),
    )


def per_flop(n: int) -> float:
    """Waves: 5% of the last one is lost on the way to each multiple of 528; odd multiples of 4 cost 2.3 times."""
    lost = 0.05 * (1 - (n % 528) / 528) if n % 528 else 0.0
    return (2.3 if n % 8 else 1.0 if n % 64 == 0 else 1.01) * (1 + lost)


class QuickDevice(ScriptedDevice):
    """What is made up needs no check of its result."""

    def _trial(self, gemm: Gemm, ring: Ring) -> Callable[[], float]:
        return lambda: self.cost(gemm)


def search(seed: int, family: Family, timing: Timing = TOP) -> Measurement:
    """Measure on a device whose level wanders by some percent, with noise of 0.3% a visit."""
    noise, level = random.Random(seed), 0.0

    def cost(gemm: Gemm) -> float:
        nonlocal level
        level = 0.98 * level + noise.gauss(0, 0.005)
        return 1e-12 * gemm.flops * per_flop(gemm.n) * math.exp(level + noise.gauss(0, 0.003)) * 1e3

    return measure_bundle(QuickDevice(cost), as_bundle(family), timing)


def ranked(found: Measurement, family: Family, folder: Path) -> list[dict[str, Any]]:
    """The rows of the ranking of one Shard."""
    store = RunStore.create(folder, "run", {})
    store.write_shard(shard_table(as_bundle(family), found, TOP, attempt=1, code_version="1", plan_hash="abc"))
    rows: list[dict[str, Any]] = rank(store).table.to_pylist()
    return rows


@pytest.mark.parametrize("seed", [1, 2])
def test_the_best_of_twelve_hundred_is_found_for_a_tenth_of_the_rounds(seed: int, tmp_path: Path) -> None:
    family = wide_family()
    found = search(seed, family)
    samples = Counter(sample.gemm_id for sample in found.samples)
    best = min(per_flop(candidate.value) for candidate in family.candidates)
    rows = ranked(found, family, tmp_path)
    assert per_flop(next(row["value"] for row in rows if row["relative"] == 1.0)) <= 1.005 * best
    slow = [row for row in rows if row["rank"] and row["value"] % 8]
    assert len(slow) >= CLASS_SAMPLE  # they were measured in the first rounds alone, and are compared all the same
    assert all(row["tie_group"] > 1 and 2 < row["relative"] < 2.7 for row in slow)
    assert [row["status"] for row in rows] == ["ok"] * len(samples) + ["skipped"] * (len(rows) - len(samples))
    taken = sum(per_flop(c.value) * c.flops * samples[c.parts[0].gemm.gemm_id] for c in family.candidates)
    assert taken <= 0.1 * 30 * sum(per_flop(c.value) * c.flops for c in family.candidates)


def test_equal_candidates_tie_whether_the_search_let_them_race_or_not(tmp_path: Path) -> None:
    wide, narrow = wide_family(range(3200, 6400, 8)), replace(wide_family(range(3200, 4800, 8)), role="mlp_down")
    families, noise = (wide, narrow), random.Random(5)
    bundle = Bundle(families=families)
    device = QuickDevice(lambda gemm: 1e-9 * gemm.flops * math.exp(noise.gauss(0, 0.003)))
    found = measure_bundle(device, bundle, replace(TOP, max_rounds=20))
    visits = Counter(sample.round for sample in found.samples)
    assert visits[2 * LEVEL_ROUNDS] > visits[3 * LEVEL_ROUNDS] >= LEVEL  # some that are as good did not race
    store = RunStore.create(tmp_path, "run", {})
    store.write_shard(shard_table(bundle, found, TOP, attempt=1, code_version="1", plan_hash="abc"))
    rows = rank(store).table.to_pylist()
    assert {row["family_id"] for row in rows} == {family.family_id for family in families}
    assert {row["tie_group"] for row in rows if row["rank"]} == {1}
    assert max(row["relative"] for row in rows if row["rank"]) < 1.02


def test_what_is_not_measured_says_why() -> None:
    family = wide_family()
    found = search(3, family)
    measured = {sample.gemm_id for sample in found.samples}
    reasons = {facts.gemm_id: facts.message for facts in found.facts if facts.status == "skipped"}
    assert measured.isdisjoint(reasons)
    assert measured | reasons.keys() == {gemm.gemm_id for gemm in family.gemms}
    of = {c.value: reasons.get(c.parts[0].gemm.gemm_id) for c in family.candidates}
    assert Counter(bool(of[value]) for value in of if value % 8 == 4)[False] <= CLASS_SAMPLE + 2
    message = next(reason for value, reason in of.items() if value % 8 == 4 and reason)
    assert message.startswith("multiples of 4, not of 8, were 1")
    assert message.endswith("% or more behind the best")
    assert "not beside one that was within 2% of the best" in of.values()


def test_a_class_of_which_none_can_be_measured_takes_no_further_share(monkeypatch: pytest.MonkeyPatch) -> None:
    family = wide_family()
    device = QuickDevice(lambda gemm: 1e-9 * gemm.flops * per_flop(gemm.n))
    refused = "not for multiples of 4 alone"
    monkeypatch.setattr(device, "unsupported", lambda gemm: refused if gemm.n % 8 else None)
    found = measure_bundle(device, as_bundle(family), TOP)
    status = Counter((facts.status, facts.message) for facts in found.facts)
    assert status["unsupported", refused] <= CLASS_SAMPLE + 2
    assert status["skipped", "none of the multiples of 4, not of 8, that were tried could be measured"] > 500
    assert status["ok", ""] > CLASS_SAMPLE * 5 + LEVEL


def test_what_is_left_where_the_first_level_ends_the_search_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    device = QuickDevice(lambda gemm: 1e-3)
    monkeypatch.setattr(device, "unsupported", lambda gemm: "not here")
    found = measure_bundle(device, as_bundle(wide_family()), TOP)
    assert {facts.message for facts in found.facts} == {"not here", "the search ended before its turn"}


def test_one_that_failed_in_a_search_that_is_made_again_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.measure.time.sleep", lambda seconds: None)
    noise = random.Random(1)
    device = QuickDevice(
        lambda gemm: 1e-9 * gemm.flops * per_flop(gemm.n) * math.exp(noise.gauss(0, 0.01)),
        telemetry=[CALM, CALM, CALM, HOT, CALM],
    )
    monkeypatch.setattr(device, "unsupported", lambda gemm: "not here" if gemm.n % 64 == 40 else None)
    found = measure_bundle(device, as_bundle(wide_family()), TOP)
    told = Counter(facts.gemm_id for facts in found.facts)
    assert (found.redone, set(told.values()), len(told)) == (1, {1}, len(VALUES))


CALM, HOT = Telemetry(), Telemetry(throttled=True, reasons=("hw_thermal_slowdown",))


@pytest.mark.parametrize("windows", [[CALM, CALM, CALM, HOT, CALM], [CALM, HOT, CALM]], ids=["race", "level"])
def test_a_search_that_was_throttled_is_made_again_and_ranked_whole(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, windows: list[Telemetry]
) -> None:
    monkeypatch.setattr("tasks.measure.time.sleep", lambda seconds: None)
    device = QuickDevice(lambda gemm: 1e-9 * gemm.flops * per_flop(gemm.n), telemetry=windows)
    family = wide_family()
    found = measure_bundle(device, as_bundle(family), TOP)
    visits = Counter(sample.round for sample in found.samples)
    assert (found.redone, found.telemetry.throttled, found.stop_reason) == (1, False, "best_found")
    assert found.first_round > 3 * LEVEL_ROUNDS
    assert max(visits) + 1 - found.first_round == found.rounds + 3 * LEVEL_ROUNDS
    assert sum(visits.values()) == len(found.samples)
    rows = ranked(found, family, tmp_path)
    assert "no samples" not in {row["message"] for row in rows}
    measured = {sample.gemm_id for sample in found.samples if sample.round >= found.first_round}
    assert sum(row["status"] == "ok" for row in rows) == len(measured)
    assert max(row["relative"] for row in rows if row["rank"]) > 2.3  # the slow class of the first level


def test_levels_have_the_fewest_rounds_and_the_race_begins_anew() -> None:
    found = search(4, wide_family())
    visits = Counter(sample.round for sample in found.samples)
    sizes = [visits[number] for number in sorted(visits)]
    levels = [sizes[i : i + LEVEL_ROUNDS] for i in range(0, 3 * LEVEL_ROUNDS, LEVEL_ROUNDS)]
    assert all(len(set(level)) == 1 for level in levels)
    first, second, third = (level[0] for level in levels)
    assert first <= 6 * CLASS_SAMPLE + 2
    assert LEVEL / 2 < second <= first + LEVEL
    assert third <= second + LEVEL
    assert found.rounds == len(sizes) - 3 * LEVEL_ROUNDS


def test_the_race_is_decided_though_a_class_that_was_left_out_is_far_behind() -> None:
    found = search(4, wide_family())
    visits = Counter(sample.round for sample in found.samples)
    assert (found.stop_reason, found.resolved) == ("best_found", True)
    assert visits[max(visits)] < visits[3 * LEVEL_ROUNDS] / 4  # the others have left


def test_a_family_that_is_not_wide_or_whose_whole_order_is_asked_for_is_measured_whole() -> None:
    wide, narrow = wide_family(), wide_family(VALUES[:WIDE])
    for family, goal, rounds in ((narrow, "top", None), (wide, "full", None), (wide, "top", LEVEL_ROUNDS)):
        levels = Levels(as_bundle(family), Timing(goal=goal))
        assert levels.rounds == rounds
        assert (levels.gemms == family.gemms) == (rounds is None)
        assert bool(levels.left_out()) == (rounds is not None)


def test_a_class_is_a_power_of_two_of_what_one_rank_holds() -> None:
    values = [1, 2, 12, 136, 64, 128, 4096]
    found = [alignment_class(candidate) for candidate in up_family(values, tp=1).candidates]
    assert found == [1, 2, 4, 8, 64, 128, 128]
    assert [alignment_class(c) for c in up_family([32, 256], tp=2).candidates] == [16, 128]


def test_the_first_level_has_the_ends_the_baseline_and_as_many_of_each_class() -> None:
    family = wide_family()
    first = Search(family).first()
    classes = Counter(alignment_class(family.candidates[i]) for i in first)
    assert {0, len(VALUES) - 1} <= set(first)
    assert set(classes) == {4, 8, 16, 32, 64, 128}
    assert all(CLASS_SAMPLE <= count <= CLASS_SAMPLE + 2 for count in classes.values())


def test_evenly_takes_both_ends() -> None:
    assert evenly(list(range(100)), 4) == [0, 33, 66, 99]
    assert evenly([5, 7], 4) == [5, 7]
    assert np.diff(evenly(list(range(341)), 25)).max() <= 15
