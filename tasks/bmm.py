"""The timing kernel: one matmul call into a given output, and the check that it computes what it should."""

from collections.abc import Callable

import torch

from tasks.gemm import Gemm
from tasks.pool import Operands

TOLERANCE = {"fp16": 5e-3, "bf16": 2e-2, "fp32": 1e-4, "tf32": 5e-3}
"""Largest relative Frobenius error of the checked slice: several output roundings; a wrong result is near 1."""

SLICE = 8
"""Rows and columns of C that are checked against float64."""


def call(gemm: Gemm, operands: Operands) -> None:
    """Compute C = A @ B once, without allocating."""
    if gemm.kind == "bmm":
        torch.bmm(operands.a, operands.b, out=operands.c)
    else:
        torch.mm(operands.a, operands.b, out=operands.c)


def poison(operands: Operands) -> None:
    """Fill C with NaN, so that an element that the next call does not write shows."""
    operands.c.fill_(float("nan"))


def check(gemm: Gemm, operands: Operands) -> Callable[[], str | None]:
    """Compare C with A @ B on the device; the answer, when asked for, is what is wrong with C, or None.

    Wrong is an element that was not written, or a slice that differs from the float64 product.
    """
    a, b, c = (x if x.dim() == 3 else x.unsqueeze(0) for x in (operands.a, operands.b, operands.c))
    unwritten = torch.isnan(c).sum()
    rows = torch.linspace(0, gemm.m - 1, min(SLICE, gemm.m), device=c.device).long()
    columns = torch.linspace(0, gemm.n - 1, min(SLICE, gemm.n), device=c.device).long()
    batch, elements = gemm.b - 1, c.numel()
    expected = a[batch, rows].double() @ b[batch][:, columns].double()
    found = c[batch][rows][:, columns].double()
    relative = (found - expected).norm() / expected.norm()

    def answer() -> str | None:
        if count := int(unwritten):
            return f"{count} of {elements} elements of C are NaN"
        error, allowed = float(relative), TOLERANCE[gemm.dtype]
        if error <= allowed:
            return None
        size = f"{len(rows)}x{len(columns)}"
        return f"relative error {error:.2g} against float64 on a {size} slice, {allowed:g} allowed"

    return answer
