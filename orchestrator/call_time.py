"""How long one call of a Gemm should take: a roofline by the catalogue's figures, for one Gemm or for GemmColumns."""

from orchestrator.alignment import aligned
from orchestrator.catalogue import GpuSpec
from tasks.flush import flushes
from tasks.gemm import Gemm
from tasks.settings import L2_REUSE

PEAK_SHARE = 0.7
BANDWIDTH_SHARE = 0.8
LAUNCH_S = 2e-6
"""A well-shaped call reaches about these shares of the catalogue's peak and bandwidth, and takes at least this long."""

L2_MB = 60.0
"""Of a GPU of which the catalogue does not tell."""

MISALIGNED = 2.5
"""How many times as long a call takes whose rows are not multiples of 16 bytes: 2.3 to 3.5 on an H200 in fp16."""


def call_seconds(gemm: Gemm, spec: GpuSpec) -> float:
    """Roofline estimate of one call in a dtype that has a published peak; of GemmColumns an array."""
    peak = spec.peak(gemm.dtype) or 1.0
    slower = MISALIGNED - (MISALIGNED - 1.0) * aligned(gemm)
    compute = gemm.flops / (PEAK_SHARE * peak * 1e12) * slower
    moving = gemm.bytes / (BANDWIDTH_SHARE * spec.bandwidth_gb_s * 1e9)
    return compute * (compute >= moving) + moving * (moving > compute) + LAUNCH_S


def flush_seconds(spec: GpuSpec) -> float:
    """Roofline estimate of what is overwritten before a call that is timed alone."""
    cache = int(max(spec.l2_mb or L2_MB, spec.llc_mb or 0.0) * 1e6)
    return flushes(cache) * L2_REUSE * cache / (BANDWIDTH_SHARE * spec.bandwidth_gb_s * 1e9) + LAUNCH_S
