"""How a Gemm's dimensions and the rows of its matrices are aligned in memory."""

from dataclasses import dataclass

from tasks.gemm import Gemm, largest_power_of_two

ROW_BYTES = 16
"""Rows of a multiple of this are read by wide loads; others cost an H200 2.3 to 3.5 times as much in fp16."""

CONTIGUOUS = {"nn": ("k", "n", "n"), "nt": ("k", "k", "n"), "tn": ("m", "n", "n")}
"""The dimension along which A, B and C lie contiguously, by layout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Alignment:
    """One dimension: the largest power of two that divides it, in elements and bytes, and whose rows it is."""

    dimension: str
    value: int
    elements: int
    bytes: int
    rows_of: tuple[str, ...]


def alignments(gemm: Gemm) -> tuple[Alignment, ...]:
    """The alignment of m, n and k."""
    rows = dict(zip("ABC", CONTIGUOUS[gemm.layout], strict=True))
    return tuple(
        Alignment(
            dimension=name,
            value=(size := getattr(gemm, name)),
            elements=largest_power_of_two(size),
            bytes=largest_power_of_two(size * gemm.element_bytes),
            rows_of=tuple(matrix for matrix, dimension in rows.items() if dimension == name),
        )
        for name in ("m", "n", "k")
    )


def aligned(gemm: Gemm) -> bool:
    """Whether the rows of A, B and C are whole multiples of ``ROW_BYTES``; a mask of GemmColumns."""
    sizes: list[int] = [getattr(gemm, name) for name in CONTIGUOUS[gemm.layout]]
    first, second, third = (size * gemm.element_bytes % ROW_BYTES == 0 for size in sizes)
    return first & second & third
