"""Are the figures true, is the device busy? Call times against what the profiler saw in the same replays."""

import sys
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.families import seed, sweep, table
from tasks.device import Device, Visit, open_device
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.measure import run_rounds
from tasks.settings import Timing

VISITS = 12
"""Visits of a block, enqueued one behind the other."""

BLOCKS = 5
"""Blocks without and with the profiler, in turn, so that both meet the same clocks and power."""


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
    """Seconds per timed call of a block's visits by what the device did, in the median visit; and activities a call."""
    calls = visit.lead_calls + visit.calls
    each, rest = divmod(len(found), VISITS * calls)
    if rest:
        sys.exit(f"{visit.gemm.gemm_id}: {len(found)} activities of the device in {VISITS} visits of {calls} calls")
    sums = []
    for start in range(0, len(found), calls * each):
        timed = found[start + visit.lead_calls * each : start + calls * each]
        sums.append(sum(activity.seconds for activity in timed) / visit.calls)
    return median(sums), each


def truth(visit: Visit) -> tuple[float, float, float, int]:
    """Seconds of a call: as the tool reports them, while profiled, by the profiler; and activities a call."""
    call, profiled, device = [], [], []
    for _ in range(BLOCKS):
        call_seconds(visit)
        call.append(call_seconds(visit))
        call_seconds(visit)
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
            profiled.append(call_seconds(visit))
            torch.cuda.synchronize()
        seconds, each = device_seconds(visit, activities(prof))
        device.append(seconds)
    return median(call), median(profiled), median(device), each


def busy(device: Device, bundle: Bundle, timing: Timing) -> tuple[float, float, float]:
    """Shares of the measuring phase's wall time that the device works, and the phase's seconds.

    First by the calls' own times, without the profiler, whose launches of a graph take longer; then by the profiler's
    record, with it. The former count the gaps between the kernels of a visit as work, the latter do not.
    """
    visits, _ = device.prepare(bundle.gemms, timing)
    sampler, _, alone, _ = run_rounds(device, bundle, timing, visits, lambda progress: None)
    calls = sum(sample.seconds * (sample.calls + sample.lead_calls) for sample in sampler.samples)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        _, _, seconds, _ = run_rounds(device, bundle, timing, visits, lambda progress: None)
        torch.cuda.synchronize()
    return calls / alone, sum(activity.seconds for activity in activities(prof)) / seconds, seconds


def shapes() -> list[Gemm]:
    """Decode shapes at tp 8 and 1, and larger ones."""
    found = []
    for tokens in (1, 4, 16, 64, 256, 1024, 4096):
        for tp in (8, 1):
            found.append(Gemm(kind="mm", b=1, m=tokens, n=11008 // tp, k=4096, dtype="fp16", layout="nt"))
    found.append(Gemm(kind="bmm", b=4, m=4096, n=4096, k=10944, dtype="fp16"))
    return found


def main() -> None:
    device = open_device("cuda")
    print(f"{device.info.gpu}, torch {device.info.torch}, {device.info.runtime}, driver {device.info.driver}\n")
    timing = Timing()
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
        print("\n| Family | calls' own time | measuring s, profiled | kernels, profiled |")
        print("|---|---:|---:|---:|")
        decode = ("space.roles=mlp_up", "space.h=4096", "space.tp=1,8", "space.seq=1", "space.batch=1,64")
        decode_bundles = sweep(*decode, "space.d_ff={start: 10240, stop: 11776, step: 64}")[1]
        for bundle in (*seed()[1], *table()[1], *decode_bundles):
            own, kernels, seconds = busy(device, bundle, timing)
            print(f"| {bundle.bundle_id} | {100 * own:.1f}% | {seconds:.2f} | {100 * kernels:.1f}% |")


if __name__ == "__main__":
    main()
