"""Are the figures true, is the device busy? Call times against what the profiler saw in the same replays."""

import sys
import time
from dataclasses import dataclass
from itertools import islice
from statistics import mean, median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.families import seed, sweep, table
from benchmarks.opened import opened
from tasks.device import Device, Visit
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.measure import run_rounds
from tasks.settings import Timing

VISITS = 12
"""Visits of a block, enqueued one behind the other."""

BLOCKS = 5
"""Blocks without and with the profiler, in turn, so that both meet the same clocks and power."""

LONG_S = 5e-5
"""Calls from here on draw the power that moves clocks."""

SETTLE_S = 0.25
"""Seconds of a long call's visits right before each block, for starting and reading a profiler lets the chip rest."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What the device did at a stretch: a kernel or a memset. Seconds."""

    start: float
    seconds: float


def activities(prof: Any) -> list[Activity]:
    """All that the device did in a profile, in order.

    A call may be several: split-K shapes run two kernels, and cuBLAS clears its workspace before some.
    """
    found = [
        Activity(event.time_range.start * 1e-6, event.time_range.elapsed_us() * 1e-6)
        for event in prof.events()
        if event.device_type.name == "CUDA"
    ]
    return sorted(found, key=lambda activity: activity.start)


def call_seconds(visit: Visit) -> float:
    """Seconds of a call in the median visit of a block."""
    pending = [visit.enqueue() for _ in range(VISITS)]
    return median(each.seconds() for each in pending)


def device_seconds(visit: Visit, found: list[Activity]) -> tuple[float, int]:
    """Seconds per timed call of a block's visits by what the device did, in the median visit; and activities a call.

    ``found`` ends with the block's activities: what went before settled the chip.
    """
    calls = visit.lead_calls + visit.calls
    each = activities_a_visit(visit) // calls
    if len(found) % (calls * each):
        sys.exit(f"{visit.gemm.gemm_id}: {len(found)} activities of the device, {each} for each of {calls} calls")
    sums = []
    for start in range(len(found) - VISITS * calls * each, len(found), calls * each):
        timed = found[start + visit.lead_calls * each : start + calls * each]
        sums.append(sum(activity.seconds for activity in timed) / visit.calls)
    return median(sums), each


def activities_a_visit(visit: Visit) -> int:
    """How many things the device does in a visit."""
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        visit.enqueue().seconds()
        torch.cuda.synchronize()
    return len(activities(prof))


def settle(visit: Visit) -> None:
    """Bring the chip to where a block is to be measured."""
    begun = time.perf_counter()
    while call_seconds(visit) >= LONG_S and time.perf_counter() - begun < SETTLE_S:
        pass


def truth(visit: Visit) -> tuple[float, float, float, int]:
    """Seconds of a call: as the tool reports them, while profiled, by the profiler; and activities a call."""
    call, profiled, device = [], [], []
    for _ in range(BLOCKS):
        settle(visit)
        call.append(call_seconds(visit))
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
            settle(visit)
            profiled.append(call_seconds(visit))
            torch.cuda.synchronize()
        seconds, each = device_seconds(visit, activities(prof))
        device.append(seconds)
    return median(call), median(profiled), median(device), each


@dataclass(frozen=True, slots=True)
class Busy:
    """Shares of the measuring phase's wall time that the device works.

    calls: the calls' own times, which count the gaps between the kernels of a visit as work. kernels: what the
    profiler saw of each Gemm's visits in a phase of its own, over the wall time of a phase without it. profiled:
    kernels and wall time of the phase with it, whose launches of a graph take longer. seconds: the phase without it.
    """

    calls: float
    kernels: float
    profiled: float
    seconds: float


def busy(device: Device, bundle: Bundle, timing: Timing) -> Busy:
    """Measure a Bundle without and with the profiler."""
    visits, _ = device.prepare(bundle.gemms, timing)
    sampler, _, alone, _ = run_rounds(device, bundle, timing, visits, lambda progress: None)
    a_visit = {gemm.gemm_id: activities_a_visit(visit) for gemm, visit in visits.items()}
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        again, _, profiled, _ = run_rounds(device, bundle, timing, visits, lambda progress: None)
        torch.cuda.synchronize()
    found = activities(prof)
    expected = sum(a_visit[sample.gemm_id] for sample in again.samples)
    if len(found) != expected:
        sys.exit(f"{bundle.bundle_id}: {len(found)} activities of the device, {expected} in its visits")
    rest = iter(found)
    seen: dict[str, list[float]] = {gemm_id: [] for gemm_id in a_visit}
    for sample in again.samples:
        seen[sample.gemm_id].append(sum(activity.seconds for activity in islice(rest, a_visit[sample.gemm_id])))
    return Busy(
        calls=sum(sample.seconds * (sample.calls + sample.lead_calls) for sample in sampler.samples) / alone,
        kernels=sum(mean(seen[sample.gemm_id]) for sample in sampler.samples) / alone,
        profiled=sum(activity.seconds for activity in found) / profiled,
        seconds=alone,
    )


def shapes() -> list[Gemm]:
    """Decode shapes at tp 8 and 1, and larger ones."""
    found = []
    for tokens in (1, 4, 16, 64, 256, 1024, 4096):
        for tp in (8, 1):
            found.append(Gemm(kind="mm", b=1, m=tokens, n=11008 // tp, k=4096, dtype="fp16", layout="nt"))
    found.append(Gemm(kind="bmm", b=4, m=4096, n=4096, k=10944, dtype="fp16"))
    return found


def main() -> None:
    device = opened()
    print()
    timing = Timing(goal="full")
    with device.session():
        print("| Gemm | launch | calls | call us | profiled us | device us | profiled/device | call/device | a call |")
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
        for gemm in shapes():
            visits, failures = device.prepare([gemm], timing)
            if failures:
                sys.exit(failures[0].message)
            visit = visits[gemm]
            call, profiled, seconds, each = truth(visit)
            print(
                f"| {gemm.gemm_id} | {visit.launch} | {visit.calls} | {call * 1e6:.2f} | {profiled * 1e6:.2f} "
                f"| {seconds * 1e6:.2f} | {profiled / seconds:.3f} | {call / seconds:.3f} | {each} |"
            )
        print("\n| Family | measuring s | calls' own time | kernels | kernels in a profiled phase |")
        print("|---|---:|---:|---:|---:|")
        decode = ("space.roles=mlp_up", "space.h=4096", "space.tp=1,8", "space.seq=1", "space.batch=1,64")
        decode_bundles = sweep(*decode, "space.d_ff={start: 10240, stop: 11776, step: 64}")[1]
        for bundle in (*seed()[1], *table()[1], *decode_bundles):
            found = busy(device, bundle, timing)
            shares = " | ".join(f"{100 * share:.1f}%" for share in (found.calls, found.kernels, found.profiled))
            print(f"| {bundle.bundle_id} | {found.seconds:.2f} | {shares} |")


if __name__ == "__main__":
    main()
