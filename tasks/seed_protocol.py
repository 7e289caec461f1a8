"""The procedure of swiglu-maf-bench to the letter, so that its published figures can be compared with.

fp16; normal on the CPU, then moved; ``torch.bmm(A, B, out=C)``; 50 warm-up and 100 timed calls between two events, the
mean; operands hot in the cache; shapes in order, the baseline last.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime

import torch

from tasks.care import Care
from tasks.device import NO_CARE, Device
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.records import GemmFacts, Measurement, Progress, Sample

WARMUP_CALLS = 50
TIMED_CALLS = 100


def mean_seconds(device: torch.device, gemm: Gemm) -> float:
    """Mean seconds of one call of ``gemm``, as the seed's ``benchmark_bmm`` measures it."""
    a = torch.randn((gemm.b, gemm.m, gemm.k)).half().to(device)
    b = torch.randn((gemm.b, gemm.k, gemm.n)).half().to(device)
    c = torch.empty((gemm.b, gemm.m, gemm.n)).half().to(device)
    if device.type == "cpu":
        return _cpu_seconds(a, b, c)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for i in range(WARMUP_CALLS + TIMED_CALLS):
        if i == WARMUP_CALLS:
            start.record()
        torch.bmm(a, b, out=c)
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / (1000 * TIMED_CALLS)


def _cpu_seconds(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    start = 0
    for i in range(WARMUP_CALLS + TIMED_CALLS):
        if i == WARMUP_CALLS:
            start = time.perf_counter_ns()
        torch.bmm(a, b, out=c)
    return (time.perf_counter_ns() - start) * 1e-9 / TIMED_CALLS


def in_order(bundle: Bundle) -> tuple[Gemm, ...]:
    """The Bundle's Gemms in the seed's order: by d_ff, the baseline last."""
    (family,) = bundle.families[:1]
    candidates = sorted(family.candidates, key=lambda candidate: (candidate.baseline, candidate.value))
    return tuple(part.gemm for candidate in candidates for part in candidate.parts)


def measure(
    device: Device,
    bundle: Bundle,
    report: Callable[[Progress], None],
    stop: Callable[[], bool] = lambda: False,
    care: Care = NO_CARE,
) -> Measurement:
    """Measure each Gemm of ``bundle`` once, one after another, until ``stop``: one Sample each, its mean."""
    started, begin = datetime.now(UTC).isoformat(), device.clock()
    samples: list[Sample] = []
    facts = list(care.lost)
    stopped = False
    with device.measuring() as window:
        for position, gemm in enumerate(care.wanted(in_order(bundle))):
            stopped = stopped or stop()
            if reason := "interrupted" if stopped else care.too_large(gemm) or device.too_large(gemm.bytes):
                facts.append(GemmFacts(gemm_id=gemm.gemm_id, status="skipped", message=reason))
                continue
            if care.one_by_one:
                report(Progress(bundle_id=bundle.bundle_id, state="try", trying=gemm.gemm_id))
            try:
                seconds = mean_seconds(device.torch_device, gemm)
            except torch.OutOfMemoryError as error:
                if not care.last:
                    raise
                facts.append(GemmFacts(gemm_id=gemm.gemm_id, status="oom", message=str(error)))
                continue
            samples.append(
                Sample(
                    gemm_id=gemm.gemm_id,
                    round=0,
                    position=position,
                    calls=TIMED_CALLS,
                    lead_calls=WARMUP_CALLS,
                    seconds=seconds,
                )
            )
            facts.append(GemmFacts(gemm_id=gemm.gemm_id, launch="stream" if device.info.kind != "cpu" else "cpu"))
            report(Progress(bundle_id=bundle.bundle_id, state="measure", rounds=1, gemms=position + 1))
    return Measurement(
        bundle_id=bundle.bundle_id,
        samples=tuple(samples),
        facts=tuple(facts),
        device=device.info,
        telemetry=window.telemetry,
        started_utc=started,
        prepare_s=0.0,
        measuring_s=device.clock() - begin,
        rounds=1 if samples else 0,
        resolved=False,
        stop_reason="interrupted" if stopped else "fixed" if samples else "nothing",
    )
