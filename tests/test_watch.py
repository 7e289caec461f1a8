"""Deadlines of Bundles, by a clock that the test holds."""

from orchestrator.watch import Watch


def looked_at(watch: Watch, begin: float, end: float) -> list[tuple[str, float]]:
    """Look every half a second, as the driver's loop does; return what was found."""
    return [found for turn in range(int(2 * (end - begin))) for found in watch.expired(begin + turn / 2)]


def test_a_worker_that_has_not_ended_in_its_time_is_found() -> None:
    watch = Watch()
    watch.begin("w", lambda: 10.0, 0.0)
    assert looked_at(watch, 0.0, 10.5) == []
    assert set(looked_at(watch, 10.5, 11.5)) == {("w", 10.0)}


def test_the_time_in_which_the_driver_was_stopped_is_not_the_workers() -> None:
    watch = Watch()
    watch.begin("w", lambda: 10.0, 0.0)
    assert looked_at(watch, 0.0, 5.0) == []
    assert looked_at(watch, 1000.0, 1002.5) == []
    assert set(looked_at(watch, 1002.5, 1007.0)) == {("w", 10.0)}


def test_a_loop_that_is_always_slow_finds_who_hangs() -> None:
    watch = Watch()
    watch.begin("w", lambda: 10.0, 0.0)
    found = [now for now in range(0, 100, 4) if list(watch.expired(float(now)))]
    assert found
    assert 12 <= found[0] <= 30


def test_a_worker_that_begins_before_the_first_look_has_a_deadline_too() -> None:
    watch = Watch()
    watch.begin("w", lambda: 10.0, 500.0)
    assert list(watch.expired(510.5)) == [("w", 10.0)]
