"""What a model's shape costs: parameters by term, FLOPs of a layer's GEMMs, bytes."""

from dataclasses import astuple, dataclass

from orchestrator.errors import InvalidValueError
from orchestrator.model import Model

ADAM_BYTES = 16
"""Bytes a parameter in mixed-precision training with Adam: 2 for the weight, 2 for its gradient, and 4 each for the
fp32 weight, the momentum and the variance. Source: ZeRO (arXiv 1910.02054), section 3.1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Terms:
    """Terms that are summed."""

    @property
    def total(self) -> int:
        """The sum of the terms."""
        return sum(astuple(self))


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameters(_Terms):
    """A model's parameters, term by term. mlp: dense layers; experts: routed and shared ones; biases: all of them."""

    embedding: int
    positions: int
    attention: int
    mlp: int
    experts: int
    router: int
    norms: int
    biases: int
    output: int
    other: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerFlops(_Terms):
    """FLOPs of one layer's GEMMs, forward. experts: those that the tokens take, routed and shared; mlp: dense."""

    qkv: int
    attn_score: int
    attn_over_value: int
    attn_out: int
    mlp: int
    router: int
    experts: int


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWeights(_Terms):
    """Weights of one layer's GEMMs: of the whole layer, or of one tensor-parallel rank. experts: all, and shared."""

    qkv: int
    attn_out: int
    mlp: int
    router: int
    experts: int


def matrices(model: Model) -> int:
    """Return how many h x d_ff matrices an MLP has: gate, up, down, or up and down."""
    return 3 if model.mlp == "swiglu" else 2


def expert_layers(model: Model) -> int:
    """Return how many layers have experts."""
    return model.layers - model.dense_layers if model.experts else 0


def parameters(model: Model) -> Parameters:
    """Return the parameters by term.

    With f = 4h, GELU, biases, LayerNorm and a tied output this is 12·h²·L + 13·h·L + (v + s)·h, and 2·h for the last
    norm. Source: «The Case for Co-Designing Model Architectures with Hardware» (arXiv 2401.14489), section III; the
    terms of grouped queries, gated MLPs and experts are the sizes of their weight matrices.
    """
    sparse = expert_layers(model)
    dense = model.layers - sparse
    expert = layer_weights(model)
    return Parameters(
        embedding=model.v * model.h,
        positions=model.positions * model.h,
        attention=model.layers * (expert.qkv + expert.attn_out),
        mlp=dense * layer_weights(model, dense=True).mlp,
        experts=sparse * expert.experts,
        router=sparse * expert.router,
        norms=_norms(model),
        biases=_biases(model, dense, sparse),
        output=0 if model.tied else model.v * model.h,
        other=model.other_parameters,
    )


def miscounted(model: Model) -> str | None:
    """Say why a model's count of parameters cannot be, or None where it can."""
    total = parameters(model).total
    if total <= 0:
        return f"other_parameters: {model.other_parameters} leaves {total} parameters; the model must have some"
    if model.parameters not in (None, total):
        return f"parameters: {model.parameters} contradicts the dimensions, which have {total}; see other_parameters"
    return None


def active_parameters(model: Model) -> int:
    """Return the parameters that one token passes through: all but the experts that it does not take."""
    idle = expert_layers(model) * (model.experts - model.topk)
    bias = _mlp_biases(model, model.expert_d_ff) if model.linear_bias else 0
    return parameters(model).total - idle * (matrices(model) * model.h * model.expert_d_ff + bias)


