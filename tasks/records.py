"""What a measurement gives back: plain records without Ray, Arrow or torch in them."""

from dataclasses import dataclass, field

STATUSES = ("ok", "oom", "timeout", "illegal_access", "unsupported", "wrong_result", "worker_died", "skipped")

NO_FAILURE = ("ok", "skipped", "unsupported")
"""Statuses of a Gemm with which nothing went wrong: that it does not fit, or that the device cannot multiply it, is an
answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """Who measured: facts of one device that do not change while a worker lives. Unknown facts are None."""

    kind: str  # cuda, rocm or cpu
    gpu: str  # the device's own name, e.g. "NVIDIA H200"
    uuid: str
    host: str
    sm_count: int
    l2_bytes: int
    memory_bytes: int
    torch: str
    pci_id: str | None = None
    driver: str | None = None
    runtime: str | None = None  # "CUDA 13.0", "ROCm 6.4"
    blas: str | None = None  # "cuBLAS 13.1.0", "MKL …"
    power_limit_w: float | None = None
    sm_clock_max_mhz: float | None = None
    allow_fp16_reduced_precision_reduction: bool | None = None  # torch.backends.cuda.matmul, as the Gemms ran
    allow_bf16_reduced_precision_reduction: bool | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """One timed visit to one Gemm in one round: seconds per call, the mean over ``calls`` back-to-back calls.

    slowdown: how many times as long as over the whole round a call took just then, by the visits around it; None where
    the protocol does not tell. Costs are compared by ``seconds / slowdown``.
    """

    gemm_id: str
    round: int
    position: int
    calls: int
    lead_calls: int
    seconds: float
    slowdown: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GemmFacts:
    """How one Gemm was run, and whether it was measured."""

    gemm_id: str
    status: str = "ok"
    message: str = ""
    launch: str | None = None  # graph, stream, queued or cpu
    kernel: str | None = None
    energy_j: float | None = None  # per call


@dataclass(frozen=True, kw_only=True, slots=True)
class Telemetry:
    """What the device did during the rounds of one Bundle. Unknown facts are None."""

    sm_clock_mean_mhz: float | None = None
    sm_clock_min_mhz: float | None = None
    memory_clock_mean_mhz: float | None = None
    temperature_max_c: float | None = None
    power_mean_w: float | None = None
    energy_j: float | None = None
    power_limited: bool = False
    throttled: bool = False
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Measurement:
    """Everything that one device measured of one Bundle."""

    bundle_id: str
    samples: tuple[Sample, ...]
    facts: tuple[GemmFacts, ...]
    device: DeviceInfo
    telemetry: Telemetry
    started_utc: str  # ISO 8601
    prepare_s: float
    measuring_s: float
    rounds: int
    resolved: bool
    stop_reason: str  # resolved, best_found, max_rounds, max_seconds, fixed (seed protocol) or nothing (no live Gemm)
    soak_s: float = 0.0
    redone: int = 0
    first_round: int = 0  # samples of rounds before it were throttled: kept, and not ranked
    notes: tuple[str, ...] = field(default=())


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a device stands with its Bundle. state: try, prepare, soak, measure or cool."""

    bundle_id: str
    state: str
    rounds: int = 0
    gemms: int = 0
    trying: str | None = None  # the Gemm that runs for the first time now, where it is one by one
