"""The logical dimensions of one Point, as a role sees them."""

from dataclasses import dataclass, replace
from typing import Any, cast

from tasks.gemm import Gemm

VOCABULARY_MULTIPLE = 128
"""Megatron-LM pads the vocabulary to a multiple of this times the tensor-parallel size
(``--make-vocab-size-divisible-by``, its default)."""


DIMENSIONS = ("h", "d_ff", "a", "kv", "head_dim", "v", "experts", "topk", "ep", "layers")
"""A Point's logical dimensions beside tp, batch and seq, as Shards and rankings name them."""


def padded_vocabulary(v: int, tp: int, multiple: int = VOCABULARY_MULTIPLE) -> int:
    """Return the vocabulary as Megatron-LM pads it.

    >>> padded_vocabulary(32000, 8), padded_vocabulary(50257, 1)
    (32768, 50304)
    """
    return -(-v // (multiple * tp)) * multiple * tp


def at_least_one(value: int) -> int:
    """``max(value, 1)`` of a whole number >= 0, or of a Column of them."""
    return value + (value < 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Sizes in elements of the whole model, before tensor parallelism; None for what the Point does not have.

    a: attention heads; kv: key/value heads (None: as many as ``a``); head_dim: size of a head (None: h / a). v: the
    vocabulary. d_ff: hidden size of the MLP, or of one expert. experts: routed experts, topk of them for each token,
    spread over ``ep`` ranks. layers: of the model, where they count. What it calculates holds for a Column of many
    Points as for an int.
    """

    tp: int
    dtype: str
    batch: int | None = None
    h: int | None = None
    seq: int | None = None
    d_ff: int | None = None
    a: int | None = None
    kv: int | None = None
    head_dim: int | None = None
    v: int | None = None
    v_multiple: int = VOCABULARY_MULTIPLE
    experts: int | None = None
    topk: int | None = None
    ep: int = 1
    layers: int | None = None

    def size(self, name: str) -> int:
        """A dimension that the role needs."""
        value = getattr(self, name)
        if value is None:
            raise ValueError(f"{name} is missing in {self!r}")
        return cast(int, value)

    def gemm(self, kind: str, b: int, m: int, n: int, k: int, layout: str) -> Gemm:
        """A Gemm in this dtype."""
        return Gemm(kind=kind, b=b, m=m, n=n, k=k, dtype=self.dtype, layout=layout)

    def having(self, name: str, value: int) -> "Shape":
        """The same with one dimension replaced."""
        sizes: dict[str, Any] = {name: value}
        return replace(self, **sizes)

    @property
    def length(self) -> int:
        """Tokens of one sequence: 1 where there is none."""
        return 1 if self.seq is None else self.seq

    @property
    def tokens(self) -> int:
        """M: rows of the activation matrix."""
        return self.size("batch") * self.length

    @property
    def local_d_ff(self) -> int:
        """The part of d_ff that one rank holds; tp divides d_ff."""
        return self.size("d_ff") // self.tp

    @property
    def key_value_heads(self) -> int:
        """kv, or as many as there are heads."""
        return self.size("a") if self.kv is None else self.kv

    @property
    def local_kv(self) -> int:
        """Key/value heads of one rank: at least one, which several ranks then hold alike."""
        return at_least_one(self.key_value_heads // self.tp)

    @property
    def head(self) -> int:
        """Size of one head: as given, or h / a."""
        return self.size("h") // self.size("a") if self.head_dim is None else self.head_dim

    @property
    def padded_v(self) -> int:
        """The vocabulary padded so that each rank holds a multiple of ``v_multiple`` rows (Megatron-LM)."""
        return padded_vocabulary(self.size("v"), self.tp, self.v_multiple)

    @property
    def local_experts(self) -> int:
        """Routed experts that one expert-parallel rank holds."""
        return self.size("experts") // self.ep

    @property
    def expert_tokens(self) -> int:
        """Tokens that one expert gets when the router spreads them evenly."""
        return self.tokens * self.size("topk") // self.size("experts")
