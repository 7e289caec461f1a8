"""Are the figures true, is the device busy? Call times against the profiler's kernels of the same replays."""

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
OTHERS = ("memset", "memcpy", "elementwise", "fill")
"""Device activities that are not part of a call: flushes and fills."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel on the device's timeline, seconds."""

    name: str
    start: float
    seconds: float


def kernels(prof: Any) -> list[Kernel]:
    """The matmul kernels of a profile in the order they ran: split-K shapes run two a call, and both count."""
    found = [
        Kernel(event.name, event.time_range.start * 1e-6, event.time_range.elapsed_us() * 1e-6)
        for event in prof.events()
        if event.device_type.name == "CUDA" and not any(other in event.name.lower() for other in OTHERS)
    ]
    return sorted(found, key=lambda kernel: kernel.start)


def call_times(visit: Visit) -> list[float]:
    """Seconds per call of some visits, enqueued one behind the other."""
    pending = [visit.enqueue() for _ in range(VISITS)]
    return [each.seconds() for each in pending]


def truth(visit: Visit) -> tuple[float, float, float, float]:
    """Microseconds of a call: alone, while profiled, by the profiler's kernels; and kernels per call."""
    call_times(visit)
    alone = median(call_times(visit))
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        profiled = median(call_times(visit))
        torch.cuda.synchronize()
    found = kernels(prof)
    count = VISITS * (visit.calls + visit.lead_calls)
    return alone * 1e6, profiled * 1e6, sum(k.seconds for k in found) / count * 1e6, len(found) / count


def busy(device: Device, bundle: Bundle, timing: Timing) -> tuple[float, float]:
    """Share of the measuring phase's wall time that the device spends in matmul kernels, and the phase's seconds."""
    visits, _ = device.prepare(bundle.gemms, timing)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
        _, _, seconds, _ = run_rounds(device, bundle, timing, visits, lambda progress: None)
        torch.cuda.synchronize()
    return sum(kernel.seconds for kernel in kernels(prof)) / seconds, seconds


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
        print(
            "| Gemm | launch | calls | call us | profiled us | kernels us "
            "| profiled/kernels | call/kernels | kernels a call |"
        )
        print("|---|---|---:|---:|---:|---:|---:|---:|---:|")
        for gemm in shapes():
            visits, failures = device.prepare([gemm], timing)
            if failures:
                sys.exit(failures[0].message)
            visit = visits[gemm]
            alone, profiled, truly, number = truth(visit)
            print(
                f"| {gemm.gemm_id} | {visit.launch} | {visit.calls} | {alone:.2f} | {profiled:.2f} | {truly:.2f} "
                f"| {profiled / truly:.3f} | {alone / truly:.3f} | {number:.2f} |"
            )
        print("\n| Family | measuring s | device in kernels |")
        print("|---|---:|---:|")
        decode = ("space.roles=mlp_up", "space.h=4096", "space.tp=1,8", "space.seq=1", "space.batch=1,64")
        decode_bundles = sweep(*decode, "space.d_ff={start: 10240, stop: 11776, step: 64}")[1]
        for bundle in (*seed()[1], *table()[1], *decode_bundles):
            share, seconds = busy(device, bundle, timing)
            print(f"| {bundle.bundle_id} | {seconds:.2f} | {100 * share:.1f}% |")


if __name__ == "__main__":
    main()
