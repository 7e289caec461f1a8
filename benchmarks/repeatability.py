"""Do two independent runs give the same order? Kendall's tau-b and disagreement on the 25-candidate table."""

import math
from itertools import combinations

from benchmarks.families import table
from benchmarks.opened import opened
from tasks.family import Bundle
from tasks.measure import measure_bundle
from tasks.records import Measurement
from tasks.sampling import Sampler
from tasks.settings import Timing


def effects(bundle: Bundle, timing: Timing, measurement: Measurement) -> list[float]:
    """The drift-free log cost of each Candidate, from the stored samples."""
    sampler = Sampler(bundle, timing, range(len(bundle.gemms)))
    for number in range(measurement.rounds):
        sampler.record([sample for sample in measurement.samples if sample.round == number])
    return [float(value) for value in sampler.comparison(bundle.families[0]).effect]


def tau_b(x: list[float], y: list[float]) -> float:
    """Kendall's tau-b of two lists of estimates."""
    agree = tied_x = tied_y = 0
    for i, j in combinations(range(len(x)), 2):
        dx, dy = x[i] - x[j], y[i] - y[j]
        agree += (dx * dy > 0) - (dx * dy < 0)
        tied_x += dx == 0
        tied_y += dy == 0
    pairs = len(x) * (len(x) - 1) // 2
    return agree / math.sqrt((pairs - tied_x) * (pairs - tied_y))


def main() -> None:
    device = opened()
    print("| tp | tau-b | largest disagreement | rounds | measuring s | with preparing s | resolved |")
    print("|---:|---:|---:|---:|---:|---:|---|")
    _, bundles = table()
    timings = [Timing(goal="full", seed=1), Timing(goal="full", seed=2)]
    runs = [[measure_bundle(device, bundle, timing) for bundle in bundles] for timing in timings]
    for i, bundle in enumerate(bundles):
        first, second = runs[0][i], runs[1][i]
        x, y = effects(bundle, timings[0], first), effects(bundle, timings[1], second)
        apart = max(abs(a - b) for a, b in zip(x, y, strict=True))
        print(
            f"| {bundle.families[0].tp} | {tau_b(x, y):.3f} | {100 * apart:.2f}% | {first.rounds}, {second.rounds} "
            f"| {first.measuring_s:.2f}, {second.measuring_s:.2f} "
            f"| {first.prepare_s + first.measuring_s:.2f}, {second.prepare_s + second.measuring_s:.2f} "
            f"| {first.stop_reason}, {second.stop_reason} |"
        )


if __name__ == "__main__":
    main()
