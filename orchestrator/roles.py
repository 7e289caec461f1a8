"""Which Gemms a role asks for on one tensor-parallel rank (forward pass).

Source of the shapes: «The Case for Co-Designing Model Architectures with Hardware» (arXiv 2401.14489) and Megatron's
column and row parallel linear layers. M = batch * seq tokens.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tasks.family import Part
from tasks.gemm import Gemm, kind_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a role needs to know of a Point: sizes in elements, ``seq`` None where the role has no sequence."""

    h: int
    tp: int
    batch: int
    seq: int | None
    d_ff: int
    dtype: str

    @property
    def tokens(self) -> int:
        """M: rows of the activation matrix."""
        return self.batch * (self.seq or 1)

    @property
    def local_d_ff(self) -> int:
        """The part of d_ff that one rank holds; tp divides d_ff."""
        return self.d_ff // self.tp


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A named matmul of the layer, or several that a user pays for together.

    needs_seq: whether the role has a sequence dimension. parts: the Gemms of one Point, in the order they run.
    matrices: h x d_ff weight matrices of the MLP that the role is part of: 3 with SwiGLU, 2 with GELU.
    """

    name: str
    help: str
    needs_seq: bool
    parts: Callable[[Shape], tuple[Part, ...]]
    matrices: int = 3


def _seed_bmm(s: Shape) -> tuple[Part, ...]:
    gemm = Gemm(kind="bmm", b=s.batch, m=s.h, n=s.h, k=s.local_d_ff, dtype=s.dtype)
    return (Part(name="bmm", gemm=gemm),)


def _linear(name: str, s: Shape, n: int, k: int) -> Part:
    return Part(name=name, gemm=Gemm(kind=kind_of(s.dtype), b=1, m=s.tokens, n=n, k=k, dtype=s.dtype, layout="nt"))


def _mlp_up(s: Shape) -> tuple[Part, ...]:
    return (_linear("up", s, n=s.local_d_ff, k=s.h),)


def _mlp_gate_up(s: Shape) -> tuple[Part, ...]:
    return (_linear("gate_up", s, n=2 * s.local_d_ff, k=s.h),)


def _mlp_down(s: Shape) -> tuple[Part, ...]:
    return (_linear("down", s, n=s.h, k=s.local_d_ff),)


def _mlp(s: Shape) -> tuple[Part, ...]:
    return _mlp_gate_up(s) + _mlp_down(s)


ROLES: dict[str, Role] = {
    role.name: role
    for role in (
        Role(
            name="seed_bmm",
            help="swiglu-maf-bench's bmm: batch x (h, d_ff/tp) @ (d_ff/tp, h)",
            needs_seq=False,
            parts=_seed_bmm,
        ),
        Role(name="mlp_up", help="GELU MLP: (batch*seq, h) @ (h, d_ff/tp)", needs_seq=True, parts=_mlp_up, matrices=2),
        Role(
            name="mlp_gate_up",
            help="SwiGLU MLP, gate and up fused: (batch*seq, h) @ (h, 2*d_ff/tp)",
            needs_seq=True,
            parts=_mlp_gate_up,
        ),
        Role(name="mlp_down", help="MLP: (batch*seq, d_ff/tp) @ (d_ff/tp, h)", needs_seq=True, parts=_mlp_down),
        Role(name="mlp", help="SwiGLU MLP, gate_up and down together", needs_seq=True, parts=_mlp),
    )
}
