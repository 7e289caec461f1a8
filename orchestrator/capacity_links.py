"""The all-reduces of tensor parallelism: an estimate from a link's bandwidth, never a measurement."""

from orchestrator.capacity_amount import PerGpu
from orchestrator.capacity_layout import TRAINING, Layout
from orchestrator.catalogue import GpuSpec
from tasks.gemm import ELEMENT_BYTES

PER_LAYER = 2
"""All-reduces of a layer and pass: after attention and after the MLP (Megatron-LM, arXiv 1909.08053, section 3)."""
ACTIVATION_BYTES = 2
"""Activations between Gemms of at most two bytes an element are bf16 or fp16: fp8 and int8 are made for a Gemm only."""


def link_gb_s(given: PerGpu, spec: GpuSpec | None) -> float | None:
    """Return the bandwidth of a GPU to the others of its node, one direction: what was given, else the catalogue's."""
    asked = given.of(spec)
    return asked if asked is not None or spec is None else spec.intra_node_gb_s


def all_reduces(layout: Layout) -> int:
    """Return the all-reduces of one layer in a step."""
    return PER_LAYER * (2 if layout.mode == TRAINING else 1)


def all_reduce_bytes(layout: Layout) -> int:
    """Return the bytes of what one all-reduce sums: every token's activations."""
    size = max(ACTIVATION_BYTES, ELEMENT_BYTES[layout.dtype])
    return layout.tokens * layout.model.h * size


def all_reduce_seconds(layout: Layout, gb_s: float) -> float:
    """Return the seconds of one all-reduce over a ring: 2·(t - 1)/t of the bytes leave each GPU.

    gb_s: bandwidth of a GPU to the others, one direction. Without latency, and as if the bandwidth were reached.
    """
    return 2 * (layout.tp - 1) / layout.tp * all_reduce_bytes(layout) / (gb_s * 1e9)
