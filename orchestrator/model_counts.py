"""What a model's shape costs: parameters by term, bytes."""

from dataclasses import astuple, dataclass

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
class LayerWeights(_Terms):
    """Weights of one layer's GEMMs. experts: all, and shared."""

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


def layer_weights(model: Model, *, dense: bool = False) -> LayerWeights:
    """Return the weights of one layer's GEMMs; of a layer with experts where the model has any, unless ``dense``."""
    qkv, out = model.h * (model.a + 2 * model.kv) * model.head_dim, model.a * model.head_dim * model.h
    matrix = matrices(model) * model.h
    if dense or not model.experts:
        return LayerWeights(qkv=qkv, attn_out=out, mlp=matrix * model.d_ff, router=0, experts=0)
    experts = matrix * (model.experts * model.expert_d_ff + model.shared_d_ff)
    return LayerWeights(qkv=qkv, attn_out=out, mlp=0, router=model.h * model.experts, experts=experts)


def weight_bytes(model: Model, *, element_bytes: int = 2) -> int:
    """Return the bytes of all weights."""
    return parameters(model).total * element_bytes


def kv_cache_bytes(model: Model, *, element_bytes: int = 2) -> int:
    """Return the bytes of keys and values of one token in all layers: 2·L·kv·d elements."""
    return 2 * model.layers * model.kv * model.head_dim * element_bytes


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
