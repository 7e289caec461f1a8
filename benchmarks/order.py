"""What an order of shapes hangs on: the turn in which they come, or the shapes. Tau-b of each way with each other.

One shape after another from small to large, from large to small and twice in one random order; in rounds twice with
the cache outrun, once with it flushed before each call, and once with a rest before each visit.
"""

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.opened import opened_for_tokens
from benchmarks.repeatability import effects, tau_b
from benchmarks.sequential import means
from tasks.device import Device
from tasks.family import Bundle
from tasks.measure import measure_bundle
from tasks.records import Measurement, Progress
from tasks.settings import Timing

IN_ROUNDS = Timing(goal="full", race_pct=1e6)
ROUNDS = {
    "rounds": IN_ROUNDS,
    "rounds again": replace(IN_ROUNDS, seed=1),
    "flushed": replace(IN_ROUNDS, l2="flush"),
    "rested": replace(IN_ROUNDS, power="burst"),
}
TURNS = {"up": "up", "down": "down", "mixed": "mixed", "mixed again": "mixed"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """How one way orders the shapes. cost: of each, from small to large. clocks_mhz: 5, 50 and 95% of the polls."""

    name: str
    cost: list[float]
    clocks_mhz: tuple[float, ...]


def turned(bundle: Bundle, turn: str) -> Bundle:
    """The same shapes in another turn: ``up``, ``down``, or ``mixed`` by a fixed seed."""
    (family,) = bundle.families
    candidates = list(family.candidates)
    if turn == "down":
        candidates.reverse()
    elif turn == "mixed":
        random.Random(0).shuffle(candidates)
    return Bundle(families=(replace(family, candidates=tuple(candidates)),))


def order(
    name: str,
    device: Device,
    bundle: Bundle,
    timing: Timing,
    costs: Callable[[Bundle, Timing, Measurement], list[float]],
) -> Order:
    """Measure all shapes, and what the clock did meanwhile."""
    begin: list[float] = []

    def note(progress: Progress) -> None:
        if progress.state == "measure" and not begin:
            begin.append(device.clock())

    device.close()
    with device.window() as window:
        result = measure_bundle(device, bundle, timing, note)
    by_rows = sorted(zip((gemm.m for gemm in bundle.gemms), costs(bundle, timing, result), strict=True))
    clocks = [each.sm_clock_mhz or np.nan for at, each in window.readings if at >= begin[0]] or [np.nan]
    return Order(
        name=name,
        cost=[cost for _, cost in by_rows],
        clocks_mhz=tuple(np.percentile(clocks, (5, 50, 95)).tolist()),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    asked, device, bundle = opened_for_tokens(parser)
    one_by_one = Timing(protocol="sequential", warmup_s=asked.warmup_s)
    found = [order(name, device, turned(bundle, turn), one_by_one, means) for name, turn in TURNS.items()]
    for name, timing in ROUNDS.items():
        found.append(order(name, device, bundle, replace(timing, max_seconds=asked.max_seconds), effects))
    print(f"| {len(bundle.gemms)} shapes | SM clock, MHz | {' | '.join(each.name for each in found)} |")
    print(f"|---|---{'|---:' * len(found)}|")
    for each in found:
        clocks = ", ".join(f"{clock:.0f}" for clock in each.clocks_mhz)
        print(f"| {each.name} | {clocks} | {' | '.join(f'{tau_b(each.cost, other.cost):.2f}' for other in found)} |")


if __name__ == "__main__":
    main()
