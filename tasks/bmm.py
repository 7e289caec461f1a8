"""The timing kernel: one matmul call into a given output, and the check that it computes what it should."""

from collections.abc import Callable

import torch

from tasks.gemm import Gemm
from tasks.pool import Operands

TOLERANCE = {
    "fp16": 5e-3,
    "bf16": 2e-2,
    "fp32": 1e-4,
    "tf32": 5e-3,
    "fp8": 5e-2,  # beside bf16's rounding, tensor cores add fp8 products up in fewer bits than fp32 has
    "fp8_rowwise": 5e-2,
    "int8": 0.0,
}
"""Largest relative Frobenius error of the checked slice: several output roundings; a wrong result is near 1."""

SLICE = 8
"""Rows and columns of C that are checked against float64."""


def call(gemm: Gemm, operands: Operands) -> None:
    """Compute C = A @ B once, without allocating; in fp8, of the scaled operands."""
    if gemm.kind == "bmm":
        torch.bmm(operands.a, operands.b, out=operands.c)
    elif operands.scales is not None:
        scale_a, scale_b = operands.scales
        torch._scaled_mm(
            operands.a,
            operands.b,
            scale_a=scale_a,
            scale_b=scale_b,
            out_dtype=operands.c.dtype,
            use_fast_accum=True,
            out=operands.c,
        )
    elif gemm.kind == "int_mm":
        torch._int_mm(operands.a, operands.b, out=operands.c)
    else:
        torch.mm(operands.a, operands.b, out=operands.c)


def set_precision(dtype: str) -> None:
    """Have torch multiply float32 as ``dtype`` wants it."""
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")


def poison(operands: Operands) -> None:
    """Fill C with NaN, or the least integer, so that an element that the next call does not write shows."""
    dtype = operands.c.dtype
    operands.c.fill_(float("nan") if dtype.is_floating_point else torch.iinfo(dtype).min)


def unwritten(c: torch.Tensor) -> torch.Tensor:
    """Count the elements that still hold what ``poison`` fills in; no sum of a pool's integers comes near it."""
    return (torch.isnan(c) if c.is_floating_point() else c == torch.iinfo(c.dtype).min).sum()


def check(gemm: Gemm, operands: Operands) -> Callable[[], str | None]:
    """Compare C with A @ B on the device; the answer, when asked for, is what is wrong with C, or None.

    Wrong is an element that was not written, or a slice that differs from the float64 product of what the stored
    operands stand for: in fp8, each element times its scale.
    """
    a, b, c = (x if x.dim() == 3 else x.unsqueeze(0) for x in (operands.a, operands.b, operands.c))
    missing = unwritten(c)
    rows = torch.linspace(0, gemm.m - 1, min(SLICE, gemm.m), device=c.device).long()
    columns = torch.linspace(0, gemm.n - 1, min(SLICE, gemm.n), device=c.device).long()
    batch, elements = gemm.b - 1, c.numel()
    left, right = _values(a[batch], 0, rows), _values(b[batch], 1, columns)
    if operands.scales is not None:
        left *= _scale(operands.scales[0], 0, rows)
        right *= _scale(operands.scales[1], 1, columns)
    expected = left @ right
    size = expected.norm()
    difference = (c[batch][rows][:, columns].double() - expected).norm()

    def answer() -> str | None:
        if count := int(missing):
            return f"{count} of {elements} elements of C {'are NaN' if c.is_floating_point() else 'were not written'}"
        error, allowed = float(difference), TOLERANCE[gemm.dtype] * float(size)
        if error <= allowed:
            return None
        where = f"on a {len(rows)}x{len(columns)} slice"
        relative = error / float(size) if size else float("inf")
        return f"relative error {relative:.2g} against float64 {where}, {TOLERANCE[gemm.dtype]:g} allowed"

    return answer


def _values(matrix: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """Some rows or columns in float64."""
    if matrix.element_size() == 1:  # picked as bytes: not every torch can index float8 on a GPU
        return matrix.view(torch.uint8).index_select(dim, index).view(matrix.dtype).double()
    return matrix.index_select(dim, index).double()


def _scale(scale: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """What the picked rows or columns are to be multiplied by."""
    return (scale if scale.dim() == 0 else scale.index_select(dim, index)).double()