def layer_weights(model: Model, *, tp: int = 1, dense: bool = False) -> LayerWeights:
    """Return the weights of one layer's GEMMs on one of ``tp`` ranks; of a layer with experts where the model has any.

    Column- and row-parallel linears as in Megatron-LM (arXiv 1909.08053): tp splits heads, d_ff and each expert's
    d_ff; with fewer key/value heads than ranks each rank holds one; the router is whole on every rank. dense: one of
    the dense layers of a model with experts. Raises InvalidValueError where tp does not divide.
    """
    a, kv = split(model.a, tp, "a"), 1 if model.kv < tp and tp % model.kv == 0 else split(model.kv, tp, "kv")
    qkv, out = model.h * (a + 2 * kv) * model.head_dim, a * model.head_dim * model.h
    matrix = matrices(model) * model.h
    if dense or not model.experts:
        return LayerWeights(qkv=qkv, attn_out=out, mlp=matrix * split(model.d_ff, tp, "d_ff"), router=0, experts=0)
    routed = model.experts * split(model.expert_d_ff, tp, "expert_d_ff")
    shared = split(model.shared_d_ff, tp, "shared_d_ff")
    router = model.h * model.experts
    return LayerWeights(qkv=qkv, attn_out=out, mlp=0, router=router, experts=matrix * (routed + shared))


def layer_flops(model: Model, *, b: int, s: int, dense: bool = False) -> LayerFlops:
    """Return the FLOPs of one layer's GEMMs, forward, for ``b`` sequences of ``s`` tokens.

    2·m·n·k for each; a layer with experts where the model has any, unless ``dense``. The whole s x s scores count: a
    causal mask saves nothing. 24·b·s·h² + 4·b·s²·h with f = 4h, GELU and as many key/value heads as heads.
    Source: «The Case for Co-Designing Model Architectures with Hardware» (arXiv 2401.14489), section III.
    """
    tokens = b * s
    weights = layer_weights(model, dense=dense)
    scores = 2 * tokens * s * model.a * model.head_dim
    taken = model.topk * model.expert_d_ff + model.shared_d_ff if weights.experts else 0
    return LayerFlops(
        qkv=2 * tokens * weights.qkv,
        attn_score=scores,
        attn_over_value=scores,
        attn_out=2 * tokens * weights.attn_out,
        mlp=2 * tokens * weights.mlp,
        router=2 * tokens * weights.router,
        experts=2 * tokens * matrices(model) * model.h * taken,
    )


def forward_flops(model: Model, *, b: int, s: int) -> int:
    """Return the FLOPs of all GEMMs of a forward pass: every layer's, and 2·b·s·h·v for the logits."""
    sparse = expert_layers(model)
    layers = sparse * layer_flops(model, b=b, s=s).total if sparse else 0
    layers += (model.layers - sparse) * layer_flops(model, b=b, s=s, dense=True).total
    return layers + 2 * b * s * model.h * model.v


def weight_bytes(model: Model, *, element_bytes: int = 2) -> int:
    """Return the bytes of all weights."""
    return parameters(model).total * element_bytes


def kv_cache_bytes(model: Model, *, element_bytes: int = 2) -> int:
    """Return the bytes of keys and values of one token in all layers: 2·L·kv·d elements."""
    return 2 * model.layers * model.kv * model.head_dim * element_bytes


def training_bytes(model: Model) -> int:
    """Return the bytes of weights, gradients and Adam's state in mixed precision: ADAM_BYTES a parameter."""
    return ADAM_BYTES * parameters(model).total


def split(size: int, tp: int, what: str) -> int:
    """Return one rank's part of a size; InvalidValueError where ``tp`` does not divide it."""
    if size % tp:
        raise InvalidValueError(f"tp={tp} does not divide {what}={size}")
    return size // tp


def _norms(model: Model) -> int:
    size = model.h * (1 if model.norm == "rms" else 2)
    return (model.norms * model.layers + 1) * size + (2 * model.layers * model.head_dim if model.qk_norm else 0)


def _biases(model: Model, dense: int, sparse: int) -> int:
    qkv = (model.a + 2 * model.kv) * model.head_dim if model.qkv_bias else 0
    if not model.linear_bias:
        return model.layers * qkv
    experts = model.experts * _mlp_biases(model, model.expert_d_ff)
    experts += _mlp_biases(model, model.shared_d_ff) if model.shared_d_ff else 0
    return model.layers * (qkv + model.h) + dense * _mlp_biases(model, model.d_ff) + sparse * experts


def _mlp_biases(model: Model, d_ff: int) -> int:
    return (matrices(model) - 1) * d_ff + model.h
