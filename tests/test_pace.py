"""How many Bundles go into one call, by what the last ones took."""

import pytest

from orchestrator.pace import CALL_S, MOST, Pace


@pytest.mark.parametrize(
    ("seconds", "count", "share", "room"),
    [
        (1.0, 1, 100, 1),  # a Family on a GPU
        (CALL_S, 1, 100, 1),
        (CALL_S / 3.5, 1, 100, 3),
        (0.032, 16, 100, MOST),  # 2 ms each
        (0.032, 16, 5, 5),
        (0.032, 16, 0, 1),
        (0.0, 1, 100, MOST),  # by a clock that stands still
    ],
)
def test_calls_of_short_bundles_take_several(seconds: float, count: int, share: int, room: int) -> None:
    pace = Pace()
    pace.begin("w", count, 10.0)
    pace.end("w", 10.0 + seconds)
    assert pace.room("w", share) == room


def test_a_worker_whose_pace_is_unknown_gets_one() -> None:
    pace = Pace()
    assert pace.room("w", 100) == 1
    pace.begin("w", 1, 0.0)
    pace.forget("w")
    pace.end("w", 0.001)
    assert pace.room("w", 100) == 1
    pace.begin("w", 1, 0.0)
    pace.end("w", 0.001)
    assert pace.room("w", 100) == MOST
    pace.forget("w")
    assert pace.room("w", 100) == 1
