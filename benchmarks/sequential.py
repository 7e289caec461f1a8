"""The public way, one shape after another, against rounds: the same shapes twice by each, in one process.

Wall times are those of a user with a fresh worker: each pass has its load before, its preparing and its measuring. The
warm-up of protocol ``sequential`` is made once and counts for both of its passes; the default protocol's soak is made
before each of its own.
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import fmean, median

from benchmarks.opened import opened_for_tokens
from benchmarks.repeatability import effects, tau_b
from tasks.device import Device
from tasks.family import Bundle
from tasks.measure import measure_bundle
from tasks.records import Measurement
from tasks.settings import Timing


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """One pass over the shapes. loaded_s: warm-up or soak. cost: log of seconds per FLOP of each, over the median's."""

    loaded_s: float
    prepare_s: float
    measuring_s: float
    cost: list[float]

    @property
    def wall_s(self) -> float:
        """What a user waits for, once the device is open."""
        return self.loaded_s + self.prepare_s + self.measuring_s


def means(bundle: Bundle, timing: Timing, measurement: Measurement) -> list[float]:
    """Log of the mean seconds per FLOP of each shape."""
    seconds: dict[str, list[float]] = defaultdict(list)
    for sample in measurement.samples:
        seconds[sample.gemm_id].append(sample.seconds)
    return [math.log(fmean(seconds[gemm.gemm_id]) / gemm.flops) for gemm in bundle.gemms]


def measured(
    device: Device,
    bundle: Bundle,
    timing: Timing,
    costs: Callable[[Bundle, Timing, Measurement], list[float]],
    loaded_s: float | None = None,
) -> Pass:
    """Measure all shapes; loaded_s: of the warm-up that the device has had already, else it has none yet."""
    device.soaked = loaded_s is not None
    device.close()
    result = measure_bundle(device, bundle, timing)
    if failed := [facts for facts in result.facts if facts.status != "ok"]:
        raise SystemExit(f"{len(failed)} shapes were not measured: {failed[0].gemm_id}: {failed[0].message}")
    cost = costs(bundle, timing, result)
    return Pass(
        loaded_s=result.soak_s if loaded_s is None else loaded_s,
        prepare_s=result.prepare_s,
        measuring_s=result.measuring_s,
        cost=[each - median(cost) for each in cost],
    )


def passes(device: Device, bundle: Bundle, warmup_s: float, default: Timing) -> dict[str, tuple[Pass, Pass]]:
    """Two passes by each protocol."""
    one_after_another = Timing(protocol="sequential", warmup_s=warmup_s)
    first = measured(device, bundle, one_after_another, means)
    second = measured(device, bundle, one_after_another, means, loaded_s=first.loaded_s)
    in_rounds = [measured(device, bundle, replace(default, seed=seed), effects) for seed in (1, 2)]
    return {"sequential": (first, second), "interleaved": (in_rounds[0], in_rounds[1])}


def apart(one: Pass, other: Pass) -> float:
    """The largest disagreement of two passes, in percent."""
    return 100 * max(abs(math.expm1(a - b)) for a, b in zip(one.cost, other.cost, strict=True))


def line(name: str, first: Pass, second: Pass, ratio: float) -> str:
    """One row of the table."""
    both = (first, second)
    cells = (", ".join(f"{getattr(each, part):.2f}" for each in both) for part in PARTS)
    return (
        f"| {name} | {' | '.join(cells)} | {tau_b(first.cost, second.cost):.3f} | {apart(first, second):.2f}% "
        f"| {ratio:.3f} |"
    )


PARTS = ("wall_s", "loaded_s", "prepare_s", "measuring_s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--soak-s", type=float, default=Timing().soak_max_s, help="of the default protocol, at most")
    asked, device, bundle = opened_for_tokens(parser)
    rows = [gemm.m for gemm in bundle.gemms]
    print(f"{len(rows)} shapes, M = {rows[0]} to {rows[-1]}, N = {bundle.gemms[0].n}, K = {bundle.gemms[0].k}, twice")
    print("sequential's warm-up is made once, and counted in both passes\n")
    soak_min_s = min(Timing().soak_min_s, asked.soak_s)
    default = Timing(
        goal="full", race_pct=1e6, soak_min_s=soak_min_s, soak_max_s=asked.soak_s, max_seconds=asked.max_seconds
    )
    found = passes(device, bundle, asked.warmup_s, default)
    wall = {name: fmean(each.wall_s for each in both) for name, both in found.items()}
    print(
        "| protocol | wall s | warm-up or soak s | preparing s | measuring s | tau-b | largest disagreement "
        "| of sequential's wall time |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|---:|")
    for name, both in found.items():
        print(line(name, *both, wall[name] / wall["sequential"]))
    between = [tau_b(one.cost, other.cost) for one in found["sequential"] for other in found["interleaved"]]
    print(f"\nBetween a pass of the one and a pass of the other: tau-b {min(between):.3f} to {max(between):.3f}.")


if __name__ == "__main__":
    main()
