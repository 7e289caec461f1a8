"""Which devices are named: hand-made cases, then fleets with known truth."""

import time
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.canary import Reading
from orchestrator.verdict import Verdict, centre, judge


def readings(*devices: Sequence[float | None], model: str = "H200") -> list[Reading]:
    """Readings of devices G0, G1, …, each given as its times over a sound one's; None where there is no reading."""
    return [
        Reading(model=model, uuid=f"G{i}", number=number, seconds=1e-4 * slower)
        for i, device in enumerate(devices)
        for number, slower in enumerate(device, start=1)
        if slower is not None
    ]


def bad(*devices: Sequence[float | None]) -> dict[str, list[int]]:
    return {uuid: sorted(numbers) for uuid, numbers in judge(readings(*devices)).bad.items()}


# Few devices


def test_of_a_single_device_of_a_model_nobody_can_say_that_it_is_slow() -> None:
    assert bad([1.0, 1.0, 1.5, 9.0]) == {}
    assert judge(readings([1.0] * 4) + readings([1.5] * 4, model="A100")).bad == {}


def test_two_healthy_devices_that_differ_by_two_percent_are_both_sound() -> None:
    assert bad([1.0, 1.002, 0.999, 1.001], [1.02, 1.021, 1.022, 1.019]) == {}
    assert bad([1.0], [1.02]) == {}
    assert bad([1.0, 1.0], [1.035, 1.001]) == {}  # one reading a little off: the limit of two is 4.2% for this too


@pytest.mark.parametrize("since", range(1, 9))
def test_of_two_the_one_that_becomes_slower_is_named_and_only_from_then_on(since: int) -> None:
    slow = [1.01 if number < since else 1.21 for number in range(1, 9)]
    assert bad([1.0] * 8, slow) == {"G1": list(range(since, 9))}
    assert bad(slow, [1.0] * 8) == {"G0": list(range(since, 9))}


def test_of_two_the_one_that_is_disturbed_for_a_while_is_named_for_that_while() -> None:
    assert bad([1.0, 1.0, 1.2, 1.2, 1.0, 1.0], [1.01] * 6) == {"G0": [3, 4]}


def test_of_two_the_fast_one_is_the_norm_and_of_three_it_is_never_bad() -> None:
    assert bad([1.0] * 5, [0.8] * 5) == {"G0": [1, 2, 3, 4, 5]}
    assert bad([1.0] * 5, [1.0] * 5, [0.8] * 5) == {}


def test_of_three_the_slow_one_is_named() -> None:
    assert bad([1.0] * 3, [1.01] * 3, [1.1] * 3) == {"G2": [1, 2, 3]}


def test_the_first_reading_alone_tells_a_very_slow_one() -> None:
    assert bad([1.0], [1.2]) == {"G1": [1]}


def test_noisy_devices_are_given_a_wider_limit() -> None:
    random = np.random.default_rng(4)
    noisy = [list(np.exp(0.05 * random.standard_normal(10))) for _ in range(2)]
    assert bad(*noisy) == {}


# More devices


def test_of_many_one_that_deviates_is_named_slow_or_fast() -> None:
    fleet = [[1.0 + 0.002 * i] * 4 for i in range(6)]
    assert bad(*fleet, [1.06] * 4) == {"G6": [1, 2, 3, 4]}
    assert bad(*fleet, [0.9] * 4) == {"G6": [1, 2, 3, 4]}
    assert bad(*fleet, [1.025] * 4) == {}


def test_a_fleet_that_differs_much_has_a_wider_limit() -> None:
    fleet = [[1.0 + 0.02 * i] * 4 for i in range(8)]  # scaled MAD 5.9%: 7% off is nothing
    assert bad(*fleet) == {}
    assert bad(*fleet, [1.5] * 4) == {"G8": [1, 2, 3, 4]}


def test_what_all_devices_do_alike_is_no_ones_fault() -> None:
    cool_at_first = [0.9, 1.0, 1.0, 1.0, 1.05]
    for devices in (2, 3, 4, 9):
        assert bad(*[cool_at_first] * devices) == {}


def test_devices_that_joined_late_or_left_early_are_judged_by_what_they_have() -> None:
    assert bad([1.0] * 8, [1.0] * 2, [1.0, 1.0, 1.3], [None, 1.0, 1.0]) == {"G2": [3]}
    assert bad([1.0] * 3 + [1.2] * 5, [1.01] * 3) == {"G0": [4, 5, 6, 7, 8]}


# What is asked of a verdict


def test_a_shard_is_suspect_between_a_bad_canary_and_its_neighbours() -> None:
    verdict = judge(readings([1.0] * 5, [1.0, 1.0, 1.2, 1.0, 1.0]))
    assert [canary for canary in range(7) if verdict.suspect("G1", canary)] == [2, 3]
    assert not any(verdict.suspect("G0", canary) for canary in range(7))
    assert not verdict.suspect("G9", 2)
    assert not verdict.suspect("G1", None)


def test_after_the_last_canary_only_that_one_counts() -> None:
    verdict = judge(readings([1.0] * 3, [1.0, 1.0, 1.2]))
    assert verdict.suspect("G1", 3)
    assert not judge(readings([1.0] * 3, [1.0] * 3)).suspect("G1", 3)


def test_before_any_canary_the_first_one_counts() -> None:
    assert judge(readings([1.0] * 2, [1.2] * 2)).suspect("G1", 0)


