"""A transformer's dimensions: what a model file or a Hugging Face config says of its shape."""

from dataclasses import dataclass

MOST_LAYERS = 10_000
"""No model has more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Model:
    """The shape of a decoder-only transformer. Sizes in elements.

    h: hidden size. a: attention heads; kv: key/value heads; head_dim: size of one head (h / a unless given).
    d_ff: hidden size of a dense layer's MLP. v: vocabulary, not padded.
    mlp: ``swiglu`` (gate, up, down) or ``gelu`` (up, down).
    tied: whether the output layer shares the embedding's weights. positions: learned position embeddings, 0 for none.
    experts: routed experts of a mixture-of-experts layer, 0 for a dense model; topk: experts per token; expert_d_ff:
    hidden size of one expert; shared_d_ff: total hidden size of the experts that every token takes. dense_layers: how
    many of the layers have a dense MLP in a mixture-of-experts model.
    norm: ``rms`` or ``layer``; norms: how many a layer has. linear_bias: whether the attention's output and the MLP
    have biases; qkv_bias: whether query, key and value have. qk_norm: whether each head of query and key is normalised.
    other_parameters: weights that none of the above describes, less those that it describes but the model lacks;
    ``notes`` say which. parameters: the published count where it is exact, else None.
    origin: the file or name that it came from. sources: where the facts are from. notes: what is left out.
    """

    name: str
    h: int
    layers: int
    a: int
    kv: int
    head_dim: int
    d_ff: int
    v: int
    mlp: str = "swiglu"
    tied: bool = False
    positions: int = 0
    experts: int = 0
    topk: int = 0
    expert_d_ff: int = 0
    shared_d_ff: int = 0
    dense_layers: int = 0
    norm: str = "rms"
    norms: int = 2
    linear_bias: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    other_parameters: int = 0
    parameters: int | None = None
    origin: str = ""
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
