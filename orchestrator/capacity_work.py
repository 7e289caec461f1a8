"""The Gemms of one step on one rank: what a layer of each kind and the output layer run."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.capacity_layout import DECODE, PREFILL, TRAINING, Layout
from orchestrator.passes import with_passes
from orchestrator.roles import ROLES
from orchestrator.shape import Shape
from tasks.family import Part
from tasks.gemm import Gemm

ATTENTION = ("attn_score", "attn_over_value")
OUTPUT = "output"
PASSES = "fwd+bwd"


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One Gemm under its name (``mlp_down.dgrad``), the role that it is of, and the Point that asks for it."""

    name: str
    role: str
    shape: Shape
    gemm: Gemm

    @property
    def optional(self) -> bool:
        """Whether the sum may go without it: attention's products, which fused kernels replace."""
        return self.role in ATTENTION

    @property
    def gradient(self) -> bool:
        """Whether it runs in the backward pass."""
        return self.name.endswith((".dgrad", ".wgrad"))

    @property
    def weight_gradient(self) -> bool:
        """Whether it is a weight's gradient: which of its sides is called m is a convention."""
        return self.name.endswith(".wgrad")


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """Works that run ``times`` times in a step, one after the other: the layers of one kind, or the output layer."""

    name: str
    times: int
    works: tuple[Work, ...]


def blocks(layout: Layout) -> tuple[Block, ...]:
    """Return the blocks in the order in which a step passes them, dense layers before those with experts.

    The output layer sees every token when training, and in prefill only the last one of each sequence.
    """
    dense, layers = layout.dense_layers, layout.model.layers
    mixed = 0 < dense < layers
    found = []
    if dense:
        works = tuple(_layer(layout, _mlp_roles(layout), layout.shape(dense=True)))
        found.append(Block(name="dense layer" if mixed else "layer", times=dense, works=works))
    if dense < layers:
        works = tuple(_experts(layout, layout.shape(dense=False)))
        found.append(Block(name="layer", times=layers - dense, works=works))
    shape = layout.shape(dense=True)
    output = shape.having("seq", 1) if layout.mode == PREFILL else shape
    return (*found, Block(name=OUTPUT, times=1, works=tuple(_works(layout, "logits", output))))


def _mlp_roles(layout: Layout) -> tuple[str, ...]:
    return ("mlp_gate_up" if layout.model.mlp == "swiglu" else "mlp_up", "mlp_down")


def _layer(layout: Layout, mlp: tuple[str, ...], shape: Shape) -> Iterator[Work]:
    attention = () if layout.mode == DECODE else ATTENTION
    for role in ("qkv", *attention, "attn_out", *mlp):
        yield from _works(layout, role, shape)


def _experts(layout: Layout, shape: Shape) -> Iterator[Work]:
    yield from _layer(layout, ("router", "expert_gate_up", "expert_down"), shape)
    if layout.model.shared_d_ff:
        shared = layout.shape(dense=True).having("d_ff", layout.model.shared_d_ff)
        for role in ("mlp_gate_up", "mlp_down"):
            yield from _works(layout, role, shared, "shared_" + role.removeprefix("mlp_"))


def _works(layout: Layout, role: str, shape: Shape, name: str = "") -> Iterator[Work]:
    forward = (Part(name=name or role, gemm=part.gemm) for part in ROLES[role].parts(shape))
    for part in with_passes(forward, PASSES if layout.mode == TRAINING else "fwd"):
        yield Work(name=part.name, role=role, shape=shape, gemm=part.gemm)
