"""How much memory a rank needs: an estimate, without pipeline stages and without sharding over data-parallel ranks."""

from orchestrator.catalogue import GpuSpec
from orchestrator.check_case import Case
from orchestrator.check_parameters import dense_layers, parameters, shard
from orchestrator.divisibility import unsplit
from orchestrator.model import Model
from orchestrator.model_counts import ADAM_BYTES, kv_cache_bytes, matrices

VOCABULARY_MULTIPLE = 64
"""What rule 1 asks of v."""
MOST_TP = 1024
"""No tensor-parallel group is larger."""
USABLE = 0.9
"""Share of the memory for weights, state and activations; the rest is for the context, workspaces and gaps."""
LOSS_BYTES = 4
"""Bytes of one logit in the loss, which is computed in fp32."""


def usable_bytes(gpu: GpuSpec) -> int:
    """Return the bytes of a GPU that the estimate may fill."""
    return int(gpu.memory_gb * 1e9 * USABLE)


def bytes_per_parameter(case: Case) -> int:
    """Return what a parameter costs: with gradient and Adam's state when training, else itself.

    Without mixed precision training takes 4, 4 and 8 bytes, the same.
    """
    return ADAM_BYTES if case.training else case.element_bytes


def static_bytes(case: Case) -> int:
    """Return the bytes of a rank that do not depend on the microbatch."""
    return parameters(shard(case.model, case.tp)) * bytes_per_parameter(case)


def sequence_bytes(case: Case) -> int:
    """Return the bytes of a rank that each sequence adds: activations when training, else its KV cache."""
    part = shard(case.model, case.tp)
    if case.training:
        return case.s * (_activation_elements(part) * case.element_bytes + part.v * (case.element_bytes + LOSS_BYTES))
    return case.s * kv_cache_bytes(part, element_bytes=case.element_bytes)


def needed_bytes(case: Case) -> int:
    """Return all bytes of a rank."""
    return static_bytes(case) + case.b * sequence_bytes(case)


def largest_batch(case: Case, gpu: GpuSpec) -> int:
    """Return the largest microbatch that fits, 0 where not even one sequence does."""
    return max(0, (usable_bytes(gpu) - static_bytes(case)) // sequence_bytes(case))


def smallest_tp(case: Case, gpu: GpuSpec) -> int | None:
    """Return the smallest tp by which the model can be split and on which it fits, None where there is none.

    When training one sequence must fit beside the weights and their state, else the KV cache of the whole batch.
    """
    sizes = (t for t in range(1, min(case.model.a, MOST_TP) + 1) if _splits(case.model, t))
    return next((t for t in sizes if fits(case.changed("tp", t), gpu)), None)


def _splits(model: Model, tp: int) -> bool:
    """Return whether every rank has as much; a vocabulary that is no multiple of 64 is padded for any tp."""
    padded = model.v % VOCABULARY_MULTIPLE != 0
    return model.h % tp == 0 and (padded or model.v % tp == 0) and not unsplit(model, tp)


def fits(case: Case, gpu: GpuSpec) -> bool:
    """Return whether the least that must be on a rank is there: see ``smallest_tp``."""
    return largest_batch(case, gpu) >= (1 if case.training else case.b)


def _activation_elements(part: Model) -> int:
    """Return the elements kept for the backward pass, per token, over all layers of a rank.

    Korthikanti et al., «Reducing Activation Recomputation in Large Transformer Models» (2022), section 4, without
    sequence parallelism and without dropout: the inputs of both norms and of both blocks (4h, on every rank); q, k, v
    and the input of the output projection; what lies between the matrices of the MLP. The scores of attention are
    recomputed (FlashAttention), all else is kept.
    """
    attention = 2 * part.a * part.head_dim + 2 * part.kv * part.head_dim
    width = matrices(part)  # GELU keeps its input and output; SwiGLU gate, up and their product
    dense = dense_layers(part)
    routed = part.topk * (part.h + width * part.expert_d_ff) + width * part.shared_d_ff
    layers = part.layers * (4 * part.h + attention)
    return layers + dense * width * part.d_ff + (part.layers - dense) * routed
