"""Which of a GPU's two ceilings a Gemm meets: arithmetic, or memory."""

from dataclasses import dataclass

from orchestrator.catalogue import GpuSpec
from tasks.gemm import Gemm

COMPUTE, MEMORY = "compute", "memory"


@dataclass(frozen=True, kw_only=True, slots=True)
class Roofline:
    """FLOPs per byte of a Gemm against those of a GPU; None where the catalogue has no peak of the dtype.

    intensity: FLOPs over the fewest bytes (A and B read once, C written once). ridge: peak over bandwidth.
    compute_s, memory_s: seconds of a call at the peak, and at the whole bandwidth. side: the longer of the two.
    """

    intensity: float
    ridge: float | None
    compute_s: float | None
    memory_s: float
    side: str | None

    @property
    def least_s(self) -> float:
        """No call is faster, as far as the catalogue knows."""
        return max(self.memory_s, self.compute_s or 0.0)


def roofline(gemm: Gemm, spec: GpuSpec) -> Roofline:
    """Place ``gemm`` under the ceilings of ``spec``."""
    peak, bandwidth = spec.peak(gemm.dtype), spec.bandwidth_gb_s * 1e9
    intensity = gemm.flops / gemm.bytes
    ridge = None if peak is None else peak * 1e12 / bandwidth
    return Roofline(
        intensity=intensity,
        ridge=ridge,
        compute_s=None if peak is None else gemm.flops / (peak * 1e12),
        memory_s=gemm.bytes / bandwidth,
        side=None if ridge is None else COMPUTE if intensity >= ridge else MEMORY,
    )
