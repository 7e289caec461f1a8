"""Backward Gemms of a forward one: the gradients of its two operands.

C = A @ B: dA = dC @ B^T swaps n and k, dB = A^T @ dC reduces over the rows of A, the tokens. Each gradient is stored as
its operand is. Of an ``nn.Linear`` these are the data gradient and the weight gradient.
"""

from collections.abc import Iterable
from dataclasses import replace

from tasks.family import Part

PASSES = ("fwd", "bwd")


def named(passes: Iterable[str]) -> str:
    """Write the passes as one word, forward first.

    >>> named(["bwd", "fwd"])
    'fwd+bwd'
    """
    chosen = set(passes)
    return "+".join(name for name in PASSES if name in chosen)


def with_passes(forward: Iterable[Part], passes: str) -> tuple[Part, ...]:
    """The parts of the passes that ``named`` wrote: forward ones, and the two gradients of each."""
    parts = tuple(forward)
    if passes == "fwd":
        return parts
    backward = tuple(part for each in parts for part in (_dgrad(each), _wgrad(each)))
    return backward if passes == "bwd" else parts + backward


def _dgrad(part: Part) -> Part:
    gemm = part.gemm
    layout = "nn" if gemm.layout == "nt" else "nt"
    return Part(name=f"{part.name}.dgrad", gemm=replace(gemm, n=gemm.k, k=gemm.n, layout=layout))


def _wgrad(part: Part) -> Part:
    gemm = part.gemm
    m, n = (gemm.n, gemm.k) if gemm.layout == "nt" else (gemm.k, gemm.n)
    return Part(name=f"{part.name}.wgrad", gemm=replace(gemm, m=m, n=n, k=gemm.m, layout="tn"))
