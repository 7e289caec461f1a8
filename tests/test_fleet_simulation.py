"""The driver's loop with 1,024 simulated GPUs behind it."""

import logging

import pytest

from benchmarks.fleet import Outcome, simulate


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """1,024 GPUs of 4 models, 20,000 Families; `python -m benchmarks.fleet` has 100,000."""
    logging.getLogger("orchestrator.progress").setLevel(logging.ERROR)
    found = simulate(models=4, gpus=256, families=5_000)
    logging.getLogger("orchestrator.progress").setLevel(logging.NOTSET)
    return found


def test_every_family_ends_once_on_every_model(outcome: Outcome) -> None:
    assert outcome.problem == ""
    measured, lost = outcome.ends.measured_by, outcome.ends.lost
    assert len(measured) + len(lost) == outcome.families == 20_000
    assert set(lost.values()) <= {1}
    assert not {f"{model} {bundle_id}" for model, bundle_id in measured} & set(lost)
    # An attempt in a hundred kills its worker, so one Bundle in ten thousand loses both of its attempts.
    assert outcome.deaths >= 150
    assert len(lost) <= 12


def test_the_slow_devices_are_found_and_no_others(outcome: Outcome) -> None:
    assert len(outcome.slow) == 5
    assert outcome.flagged == outcome.slow


def test_only_what_a_slow_device_measured_is_measured_again_and_elsewhere(outcome: Outcome) -> None:
    again = {key: devices for key, devices in outcome.ends.measured_by.items() if len(devices) > 1}
    assert set(map(len, again.values())) == {2}
    assert all(first in outcome.slow and second not in outcome.slow for first, second in again.values())
    # Some are slow before their first canary: they get nothing to measure.
    assert {first for first, _ in again.values()} <= outcome.slow
    assert again
