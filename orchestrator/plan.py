"""What a sweep would do and cost, without Ray and without torch: counts, skips, bytes, seconds."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from orchestrator.architecture import multiplies, possible
from orchestrator.call_time import call_seconds, flush_seconds
from orchestrator.catalogue import GpuSpec, family_or_key, representative
from orchestrator.column import Array
from orchestrator.gemm_columns import GemmSets, sets_of
from orchestrator.schema import Config
from orchestrator.space import Expansion
from tasks.calls import calls_together, lead_calls
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.settings import AWAKE_S, BURST_IDLE_S, LAUNCH_S, Timing
from tasks.wide import CLASS_SAMPLE, FINEST, LEVEL, LEVEL_ROUNDS, WIDE

PREPARE_S = 0.006
"""Preparing one Gemm (first run, check, estimate, capture) beside its own calls: 3 to 8 ms on an H200 host."""

PREPARE_CALLS = 3
SEED_CALLS = 150
SEQUENTIAL_CALLS, SEQUENTIAL_SAMPLES = 150, 100
SEED_DRAW_PER_S = 1.1e8
"""The seed's protocol draws its operands on the CPU: numbers a second, on an H200 host."""

GPUS_OF_A_HOST = 8

START_S = 9.0
"""Ray's start and end and opening the device, beside the soak: 8 to 10 s on an H200 host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Seconds of one device for a Bundle: from the fewest rounds to the cap."""

    least_s: float
    most_s: float
    samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A sweep's cost.

    estimate is None where the catalogue does not tell how fast the device is: a CPU, or a dtype (``unknown``) that it
    multiplies without a published peak. It leaves out the ``too_large`` Gemms, which a run skips, and the
    ``unsupported`` ones, which the GPU is known not to multiply.
    """

    spec: GpuSpec | None
    estimate: Estimate | None
    unknown: tuple[str, ...]
    largest_bytes: int
    largest_gemm: Gemm
    too_large: int
    unsupported: int
    flops: int


def plan(config: Config, expansion: Expansion) -> Plan:
    """Estimate what ``expansion`` costs on the configuration's GPU, or on ``cluster.reference_gpu``."""
    spec = reference(config)
    unknown = [] if spec is None else [name for name in config.space.dtype if _unknown(name, spec)]
    work = expansion.bundles.sets
    asked = work.table.bytes()[work.gemms]
    largest = work.table.gemm(int(work.gemms[np.argmax(asked)]))
    every = np.ones(len(asked), dtype=bool)
    fits = every if spec is None else asked <= spec.memory_gb * 1e9
    known = every if spec is None else possible(work.table, spec)[work.gemms]
    return Plan(
        spec=spec,
        estimate=None if spec is None or unknown else _sum(_estimates(work.only(fits & known), spec, config.timing)),
        unknown=tuple(unknown),
        largest_bytes=largest.bytes,
        largest_gemm=largest,
        too_large=int(np.count_nonzero(known & ~fits)),
        unsupported=int(np.count_nonzero(~known)),
        flops=sum(work.exact_sums(work.table.flops()[work.gemms])),
    )


def _unknown(dtype: str, spec: GpuSpec) -> bool:
    return not spec.peak(dtype) and multiplies(dtype, spec)


def gpu_counts(config: Config) -> tuple[int, ...]:
    """For how many GPUs to tell how long it takes: one, and a host's eight or as many as may be used."""
    most = config.cluster.max_gpus or GPUS_OF_A_HOST
    return (1, most) if most > 1 else (1,)


def wall_seconds(estimate: Estimate, expansion: Expansion, config: Config, gpus: int) -> tuple[float, float]:
    """The least and the most seconds that a sweep takes on so many GPUs, with Ray's start and end and the load before.

    With ``cluster.placement=replicate`` each of them measures everything.
    """
    beside = START_S + _loaded_s(config.timing)
    shared = 1 if config.cluster.placement == "replicate" else min(gpus, len(expansion.bundles))
    return beside + estimate.least_s / shared, beside + estimate.most_s / shared


def _loaded_s(timing: Timing) -> float:
    """Seconds of load before the first Bundle."""
    if timing.protocol == "interleaved":
        return timing.soak_min_s if timing.power == "sustained" else 0.0
    return timing.warmup_s if timing.protocol == "sequential" else 0.0


