"""Which Gemms a device can multiply, as far as it is known before they are tried. Pure rules, without torch.

Source of the numbers: what torch's operators check before they launch anything (ATen/native/cuda/Blas.cpp,
ScaledBlas.cpp and ScaledBlasDeviceUtils in torch 2.11 and later). What is not known here, the first run decides.
"""

from dataclasses import dataclass

from tasks.gemm import KIND, Gemm

CAPABILITY = {"bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9), "fp8_rowwise": (8, 9)}
"""Least compute capability of an NVIDIA GPU per dtype. torch's row-wise kernels begin at 8.9, as the others do."""

FP8_ARCHITECTURES = ("gfx94", "gfx95")
"""Of AMD's gfx9 architectures, those of the MI300 and the MI350 series have fp8."""

ANY_LAYOUT = (10, 0)
"""Compute capability from which cuBLASLt multiplies fp8 in other layouts than ``nt``."""

FP8_MULTIPLE, INT8_MULTIPLE, INT8_LEAST_M = 16, 8, 17


@dataclass(frozen=True, kw_only=True, slots=True)
class Architecture:
    """What a device is. kind: cuda, rocm or cpu; capability: of a CUDA device; gfx: name of a ROCm architecture.

    None is unknown, and rules nothing out.
    """

    kind: str
    gpu: str
    capability: tuple[int, int] | None = None
    gfx: str | None = None


def unsupported(gemm: Gemm, on: Architecture) -> str | None:
    """Why ``on`` cannot multiply ``gemm``, or None where it can or where only a try can tell."""
    if gemm.kind == "bmm" and gemm.dtype in KIND:
        return f"torch has no batched product in {gemm.dtype}: torch._{KIND[gemm.dtype]} takes two matrices"
    if on.kind == "cpu":
        return "a CPU has no TensorFloat-32" if gemm.dtype == "tf32" else None
    return _lacking(gemm.dtype, on) or _layout(gemm, on) or _sizes(gemm)


def _lacking(dtype: str, on: Architecture) -> str | None:
    least = CAPABILITY.get(dtype, (0, 0))
    if on.kind == "cuda" and on.capability is not None and on.capability < least:
        return f"{dtype} needs compute capability {_dotted(least)}, {on.gpu} has {_dotted(on.capability)}"
    if on.kind == "rocm" and on.gfx is not None and KIND.get(dtype) == "scaled_mm" and _without_fp8(on.gfx):
        return f"{dtype} needs an MI300 or later (gfx942, gfx950), {on.gpu} is {on.gfx}"
    return None


def _without_fp8(gfx: str) -> bool:
    return gfx.startswith("gfx9") and not gfx.startswith(FP8_ARCHITECTURES)


def _layout(gemm: Gemm, on: Architecture) -> str | None:
    if gemm.kind != "scaled_mm" or gemm.layout == "nt":
        return None
    if on.kind == "cuda" and (on.capability is None or on.capability >= ANY_LAYOUT):
        return None
    return f"{gemm.dtype} needs layout nt (A stored by rows, B by columns), not {gemm.layout}"


def multiple(kind: str) -> tuple[int, int]:
    """What n and k must be multiples of, and the least m, for a GPU to multiply Gemms of a kind."""
    return {"scaled_mm": (FP8_MULTIPLE, 1), "int_mm": (INT8_MULTIPLE, INT8_LEAST_M)}.get(kind, (1, 1))


def _sizes(gemm: Gemm) -> str | None:
    of, least = multiple(gemm.kind)
    if gemm.m < least:
        return f"{gemm.dtype} needs m > {least - 1}, not {gemm.m}"
    wrong = [f"{name}={value}" for name, value in (("n", gemm.n), ("k", gemm.k)) if value % of]
    return f"{gemm.dtype} needs n and k to be multiples of {of}, not {', '.join(wrong)}" if wrong else None


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
