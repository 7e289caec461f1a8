"""What is measured together: Candidates that compete in a Family, and Families that share their Gemms in a Bundle."""

from dataclasses import dataclass, field

from tasks.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One Gemm of a Candidate under the name that it has in its role (``gate_up``, ``down``)."""

    name: str
    gemm: Gemm


Dimensions = tuple[tuple[str, int], ...]
"""Names and values of logical dimensions, such as (("a", 32), ("kv", 8))."""

ID_LETTERS = {"head_dim": "d", "d_ff": "f", "experts": "e", "topk": "k", "layers": "l"}
"""How a dimension is written in a Family's id where its name is long."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One value of what a Family chooses, with the Gemms that a user pays for together; ranked by time per FLOP.

    follows: the dimensions that change with the value (``head_dim`` with ``a``; of a whole shape its h, d_ff and a).
    params: weights of the block that the role is part of, all ranks; of a whole shape those of its model. local_dim:
    what one rank holds of the dimension that the choice aligns; of a whole shape the largest number that divides what
    it holds of h, d_ff and a head.
    """

    value: int
    parts: tuple[Part, ...]
    baseline: bool = False
    follows: Dimensions = ()
    params: int | None = None
    local_dim: int | None = None

    @property
    def flops(self) -> int:
        """Floating-point operations of all parts, one call each."""
        return sum(part.gemm.flops for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyKey:
    """What the Candidates of a Family have in common; None for a dimension that the role has not, or that is chosen.

    axis: the dimension that is chosen, or ``shape``: h, d_ff and a, of which one number is the value. fixed: the other
    dimensions that the role or a count of parameters has, beside h, tp, batch and seq. passes: ``fwd``, ``bwd`` or
    ``fwd+bwd``.
    """

    role: str
    h: int | None
    tp: int
    batch: int | None
    seq: int | None
    dtype: str
    axis: str = "d_ff"
    fixed: Dimensions = ()
    passes: str = "fwd"

    @property
    def family_id(self) -> str:
        """A readable key: ``mlp-h4096-tp8-b4-s2048-fp16``, ``attn-h4096-kv8-tp1-b4-s2048-fp16-by-a``."""
        h = "" if self.h is None else f"-h{self.h}"
        fixed = "".join(f"-{ID_LETTERS.get(name, name)}{value}" for name, value in self.fixed)
        batch = "" if self.batch is None else f"-b{self.batch}"
        seq = "" if self.seq is None else f"-s{self.seq}"
        by = "" if self.axis == "d_ff" or self.axis in dict(self.fixed) else f"-by-{self.axis}"
        passes = "" if self.passes == "fwd" else f"-{self.passes}"
        return f"{self.role}{h}{fixed}-tp{self.tp}{batch}{seq}-{self.dtype}{passes}{by}"

    def dimensions(self, candidate: Candidate) -> dict[str, int]:
        """Every dimension of one Candidate but tp, seq and a fixed batch, by name."""
        own = {} if self.h is None else {"h": self.h}
        return {**own, **dict(self.fixed), self.axis: candidate.value, **dict(candidate.follows)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Family(FamilyKey):
    """Candidates that compete, ordered by value: only the dimension ``axis``, and what follows it, differ."""

    candidates: tuple[Candidate, ...]

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """The distinct Gemms, in the Candidates' order."""
        return tuple(dict.fromkeys(part.gemm for candidate in self.candidates for part in candidate.parts))


@dataclass(frozen=True, kw_only=True, slots=True)
class Bundle:
    """Families measured in the same rounds: the first owns every Gemm; the others' Gemms are among them.

    So a Gemm that several Families ask for is measured once. The unit of dispatch.
    """

    families: tuple[Family, ...]
    _gemms: tuple[Gemm, ...] = field(default=(), init=False, repr=False, compare=False)

    @property
    def bundle_id(self) -> str:
        """The id of the first Family."""
        return self.families[0].family_id

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """The distinct Gemms to measure."""
        if not self._gemms:  # a driver asks ten times for those of each Bundle
            object.__setattr__(self, "_gemms", self.families[0].gemms)
        return self._gemms

    @property
    def flops(self) -> int:
        """Floating-point operations of one call of every Gemm: the weight for dispatch order and ETA."""
        return sum(gemm.flops for gemm in self.gemms)