def reference(config: Config) -> GpuSpec | None:
    """The catalogue entry to estimate for; None for the CPU."""
    gpu = config.cluster.gpu
    if gpu in ("all", "any", "auto"):
        key = config.cluster.reference_gpu
        return None if key is None else representative(key)
    if gpu == "cpu":
        return None
    models = family_or_key(gpu)
    return next((spec for spec in models if spec.key == config.cluster.reference_gpu), representative(gpu))


def total(bundles: Iterable[Bundle], spec: GpuSpec, timing: Timing) -> Estimate:
    """The Bundles one after another on one device, without its start and soak."""
    return _sum(_estimates(sets_of(bundles), spec, timing))


def bundle_estimate(bundle: Bundle, spec: GpuSpec, timing: Timing) -> Estimate:
    """One Bundle by ``timing.protocol``."""
    return total((bundle,), spec, timing)


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Estimates:
    """What an Estimate has, of each Bundle."""

    least_s: Array
    most_s: Array
    samples: Array


def _sum(estimates: _Estimates) -> Estimate:
    return Estimate(
        least_s=float(estimates.least_s.sum()),
        most_s=float(estimates.most_s.sum()),
        samples=int(estimates.samples.sum()),
    )


def _estimates(work: GemmSets, spec: GpuSpec, timing: Timing) -> _Estimates:
    """Each Bundle by ``timing.protocol``."""
    seconds = work.table.each(lambda gemms: call_seconds(gemms, spec), np.float64)[work.gemms]
    count = np.diff(work.starts)
    once = work.sums(seconds)
    if timing.protocol == "seed":
        drawn = work.sums(work.table.each(_numbers, np.int64)[work.gemms])
        spent = SEED_CALLS * once + drawn / SEED_DRAW_PER_S
        return _Estimates(least_s=spent, most_s=spent, samples=count)
    if timing.protocol == "sequential":
        spent = PREPARE_S * count + SEQUENTIAL_CALLS * (once + flush_seconds(spec) * count)
        return _Estimates(least_s=spent, most_s=spent, samples=SEQUENTIAL_SAMPLES * count)
    calls = calls_together(seconds, np.repeat(work.medians(seconds), count), timing)
    leading = np.where(calls > 1, lead_calls(2, timing), lead_calls(1, timing))
    round_s = work.sums((calls + leading) * seconds)
    if timing.power == "burst":
        round_s += (BURST_IDLE_S + AWAKE_S) * count
    elif timing.l2 == "flush":
        round_s += LAUNCH_S * count
    prepare = PREPARE_S * count + PREPARE_CALLS * once
    race = work.rivals > 1
    least = np.where(race, timing.least_rounds, timing.lone_rounds)
    few, many = (_search(work.rivals, timing, near) for near in (1, LEVEL))
    most_s = np.where(many.levels > 0, timing.search_seconds, timing.most_seconds)
    rounds = least + np.floor(most_s / (many.racing * round_s)).astype(np.int64)
    # At worst one leaves at the last look: those that stay get the least rounds after the one then in flight.
    rounds += np.where(race, least + 1, 0)
    rounds = np.minimum(timing.max_rounds, rounds)
    return _Estimates(
        least_s=few.prepared * prepare + (few.levels + few.racing * least) * round_s,
        most_s=many.prepared * prepare + (many.levels + many.racing * rounds) * round_s,
        samples=np.ceil((many.levels + many.racing * rounds) * count).astype(np.int64),
    )


@dataclass(frozen=True, slots=True)
class _Search:
    """Shares of each Bundle: what is made ready, and what races; levels: rounds of all that the levels amount to."""

    prepared: Array
    levels: Array
    racing: Array


def _search(rivals: Array, timing: Timing, near: int) -> _Search:
    """What of each Bundle is measured at all, where of so many Candidates a level finds ``near`` near the best."""
    every = np.ones(len(rivals))
    wide = (rivals > WIDE) & (timing.goal == "top")
    first = CLASS_SAMPLE * FINEST.bit_length()
    levels = LEVEL_ROUNDS * (first + min(near, first) + LEVEL + near + (LEVEL if near > 1 else 0))
    made = first + LEVEL + (LEVEL if near > 1 else 0)
    return _Search(
        prepared=np.where(wide, np.minimum(1.0, made / rivals), every),
        levels=np.where(wide, levels / rivals, 0.0),
        racing=np.where(wide, np.minimum(1.0, max(near, 2) / rivals), every),
    )


def _numbers(gemm: Gemm) -> int:
    return gemm.input_bytes // gemm.element_bytes
