"""Where a command's seconds go."""

from orchestrator.engine import Spent
from orchestrator.laps import Laps, told


def test_every_second_of_a_command_is_in_one_of_its_parts() -> None:
    moments = iter([0.0, 0.5, 2.5, 14.0, 14.25, 15.0])
    laps = Laps(lambda: next(moments))
    laps.end("plan")
    laps.end("ray")
    laps.measured(4.0, Spent(prepare_s=1.0, soak_s=2.0, measuring_s=6.5))
    laps.end("end")
    laps.end("rank")
    expected = {"plan": 0.5, "ray": 2.0, "device": 1.5, "prepare": 1.0, "soak": 2.0, "measure": 6.5, "other": 0.5}
    assert laps.rounded() == {**expected, "end": 0.25, "rank": 0.75}
    assert told(laps.rounded()).startswith("15.0 s: plan 0.5, Ray 2.0, device 1.5, prepare 1.0, soak 2.0, measure 6.5")


def test_a_sweep_without_a_device_has_waited_for_one() -> None:
    moments = iter([0.0, 60.0, 60.0])
    laps = Laps(lambda: next(moments))
    laps.measured(None, Spent())
    assert laps.rounded() == {"device": 60.0, "prepare": 0.0, "soak": 0.0, "measure": 0.0, "other": 0.0}


def test_what_devices_have_spent_adds_up() -> None:
    first, second = Spent(prepare_s=1.0, soak_s=2.0), Spent(prepare_s=0.5, measuring_s=3.0)
    assert first + second == Spent(prepare_s=1.5, soak_s=2.0, measuring_s=3.0)
    assert (first + second).whole_s == 6.5
