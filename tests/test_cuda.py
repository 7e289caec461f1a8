"""The parts of the CUDA device that need no GPU."""

from tasks.cuda import settled


def test_power_and_clock_have_settled_when_a_second_repeats_the_one_before() -> None:
    steady = [(t / 4, 690.0, 1500.0) for t in range(9)]  # two seconds
    assert settled(steady)
    assert not settled(steady[:4])  # nothing older than a second
    rising = [(t / 4, 400.0 + 20 * t, 1500.0) for t in range(9)]
    assert not settled(rising)
    falling_clock = [(t / 4, 690.0, 1900.0 - 50 * t) for t in range(9)]
    assert not settled(falling_clock)
