"""Does a race find the best for less? Independent trials of ``timing.goal=top`` against a truth of 200 rounds."""

import argparse
import math
from statistics import mean

import numpy as np

from benchmarks.families import table
from benchmarks.opened import opened
from tasks.measure import run_rounds
from tasks.settings import Timing

TRUE_ROUNDS = 200
FIXED_ROUNDS = 30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--tp", type=int, nargs="+", default=[1, 2, 4, 8])
    arguments = parser.parse_args()
    device = opened()
    print(
        "| tp | true top group | trials | best in it | measuring s a trial | of 30 rounds | at most | rounds | ended |"
    )
    print("|---:|---|---:|---:|---:|---:|---:|---|---|")
    every = Timing(min_rounds=TRUE_ROUNDS, max_rounds=TRUE_ROUNDS, race_pct=1e6, goal="full")
    with device.session():
        for bundle in table(f"space.tp={','.join(map(str, arguments.tp))}")[1]:
            family, report = bundle.families[0], lambda progress: None
            visits, _ = device.prepare(bundle.gemms, every)
            if not device.soaked:
                device.soak(visits[max(visits, key=lambda gemm: gemm.flops)], every, device.clock())
                device.soaked = True
            truth, _, seconds, _ = run_rounds(device, bundle, every, visits, report)
            effect = truth.comparison(family).effect
            top = np.flatnonzero(effect - effect.min() < math.log1p(every.tie_pct / 100)).tolist()
            fixed = seconds * FIXED_ROUNDS / truth.rounds
            trials = [
                run_rounds(device, bundle, Timing(seed=seed), visits, report) for seed in range(1, arguments.trials + 1)
            ]
            found = [sampler.comparison(family).order[0] in top for sampler, *_ in trials]
            spent = [seconds for *_, seconds, _ in trials]
            rounds = sorted(sampler.rounds for sampler, *_ in trials)
            ended = sum(reason == "best_found" for *_, reason in trials)
            members = ", ".join(str(family.candidates[i].value) for i in top)
            print(
                f"| {family.tp} | {members} | {len(trials)} | {sum(found)} | {mean(spent):.3f} "
                f"| {mean(spent) / fixed:.2f} | {max(spent) / fixed:.2f} | {rounds[0]}–{rounds[-1]} "
                f"| best_found {ended} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
