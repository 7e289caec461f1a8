"""The operations of a layer that are no Gemms, as eager PyTorch runs them, forward only.

Each maker takes a Component and returns a call: from the tensors of ``Component.inputs`` to what the operation leaves.
Activations are (batch, seq, ...) and heads (batch, seq, heads, head_dim), as the projections leave them.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tasks.component import Component

Call = Callable[[Sequence[torch.Tensor]], object]
Maker = Callable[[Component, torch.device], Call]

EPSILON = 1e-5
ROUTING_SEED = 0

BACKENDS: Mapping[str, SDPBackend] = MappingProxyType(
    {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
)


def _rms_norm(component: Component, device: torch.device) -> Call:
    """Input x and weight."""
    return lambda t: F.rms_norm(t[0], t[0].shape[-1:], t[1], EPSILON)


def _layer_norm(component: Component, device: torch.device) -> Call:
    """Input x, weight and bias."""
    return lambda t: F.layer_norm(t[0], t[0].shape[-1:], t[1], t[2], EPSILON)


def _qk_norm(component: Component, device: torch.device) -> Call:
    """Normalise each head of query and key: the first ``heads`` of what the projection leaves."""
    heads = int(component.option("heads"))
    return lambda t: F.rms_norm(t[0][:, :, :heads], t[0].shape[-1:], t[1], EPSILON)


def _rope(component: Component, device: torch.device) -> Call:
    """Rotate the halves of each head of query and key, by cos and sin of (seq, head_dim / 2)."""
    heads = int(component.option("heads"))

    def call(t: Sequence[torch.Tensor]) -> torch.Tensor:
        x, cos, sin = t[0][:, :, :heads], t[1].unsqueeze(1), t[2].unsqueeze(1)
        out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        (first, second), (left, right) = x.chunk(2, dim=-1), out.chunk(2, dim=-1)
        torch.mul(first, cos, out=left).addcmul_(second, sin, value=-1)
        torch.mul(second, cos, out=right).addcmul_(first, sin)
        return out

    return call


def _repeat_kv(component: Component, device: torch.device) -> Call:
    """Key and value, (batch, seq, kv, head_dim) each, copied to (batch, a, seq, head_dim): what a bmm needs."""
    repeats = int(component.option("repeats"))
    return lambda t: [x.transpose(1, 2).repeat_interleave(repeats, dim=1) for x in t]


def _scale_mask(component: Component, device: torch.device) -> Call:
    """Scores times the scale, plus the causal mask, in one kernel."""
    scale = float(component.option("scale"))
    return lambda t: torch.add(t[1], t[0], alpha=scale)


def _softmax(component: Component, device: torch.device) -> Call:
    return lambda t: torch.softmax(t[0], dim=-1)


def _dropout(component: Component, device: torch.device) -> Call:
    """What a training step runs: it keeps the mask."""
    p = float(component.option("p"))
    return lambda t: torch.native_dropout(t[0], p, True)


def _attention(component: Component, device: torch.device) -> Call:
    """Causal attention by one backend. repeat: key and value heads are repeated first, for one that knows no GQA."""
    backend, repeat = BACKENDS[str(component.option("backend"))], bool(component.option("repeat"))
    dropout = float(component.option("p"))

    def call(t: Sequence[torch.Tensor]) -> torch.Tensor:
        q, k, v = (x.transpose(1, 2) for x in t)
        groups = q.shape[1] // k.shape[1]
        if repeat:
            k, v = (x.repeat_interleave(groups, dim=1) for x in (k, v))
        gqa = groups > 1 and not repeat
        with sdpa_kernel([backend]):
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True, enable_gqa=gqa)

    return call


def _residual(component: Component, device: torch.device) -> Call:
    return lambda t: t[0] + t[1]


def _swiglu(component: Component, device: torch.device) -> Call:
    """SiLU of the first half times the second: gate and up lie side by side."""

    def call(t: Sequence[torch.Tensor]) -> torch.Tensor:
        gate, up = t[0].chunk(2, dim=-1)
        return F.silu(gate) * up

    return call


def _gelu(component: Component, device: torch.device) -> Call:
    return lambda t: F.gelu(t[0], approximate="tanh")


def _route(component: Component, device: torch.device) -> Call:
    """Probabilities of the experts, the ``topk`` of each token, and the order that sorts tokens by expert."""
    topk = int(component.option("topk"))

    def call(t: Sequence[torch.Tensor]) -> object:
        weights, experts = torch.softmax(t[0], dim=-1, dtype=torch.float32).topk(topk, dim=-1)
        return weights / weights.sum(dim=-1, keepdim=True), experts.flatten().argsort()

    return call


def _dispatch(component: Component, device: torch.device) -> Call:
    """Copy each token, (tokens, h), to the rows of the experts of this rank."""
    index = _tokens_of_rows(component, device)
    return lambda t: t[0].index_select(0, index)


def _combine(component: Component, device: torch.device) -> Call:
    """Add the experts' rows, (rows, h), times their weights, (rows, 1), up to their tokens."""
    index, tokens = _tokens_of_rows(component, device), int(component.option("tokens"))

    def call(t: Sequence[torch.Tensor]) -> torch.Tensor:
        return t[0].new_zeros(tokens, t[0].shape[1]).index_add_(0, index, t[0] * t[1])

    return call


def _tokens_of_rows(component: Component, device: torch.device) -> torch.Tensor:
    """The token of each row, when a router spreads ``topk`` copies of each token evenly at random."""
    tokens, topk, rows = (int(component.option(name)) for name in ("tokens", "topk", "rows"))
    generator = torch.Generator(device=device).manual_seed(ROUTING_SEED)
    return torch.randperm(tokens * topk, device=device, generator=generator)[:rows] // topk


OPS: Mapping[str, Maker] = MappingProxyType(
    {
        "rms_norm": _rms_norm,
        "layer_norm": _layer_norm,
        "qk_norm": _qk_norm,
        "rope": _rope,
        "repeat_kv": _repeat_kv,
        "scale_mask": _scale_mask,
        "softmax": _softmax,
        "dropout": _dropout,
        "attention": _attention,
        "residual": _residual,
        "swiglu": _swiglu,
        "gelu": _gelu,
        "route": _route,
        "dispatch": _dispatch,
        "combine": _combine,
    }
)