def test_a_bad_device_is_named_with_how_much_slower_than_what_and_when() -> None:
    two = judge(readings([1.0] * 8, [1.0, 1.2, 1.0, 1.2, 1.2, 1.2, 1.0, 1.0]))
    assert two.bad_devices() == {"G1": "took 20.0% longer than the other device (H200) in canaries 2, 4-6 of 8"}
    many = judge(readings(*[[1.0]] * 8, [1.5]))
    assert many.bad_devices() == {"G8": "took 50.0% longer than the median of 9 (H200) in canary 1 of 1"}
    fast = judge(readings(*[[1.0]] * 8, [0.5]))
    assert fast.bad_devices() == {"G8": "took 50.0% less time than the median of 9 (H200) in canary 1 of 1"}


def test_without_readings_nothing_is_suspect() -> None:
    assert judge([]) == Verdict()


def test_models_are_judged_apart() -> None:
    found = judge(readings([1.0] * 3, [1.0] * 3) + readings([2.0] * 3, [2.0] * 3, model="A100"))
    assert found.bad == {}


@given(st.randoms(use_true_random=False))
def test_the_order_of_the_readings_changes_nothing(random: Random) -> None:
    given_readings = readings([1.0] * 5, [1.0, 1.2, 1.2, 1.0, 1.0], [1.01] * 5, [0.99] * 4)
    shuffled = random.sample(given_readings, len(given_readings))
    assert judge(shuffled) == judge(given_readings)


def test_the_centre_is_the_median_and_of_two_the_smaller() -> None:
    values = np.array([[3.0, 1.0, 4.0, np.nan], [1.0, 2.0, np.nan, np.nan], [2.0, np.nan, np.nan, np.nan]])
    assert centre(values).tolist() == pytest.approx([2.0, 1.0, 4.0, np.nan], nan_ok=True)
    assert centre(np.array([4.0, 1.0, 2.0, 3.0])) == 2.5


# Fleets: 1% between devices, 0.5% from reading to reading


def fleet(
    random: np.random.Generator, devices: int, *, since: int = 0, slower: float = 1.0, normal: bool = False
) -> list[Reading]:
    """2 to 14 readings a device; the first device is slower from reading ``since`` on."""
    count = int(random.integers(max(2, since), 15))
    level = random.normal(0, 0.01, devices) if normal else random.uniform(-0.01, 0.01, devices)
    log = level[:, None] + 0.005 * random.standard_normal((devices, count))
    if since:
        log[0, since - 1 :] += np.log(slower)
    return readings(*np.exp(log).tolist())


def named(random: np.random.Generator, low: int, high: int, times: int, **changes: object) -> tuple[float, float]:
    """(Share of fleets in which the first device is named, share in which another is)."""
    hits = others = 0
    for _ in range(times):
        devices = int(random.integers(low, high + 1))
        found = judge(fleet(random, devices, **changes)).bad  # type: ignore[arg-type]
        hits += "G0" in found
        others += bool(found.keys() - {"G0"})
    return hits / times, others / times


def test_healthy_fleets_of_two_to_sixty_four_are_left_alone() -> None:
    random = np.random.default_rng(1)
    assert sum(bool(judge(fleet(random, int(random.integers(2, 65)))).bad) for _ in range(1000)) < 10


@pytest.mark.parametrize(("low", "high"), [(4, 4), (5, 8), (9, 64)])
def test_where_the_floor_is_three_standard_deviations_few_healthy_fleets_have_a_false_alarm(
    low: int, high: int
) -> None:
    hits, others = named(np.random.default_rng(2), low, high, 300, normal=True)
    assert hits + others < 0.05


@pytest.mark.parametrize("since", [1, 2, 5])
@pytest.mark.parametrize(
    ("low", "high", "slower", "found"),
    [
        (2, 2, 1.05, 0.6),  # the limit between two is 4.2%, and they may differ by 2%
        (2, 3, 1.10, 0.98),
        (2, 3, 1.20, 1.0),
        (4, 5, 1.05, 0.85),
        (4, 5, 1.10, 1.0),
        (6, 64, 1.05, 0.95),
        (6, 64, 1.10, 1.0),
        (6, 64, 1.20, 1.0),
    ],
)
def test_a_slow_device_is_found_and_no_other_is(low: int, high: int, slower: float, found: float, since: int) -> None:
    hits, others = named(np.random.default_rng(3), low, high, 200, since=since, slower=slower)
    assert hits >= found
    assert others < 0.02


def test_one_that_slows_down_for_a_single_reading_is_found() -> None:
    random = np.random.default_rng(5)
    for _ in range(100):
        log = random.uniform(-0.01, 0.01, 16)[:, None] + 0.005 * random.standard_normal((16, 10))
        log[3, 6] += np.log(1.1)
        assert judge(readings(*np.exp(log).tolist())).bad == {"G3": frozenset({7})}


def test_five_slow_ones_among_a_thousand_and_twenty_four_are_the_ones_that_are_named() -> None:
    random = np.random.default_rng(6)
    slow = {"m0": {3: 1.08}, "m1": {7: 1.2, 200: 1.3}, "m2": {}, "m3": {0: 1.1, 255: 1.15}}
    given_readings = []
    for model, changes in slow.items():
        log = 0.005 * random.standard_normal((256, 1)) + 0.005 * random.standard_normal((256, 10))
        for device, slower in changes.items():
            log[device, 4:] += np.log(slower)
        given_readings += [
            Reading(model=model, uuid=f"{model}-{i}", number=n + 1, seconds=float(np.exp(log[i, n])))
            for i in range(256)
            for n in range(10)
        ]
    start = time.perf_counter()
    found = judge(given_readings).bad
    assert time.perf_counter() - start < 1.0
    assert set(found) == {f"{model}-{device}" for model, changes in slow.items() for device in changes}
    assert set(found.values()) == {frozenset(range(5, 11))}
