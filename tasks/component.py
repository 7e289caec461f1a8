"""What a transformer layer is made of: Gemms, fused attention, and operations that are no matrix products."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from tasks.gemm import ELEMENT_BYTES, Gemm

KINDS = ("gemm", "attention", "other")

Option = bool | int | float | str


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One step of a layer on one rank, timed on its own.

    kind: ``gemm``, ``attention`` (scores, softmax and product with the values in one kernel) or ``other``.
    gemm: what kind ``gemm`` multiplies. The others have op, a name in ``tasks.layer_ops.OPS``, and options of it;
    inputs: shapes of the tensors that a call reads; output: elements that it leaves; workspace: bytes that it needs
    beside. flops: of the matrix products in one call.
    """

    name: str
    kind: str = "other"
    dtype: str
    gemm: Gemm | None = None
    op: str = ""
    inputs: tuple[tuple[int, ...], ...] = ()
    output: int = 0
    workspace: int = 0
    flops: int = 0
    options: tuple[tuple[str, Option], ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in KINDS or (self.kind == "gemm") != (self.gemm is not None):
            raise ValueError(f"kind is one of {', '.join(KINDS)}, and 'gemm' has a Gemm, in {self!r}")

    @property
    def key(self) -> str:
        """Components of one key are measured once: the Gemm's id, or the name."""
        return self.name if self.gemm is None else self.gemm.gemm_id

    @property
    def element_bytes(self) -> int:
        """Bytes of one stored element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def input_bytes(self) -> int:
        """Bytes that one call reads, where it is no Gemm."""
        return sum(map(prod, self.inputs)) * self.element_bytes

    @property
    def output_bytes(self) -> int:
        """Bytes that one call leaves, where it is no Gemm."""
        return self.output * self.element_bytes

    def option(self, name: str) -> Option:
        """An option of the operation."""
        return dict(self.options)[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """One way to run the layer: its steps in order; where a step has alternatives, the fastest is taken."""

    name: str
    steps: tuple[tuple[Component, ...], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """All that is timed of a layer. extras: components that are shown, and part of no variant."""

    variants: tuple[Variant, ...]
    extras: tuple[Component, ...] = ()

    @property
    def components(self) -> tuple[Component, ...]:
        """Each distinct component once, in the order of the variants."""
        steps = (component for variant in self.variants for step in variant.steps for component in step)
        found: dict[str, Component] = {}
        for component in (*steps, *self.extras):
            found.setdefault(component.key, component)
        return tuple(found.values())


def gemms(components: Sequence[Component]) -> tuple[Gemm, ...]:
    """The distinct Gemms among the components."""
    return tuple(dict.fromkeys(component.gemm for component in components if component.gemm is not None))
