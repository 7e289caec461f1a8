"""What drifts inside a round: how far visits lie apart beside their Candidate and their round, with it and without."""

import numpy as np

from benchmarks.families import table
from benchmarks.opened import opened
from tasks.family import Bundle
from tasks.location import Floats
from tasks.measure import run_rounds
from tasks.records import Sample
from tasks.settings import Timing

ROUNDS = 200


def spread(bundle: Bundle, samples: list[Sample], slowdowns: list[float]) -> tuple[float, float]:
    """Standard deviation and median deviation of log seconds, in percent."""
    index = {gemm.gemm_id: i for i, gemm in enumerate(bundle.gemms)}
    visits: Floats = np.full((ROUNDS, len(index)), np.nan)
    for sample, slowdown in zip(samples, slowdowns, strict=True):
        visits[sample.round, index[sample.gemm_id]] = np.log(sample.seconds / slowdown)
    visits -= np.median(visits, axis=1, keepdims=True)
    visits -= np.median(visits, axis=0)
    return 100 * float(visits.std()), 100 * float(np.median(np.abs(visits)))


def main() -> None:
    device = opened()
    print(
        "| tp | rounds | spread as timed | by seconds / slowdown | median deviation as timed | by seconds / slowdown |"
    )
    print("|---:|---:|---:|---:|---:|---:|")
    every = Timing(min_rounds=ROUNDS, max_rounds=ROUNDS, race_pct=1e6, goal="full", max_seconds=1e9)
    with device.session():
        for bundle in table()[1]:
            visits, _ = device.prepare(bundle.gemms, every)
            sampler, *_ = run_rounds(device, bundle, every, visits, lambda progress: None)
            samples = sampler.samples
            timed = spread(bundle, samples, [1.0] * len(samples))
            paced = spread(bundle, samples, [sample.slowdown or 1.0 for sample in samples])
            print(
                f"| {bundle.families[0].tp} | {ROUNDS} | {timed[0]:.2f}% | {paced[0]:.2f}% | {timed[1]:.3f}% "
                f"| {paced[1]:.3f}% |",
                flush=True,
            )


if __name__ == "__main__":
    main()
