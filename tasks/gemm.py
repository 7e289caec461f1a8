"""One physical matrix multiplication on one device: its shape, its FLOPs and its bytes."""

from dataclasses import dataclass

ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "tf32": 4, "fp8": 1, "fp8_rowwise": 1, "int8": 1}
"""Bytes of one stored element of A and B per dtype.

``tf32`` is float32 storage multiplied in TensorFloat-32. ``fp8`` is e4m3 with one scale per operand, ``fp8_rowwise``
with one per row of A and per column of B; both write bf16. ``int8`` writes int32.
"""

OUTPUT_BYTES = {"fp8": 2, "fp8_rowwise": 2, "int8": 4}
"""Bytes of one element of C where they are not those of A and B."""

KIND = {"fp8": "scaled_mm", "fp8_rowwise": "scaled_mm", "int8": "int_mm"}
"""The operator that multiplies two matrices of a dtype, where it is not ``mm``."""

KINDS = ("mm", "bmm", "scaled_mm", "int_mm")
LAYOUTS = ("nn", "nt", "tn")


def kind_of(dtype: str, batched: bool = False) -> str:
    """Return the kind of a Gemm in ``dtype``: its operator for two matrices, or ``bmm`` for a batch of them.

    A batch in fp8 or int8 has its name too, but torch has no operator for it: a device says that it is unsupported.

    >>> kind_of("bf16"), kind_of("fp8_rowwise"), kind_of("int8"), kind_of("int8", batched=True)
    ('mm', 'scaled_mm', 'int_mm', 'bmm')
    """
    return "bmm" if batched else KIND.get(dtype, "mm")


def largest_power_of_two(value: int) -> int:
    """Return the largest power of two that divides ``value`` (>= 1).

    >>> largest_power_of_two(1376), largest_power_of_two(10922)
    (32, 2)
    """
    return value & -value


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Gemm:
    """``C[b, m, n] = A[b, m, k] @ B[b, k, n]``; ``k`` is always the reduction dimension (BLAS).

    kind: ``mm`` (torch.mm), ``scaled_mm`` (torch._scaled_mm, fp8) or ``int_mm`` (torch._int_mm, int8), each with
    b == 1; or ``bmm`` (torch.bmm): they take different library paths even at b == 1. ``kind_of`` knows which.
    layout: ``nn``, A stored as (m, k) and B as (k, n), both row-major; ``nt``, B stored as (n, k), as ``nn.Linear``
    keeps its weight; ``tn``, A stored as (k, m), as a weight's gradient dY^T X finds it.
    """

    kind: str
    b: int
    m: int
    n: int
    k: int
    dtype: str
    layout: str = "nn"

    def __post_init__(self) -> None:
        if self.kind not in KINDS or self.layout not in LAYOUTS or self.dtype not in ELEMENT_BYTES:
            raise ValueError(f"unknown kind, layout or dtype in {self!r}")
        if self.kind != (right := kind_of(self.dtype, batched=self.kind == "bmm")):
            raise ValueError(f"{self.dtype} is of kind {right} or bmm, in {self!r}")
        if min(self.b, self.m, self.n, self.k) < 1 or (self.kind != "bmm" and self.b != 1):
            raise ValueError(f"b, m, n, k must be >= 1, and b == 1 except for kind bmm, in {self!r}")

    @property
    def gemm_id(self) -> str:
        """A readable key, unique per Gemm: ``bmm-4x4096x4096x10920-fp16-nn``."""
        return f"{self.kind}-{self.b}x{self.m}x{self.n}x{self.k}-{self.dtype}-{self.layout}"

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored element of A and B."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def output_element_bytes(self) -> int:
        """Bytes of one stored element of C."""
        return OUTPUT_BYTES.get(self.dtype, self.element_bytes)

    @property
    def flops(self) -> int:
        """Floating-point operations of one call: 2·b·m·n·k."""
        return 2 * self.b * self.m * self.n * self.k

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B; fp8's scales are too few to count."""
        return self.b * self.k * (self.m + self.n) * self.element_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes of C."""
        return self.b * self.m * self.n * self.output_element_bytes

    @property
    def bytes(self) -> int:
        """Fewest bytes one call moves: A and B read once, C written once."""
        return self.input_bytes + self.output_bytes
