"""Does naming kernels slow what is measured later? The same Families before and after, in one process.

Printed per phase, against the first: call times of the same Gemms (median and worst ratio over Gemms), the share of the
rounds' wall time that timed and lead calls fill, and what one launch costs the host. «before again» shows the noise;
«names» is what ``run.kernels`` does; «profiler», the last, is a torch.profiler session instead.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.families import seed, sweep, table
from benchmarks.opened import opened
from tasks.device import Device
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.kernels import kernel_names
from tasks.measure import measure_bundle
from tasks.settings import Timing

LAUNCHES = 2000
SMALL = Gemm(kind="mm", b=1, m=16, n=64, k=64, dtype="fp16", layout="nt")
"""Takes the device less time than its launch takes the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Median seconds of a call by Gemm; share of the rounds that calls fill; host seconds of a launch."""

    name: str
    seconds: dict[str, float]
    busy: float
    launch_s: float


def measured(device: Device, bundle: Bundle, timing: Timing, name: str) -> Phase:
    found = measure_bundle(device, bundle, timing)
    samples: dict[str, list[float]] = {}
    for sample in found.samples:
        samples.setdefault(sample.gemm_id, []).append(sample.seconds)
    filled = sum(sample.seconds * (sample.calls + sample.lead_calls) for sample in found.samples)
    seconds = {gemm_id: median(each) for gemm_id, each in samples.items()}
    return Phase(name=name, seconds=seconds, busy=filled / found.measuring_s, launch_s=launch_seconds(device))


def launch_seconds(device: Device) -> float:
    """Host seconds of one launch, in the median of five runs."""
    runs = []
    with device.session():
        call = device.one_call(SMALL)
        for _ in range(5):
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(LAUNCHES):
                call()
            runs.append((time.perf_counter() - begin) / LAUNCHES)
        torch.cuda.synchronize()
    return median(runs)


def profiled(device: Device, gemms: Sequence[Gemm]) -> None:
    """Name the kernels as a profiler does."""
    with device.session(), profile(activities=[ProfilerActivity.CUDA]):
        for gemm in gemms:
            device.one_call(gemm)()
        torch.cuda.synchronize()


def named(device: Device, gemms: Sequence[Gemm]) -> None:
    """Name the kernels as ``run.kernels`` does."""
    kernel_names(device, gemms)


def nothing(device: Device, gemms: Sequence[Gemm]) -> None:
    """Leave the process as it is."""


PHASES: tuple[tuple[str, Callable[[Device, Sequence[Gemm]], None]], ...] = (
    ("before", nothing),
    ("before again", nothing),
    ("after names", named),
    ("after names again", named),
    ("after a profiler", profiled),
)
"""What is done with all Families' Gemms before all of them are measured: what a phase leaves behind stays."""


def row(phase: Phase, first: Phase) -> str:
    ratios = [seconds / first.seconds[gemm_id] for gemm_id, seconds in phase.seconds.items()]
    return (
        f"| {phase.name} | {median(ratios):.4f} | {max(ratios):.4f} | {100 * phase.busy:.1f}% "
        f"| {phase.launch_s * 1e6:.2f} |"
    )


def bundles() -> list[Bundle]:
    """Decode shapes, whose calls are short, the table at tp 1 and 8, and the seed's question."""
    decode = ("space.roles=mlp_up", "space.h=4096", "space.tp=8", "space.seq=1", "space.batch=16")
    found = [*sweep(*decode, "space.d_ff={start: 10240, stop: 11776, step: 64}")[1], *table()[1], *seed()[1]]
    return [found[0], found[1], found[4], found[5]]


def main() -> None:
    device = opened()
    print()
    work, timing = bundles(), Timing(goal="full", race_pct=1e6)
    phases: dict[str, list[Phase]] = {bundle.bundle_id: [] for bundle in work}
    for name, step in PHASES:
        begin = time.perf_counter()
        for bundle in work:
            step(device, bundle.gemms)
        print(f"{name}: {(time.perf_counter() - begin) * 1e3:.0f} ms for {sum(len(b.gemms) for b in work)} Gemms")
        for bundle in work:
            phases[bundle.bundle_id].append(measured(device, bundle, timing, name))
    for bundle_id, found in phases.items():
        print(f"\n{bundle_id}, {len(found[0].seconds)} Gemms\n")
        print("| phase | call, median ratio | worst | calls fill | launch us |")
        print("|---|---:|---:|---:|---:|")
        for phase in found:
            print(row(phase, found[0]))
    names = sorted({name for bundle in work for name in kernel_names(device, bundle.gemms).values()})
    print(f"\n{len(names)} different kernels, such as:\n")
    for name in names[:10]:
        print(f"    {name}")


if __name__ == "__main__":
    main()
