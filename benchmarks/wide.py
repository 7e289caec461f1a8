"""What a search from coarse to fine finds of 1,366 Candidates, and for how much less than measuring them all."""

import argparse

from benchmarks.families import sweep
from benchmarks.opened import opened
from tasks.care import Care
from tasks.device import Device
from tasks.family import Bundle
from tasks.measure import measure_bundle, rounds_of
from tasks.readiness import Readiness
from tasks.records import Measurement, Progress, Sample
from tasks.sampling import Sampler
from tasks.settings import Timing

TRUE_ROUNDS = 100
FINALISTS = 24
"""The best by measuring all; with those that the searches name they are measured once more for the truth."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of all Candidates")
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--seq", type=int, default=2048)
    arguments = parser.parse_args()
    device = opened()
    bundle = candidates(arguments.tp, arguments.seq)
    found = [measure_bundle(device, bundle, Timing(seed=seed)) for seed in range(arguments.searches)]
    with device.session():
        every = fixed(arguments.rounds)
        ready = Readiness(device, bundle, every, _quiet, Care())
        ready.make(bundle.gemms)
        whole = Sampler(bundle, every, ready.live(bundle.gemms))
        _, seconds, _ = rounds_of(device, bundle, whole, ready.visits, _quiet)
        order = whole.comparison(bundle.families[0]).order
        named = [best(bundle, measurement.samples) for measurement in found]
        truth = log_costs(device, bundle, [*named, *order[:FINALISTS]], ready)
    show(bundle, found, named, truth)
    print(
        f"| all, {arguments.rounds} rounds | {len(order)} | {len(whole.samples)} | {ready.prepare_s:.2f} "
        f"| {seconds:.2f} | {behind(truth, order[0])} |"
    )
    for measurement in found:
        share = (measurement.prepare_s + measurement.measuring_s) / (ready.prepare_s + seconds)
        print(f"{share:.1%} of it with preparing, {measurement.measuring_s / seconds:.1%} without")


def candidates(tp: int, seq: int) -> Bundle:
    """As in the table, batch 4, h = 4096; d_ff from 8/3 h - 25% to + 25% in steps of 4 of what a rank holds."""
    space = f"space.d_ff={{ratio: {8 / 3}, span: 0.25, step: {4 * tp}}}"
    settings = ("space.h=4096", "space.batch=4", f"space.seq={seq}", f"space.tp={tp}", "space.dtype=fp16")
    return sweep("space.roles=mlp_up", *settings, space)[1][0]


def fixed(rounds: int) -> Timing:
    """So many rounds in which nobody leaves."""
    return Timing(goal="full", min_rounds=rounds, max_rounds=rounds, max_seconds=1e9, race_pct=1e6)


def best(bundle: Bundle, samples: tuple[Sample, ...]) -> int:
    """The Candidate that the ranking names."""
    sampler = Sampler(bundle, fixed(10**6), ())
    for number in range(max(sample.round for sample in samples) + 1):
        sampler.record([sample for sample in samples if sample.round == number])
    return sampler.comparison(bundle.families[0]).order[0]


def log_costs(device: Device, bundle: Bundle, finalists: list[int], ready: Readiness) -> dict[int, float]:
    """Log cost of each finalist, by rounds of their own."""
    family = bundle.families[0]
    gemms = [part.gemm for i in finalists for part in family.candidates[i].parts]
    sampler = Sampler(bundle, fixed(TRUE_ROUNDS), ready.live(gemms))
    rounds_of(device, bundle, sampler, ready.visits, _quiet)
    effect = sampler.comparison(family).effect
    return {i: float(effect[i]) for i in finalists}


def show(bundle: Bundle, found: list[Measurement], named: list[int], truth: dict[int, float]) -> None:
    """Print the table."""
    print("| what | Candidates measured | visits | preparing s | measuring s | best, behind the true one |")
    print("|---|---:|---:|---:|---:|---:|")
    for measurement, i in zip(found, named, strict=True):
        measured = len({sample.gemm_id for sample in measurement.samples})
        value = bundle.families[0].candidates[i].value
        print(
            f"| search, {measurement.stop_reason} | {measured} | {len(measurement.samples)} "
            f"| {measurement.prepare_s:.2f} | {measurement.measuring_s:.2f} | {value}, {behind(truth, i)} |"
        )


def behind(truth: dict[int, float], i: int) -> str:
    """By how much a Candidate is behind the best of the finalists."""
    return f"{100 * (truth[i] - min(truth.values())):.2f}%"


def _quiet(progress: Progress) -> None:
    pass


if __name__ == "__main__":
    main()
