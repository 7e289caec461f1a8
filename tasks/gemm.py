"""One physical matrix multiplication on one device: its shape, its FLOPs and its bytes."""

from dataclasses import dataclass

ELEMENT_BYTES = {"fp16": 2, "bf16": 2, "fp32": 4, "tf32": 4}
"""Bytes of one stored element per dtype. ``tf32`` is float32 storage multiplied in TensorFloat-32."""

KINDS = ("mm", "bmm")
LAYOUTS = ("nn", "nt", "tn")


def largest_power_of_two(value: int) -> int:
    """Return the largest power of two that divides ``value`` (>= 1).

    >>> largest_power_of_two(1376), largest_power_of_two(10922)
    (32, 2)
    """
    return value & -value


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Gemm:
    """``C[b, m, n] = A[b, m, k] @ B[b, k, n]``; ``k`` is always the reduction dimension (BLAS).

    kind: ``mm`` (b == 1, torch.mm) or ``bmm`` (torch.bmm): they take different library paths even at b == 1.
    layout: ``nn``, B stored as (k, n) row-major; ``nt``, B stored as (n, k) row-major, as ``nn.Linear`` keeps it.
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
        if min(self.b, self.m, self.n, self.k) < 1 or (self.kind == "mm" and self.b != 1):
            raise ValueError(f"b, m, n, k must be >= 1, and b == 1 for kind mm, in {self!r}")

    @property
    def gemm_id(self) -> str:
        """A readable key, unique per Gemm: ``bmm-4x4096x4096x10920-fp16-nn``."""
        return f"{self.kind}-{self.b}x{self.m}x{self.n}x{self.k}-{self.dtype}-{self.layout}"

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        """Floating-point operations of one call: 2·b·m·n·k."""
        return 2 * self.b * self.m * self.n * self.k

    @property
    def input_bytes(self) -> int:
        """Bytes of A and B."""
        return self.b * self.k * (self.m + self.n) * self.element_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes of C."""
        return self.b * self.m * self.n * self.element_bytes

    @property
    def bytes(self) -> int:
        """Fewest bytes one call moves: A and B read once, C written once."""
        return self.input_bytes + self.output_bytes
