"""Does a search from coarse to fine find the best of 1,200 Candidates, and for how much less than measuring all?"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.families import sweep
from tasks.care import Care
from tasks.device import Device, open_device
from tasks.family import Bundle
from tasks.measure import measure_bundle, rounds_of
from tasks.readiness import Readiness
from tasks.records import Sample
from tasks.sampling import Sampler
from tasks.settings import Timing

TRUE_ROUNDS = 100
FINALISTS = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="of all Candidates")
    parser.add_argument("--searches", type=int, default=5)
    parser.add_argument("--tp", type=int, default=1)
    parser.add_argument("--seq", type=int, default=2048)
    parser.add_argument("--samples", type=Path, help="where to keep all samples")
    arguments = parser.parse_args()
    device = open_device("cuda")
    print(f"{device.info.gpu}, torch {device.info.torch}, {device.info.runtime}, driver {device.info.driver}")
    with device.session():
        bundle = sweep(
            "space.roles=mlp_up",
            "space.h=4096",
            "space.batch=4",
            f"space.seq={arguments.seq}",
            "space.dtype=fp16",
            f"space.tp={arguments.tp}",
            f"space.d_ff={{ratio: 2.6666667, span: 0.25, step: {4 * arguments.tp}}}",
        )[1][0]
        family = bundle.families[0]
        found = [measure_bundle(device, bundle, Timing(goal="top", seed=seed)) for seed in range(arguments.searches)]
        every = Timing(min_rounds=arguments.rounds, max_rounds=arguments.rounds, max_seconds=1e9, race_pct=1e6)
        ready = Readiness(device, bundle, every, lambda progress: None, Care())
        ready.make(bundle.gemms)
        whole = Sampler(bundle, every, ready.live(bundle.gemms))
        _, seconds, _ = rounds_of(device, bundle, whole, ready.visits, lambda progress: None)
        cost = seconds + ready.prepare_s
        print(
            f"{len(family.candidates)} Candidates; {whole.rounds} rounds of all: {seconds:.1f} s, and {ready.prepare_s:.1f} s to prepare"
        )
        named = [_named(bundle, measurement.samples) for measurement in found]
        order = whole.comparison(family).order
        finalists = list(dict.fromkeys([*named, *order[:FINALISTS]]))
        truth = _truth(device, bundle, finalists, ready)
        best = min(truth.values())
        print(
            "| search | Candidates measured | visits | preparing s | measuring s | of all | rounds | best | behind | ended |"
        )
        print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|")
        for seed, (measurement, i) in enumerate(zip(found, named, strict=True)):
            spent = measurement.prepare_s + measurement.measuring_s
            print(
                f"| {seed} | {len({s.gemm_id for s in measurement.samples})} | {len(measurement.samples)} "
                f"| {measurement.prepare_s:.2f} | {measurement.measuring_s:.2f} | {spent / cost:.3f}, {measurement.measuring_s / seconds:.3f} "
                f"| {measurement.rounds} | {family.candidates[i].value} | {100 * (truth[i] - best):.2f}% | {measurement.stop_reason} |"
            )
        print(f"| all | | | | | | | {family.candidates[order[0]].value} | {100 * (truth[order[0]] - best):.2f}% | |")
    if arguments.samples:
        index = {gemm.gemm_id: gemm.n for gemm in bundle.gemms}
        np.savez_compressed(
            arguments.samples,
            **{
                f"run{k}": np.array([(index[s.gemm_id], s.round, s.position, s.seconds) for s in samples])
                for k, samples in enumerate([whole.samples, *(m.samples for m in found)])
            },
        )


def _named(bundle: Bundle, samples: tuple[Sample, ...]) -> int:
    sampler = Sampler(bundle, Timing(goal="top"), ())
    for number in range(max(sample.round for sample in samples) + 1):
        sampler.record([sample for sample in samples if sample.round == number])
    return sampler.comparison(bundle.families[0]).order[0]


def _truth(device: Device, bundle: Bundle, finalists: list[int], ready: Readiness) -> dict[int, float]:
    """Log cost of each finalist over the best one's, by rounds of their own."""
    family = bundle.families[0]
    timing = Timing(min_rounds=TRUE_ROUNDS, max_rounds=TRUE_ROUNDS, max_seconds=1e9, race_pct=1e6)
    gemms = [part.gemm for i in finalists for part in family.candidates[i].parts]
    sampler = Sampler(bundle, timing, ready.live(gemms))
    rounds_of(device, bundle, sampler, ready.visits, lambda progress: None)
    effect = sampler.comparison(family).effect
    return {i: float(effect[i]) for i in finalists}


if __name__ == "__main__":
    main()
