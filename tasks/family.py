"""What is measured together: Candidates that compete in a Family, and Families that share their Gemms in a Bundle."""

from dataclasses import dataclass

from tasks.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One Gemm of a Candidate under the name that it has in its role (``gate_up``, ``down``)."""

    name: str
    gemm: Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One value of d_ff with the Gemms that a user pays for together; ranked by total time per FLOP."""

    d_ff: int
    parts: tuple[Part, ...]
    baseline: bool = False

    @property
    def flops(self) -> int:
        """Floating-point operations of all parts, one call each."""
        return sum(part.gemm.flops for part in self.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class FamilyKey:
    """What the Candidates of a Family have in common; ``seq`` is None for a role without a sequence (``seed_bmm``)."""

    role: str
    h: int
    tp: int
    batch: int
    seq: int | None
    dtype: str

    @property
    def family_id(self) -> str:
        """A readable key: ``mlp-h4096-tp8-b4-s2048-fp16``; without ``-s`` where the role has no sequence."""
        seq = "" if self.seq is None else f"-s{self.seq}"
        return f"{self.role}-h{self.h}-tp{self.tp}-b{self.batch}{seq}-{self.dtype}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Family(FamilyKey):
    """Candidates that compete, ordered by d_ff: only d_ff differs between them."""

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

    @property
    def bundle_id(self) -> str:
        """The id of the first Family."""
        return self.families[0].family_id

    @property
    def gemms(self) -> tuple[Gemm, ...]:
        """The distinct Gemms to measure."""
        return self.families[0].gemms

    @property
    def flops(self) -> int:
        """Floating-point operations of one call of every Gemm: the weight for dispatch order and ETA."""
        return sum(gemm.flops for gemm in self.gemms)
