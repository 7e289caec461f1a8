"""What is known of a GPU model's architecture before a device is opened: which Gemms it cannot multiply."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from orchestrator.catalogue import GpuSpec
from orchestrator.column import Array
from orchestrator.gemm_columns import GemmColumns, GemmTable
from tasks.gemm import Gemm, kind_of
from tasks.support import Architecture, multiple, unsupported

WELL_SIZED = 128
"""As m, n and k: no device minds them, so that what is left to mind is kind, element type or layout."""

CAPABILITY: Mapping[str, tuple[int, int]] = MappingProxyType(
    {
        "v100": (7, 0),
        "a100": (8, 0),
        "l4": (8, 9),
        "l40s": (8, 9),
        "rtx-4090": (8, 9),
        "h20": (9, 0),
        "h100": (9, 0),
        "h200": (9, 0),
        "b200": (10, 0),
        "gb200": (10, 0),
    }
)
"""Compute capability by family. Source: NVIDIA, «CUDA GPU Compute Capability»."""
GFX: Mapping[str, str] = MappingProxyType(
    {"mi250x": "gfx90a", "mi300x": "gfx942", "mi325x": "gfx942", "mi355x": "gfx950"}
)
"""LLVM target by family. Source: AMD, «Accelerator and GPU hardware specifications» of ROCm."""


def impossible(gemm: Gemm, spec: GpuSpec) -> str | None:
    """Say why this GPU model cannot multiply a Gemm, None where it can or where only a try can tell."""
    return unsupported(
        gemm,
        Architecture(
            kind="rocm" if spec.vendor == "amd" else "cuda",
            gpu=spec.key,
            capability=CAPABILITY.get(spec.family),
            gfx=GFX.get(spec.family),
        ),
    )


def multiplies(dtype: str, spec: GpuSpec) -> bool:
    """Whether this GPU model multiplies well-sized Gemms of an element type, as far as is known."""
    return impossible(_well_sized(kind_of(dtype), dtype, "nt"), spec) is None


def possible(table: GemmTable, spec: GpuSpec) -> Array:
    """Which of many Gemms this GPU model can multiply, as far as is known: where ``impossible`` has nothing to say."""
    return table.each(lambda gemms: _possible(gemms, spec), bool)


def _possible(gemms: GemmColumns, spec: GpuSpec) -> Array:
    m, n, k = (np.asarray(each) for each in (gemms.m, gemms.n, gemms.k))
    if impossible(_well_sized(gemms.kind, gemms.dtype, gemms.layout), spec) is not None:
        return np.zeros(m.shape, dtype=bool)
    of, least = multiple(gemms.kind)
    return np.asarray((m >= least) & (n % of == 0) & (k % of == 0))


def _well_sized(kind: str, dtype: str, layout: str) -> Gemm:
    return Gemm(kind=kind, b=1, m=WELL_SIZED, n=WELL_SIZED, k=WELL_SIZED, dtype=dtype, layout=layout)
