"""How long a Bundle may take on a device before its worker is believed to hang."""

from orchestrator.catalogue import GpuSpec, match
from orchestrator.plan import bundle_estimate
from tasks.family import Bundle
from tasks.gemm import ELEMENT_BYTES
from tasks.records import DeviceInfo
from tasks.settings import BASELINES, COOL_S, Timing

FACTOR = 10.0
"""A Bundle may take this many times as long as the roofline estimate says."""

SLOW_TFLOPS = {"cpu": 0.005, "cuda": 2.0, "rocm": 2.0}
SLOW_GB_S = {"cpu": 2.0, "cuda": 50.0, "rocm": 50.0}
"""What a device that the catalogue does not know is believed to do at least."""


def deadline_s(bundle: Bundle, device: DeviceInfo, timing: Timing, floor_s: float) -> float:
    """Seconds after which ``bundle`` counts as hanging: scaled from the roofline, never below ``floor_s``.

    What the protocol itself waits for (soak or warm-up, rest after throttling) is added.
    """
    spec = match(device.gpu, device.memory_bytes)
    if spec is None or not all(spec.peak(gemm.dtype) for gemm in bundle.gemms):
        spec = _slow(device)
    again = 0 if timing.protocol in BASELINES else timing.redo_throttled
    seconds = FACTOR * bundle_estimate(bundle, spec, timing).most_s * (1 + again) + again * COOL_S
    return max(floor_s, seconds + (timing.warmup_s if timing.protocol == "sequential" else timing.soak_max_s))


def _slow(device: DeviceInfo) -> GpuSpec:
    return GpuSpec(
        key="unknown",
        family="unknown",
        names=(),
        vendor="unknown",
        sm_count=device.sm_count,
        memory_gb=device.memory_bytes / 1e9,
        bandwidth_gb_s=SLOW_GB_S[device.kind],
        l2_mb=device.l2_bytes / 1e6,
        llc_mb=None,
        boost_mhz=None,
        power_w=None,
        intra_node_gb_s=None,
        peak_tflops=dict.fromkeys(ELEMENT_BYTES, SLOW_TFLOPS[device.kind]),
        best_bf16_tflops=None,
        sources=(),
    )
