"""Which Gemms a role asks for on one tensor-parallel rank.

Source of the shapes: «The Case for Co-Designing Model Architectures with Hardware» (arXiv 2401.14489) and Megatron's
column and row parallel linear layers. M = batch * seq tokens; a weight (n, k) is kept as ``nn.Linear`` keeps it.
"""

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.shape import Shape
from tasks.family import Part
from tasks.gemm import kind_of

__all__ = ["ROLES", "Role", "Shape"]

ATTENTION = ("a", "kv", "head_dim")
HEADS = ("h", "a", "head_dim")
MIXTURE = ("experts", "topk", "ep")


@dataclass(frozen=True, kw_only=True, slots=True)
class Role:
    """A named matmul of the layer, or several that a user pays for together.

    dimensions: what it depends on beside tp, batch and seq. axis: what is chosen in it where the space's own choice
    does not touch it. parts: the Gemms of one Point, forward, in the order they run. params: weights of the block that
    the role is part of, all ranks. needs_seq: whether the role has a sequence dimension.
    """

    name: str
    help: str
    parts: Callable[[Shape], tuple[Part, ...]]
    params: Callable[[Shape], int]
    dimensions: tuple[str, ...] = ("h", "d_ff")
    axis: str = "d_ff"
    needs_seq: bool = True


def _linear(name: str, s: Shape, n: int, k: int) -> Part:
    return Part(name=name, gemm=s.gemm(kind_of(s.dtype), 1, s.tokens, n, k, "nt"))


def _batched(name: str, s: Shape, b: int, m: int, n: int, k: int, layout: str) -> Part:
    return Part(name=name, gemm=s.gemm("bmm", b, m, n, k, layout))


def _seed_bmm(s: Shape) -> tuple[Part, ...]:
    return (_batched("bmm", s, s.size("batch"), s.size("h"), s.size("h"), s.local_d_ff, "nn"),)


def _mlp_up(s: Shape) -> tuple[Part, ...]:
    return (_linear("up", s, n=s.local_d_ff, k=s.size("h")),)


def _mlp_gate_up(s: Shape) -> tuple[Part, ...]:
    return (_linear("gate_up", s, n=2 * s.local_d_ff, k=s.size("h")),)


def _mlp_down(s: Shape) -> tuple[Part, ...]:
    return (_linear("down", s, n=s.size("h"), k=s.local_d_ff),)


def _qkv(s: Shape) -> tuple[Part, ...]:
    heads = s.size("a") // s.tp + 2 * s.local_kv
    return (_linear("qkv", s, n=heads * s.head, k=s.size("h")),)


def _heads(s: Shape) -> int:
    return s.size("batch") * s.size("a") // s.tp


def _attn_score(s: Shape) -> tuple[Part, ...]:
    return (_batched("score", s, _heads(s), s.length, s.length, s.head, "nt"),)


def _attn_over_value(s: Shape) -> tuple[Part, ...]:
    return (_batched("over_value", s, _heads(s), s.length, s.head, s.length, "nn"),)


def _attn_out(s: Shape) -> tuple[Part, ...]:
    return (_linear("out", s, n=s.size("h"), k=s.size("a") // s.tp * s.head),)


def _logits(s: Shape) -> tuple[Part, ...]:
    return (_linear("logits", s, n=s.padded_v // s.tp, k=s.size("h")),)


def _router(s: Shape) -> tuple[Part, ...]:
    return (_linear("router", s, n=s.size("experts"), k=s.size("h")),)


def _expert_gate_up(s: Shape) -> tuple[Part, ...]:
    n, k = 2 * s.local_d_ff, s.size("h")
    return (_batched("expert_gate_up", s, s.local_experts, s.expert_tokens, n, k, "nt"),)


def _expert_down(s: Shape) -> tuple[Part, ...]:
    n, k = s.size("h"), s.local_d_ff
    return (_batched("expert_down", s, s.local_experts, s.expert_tokens, n, k, "nt"),)


Parts = Callable[[Shape], tuple[Part, ...]]


def _together(*roles: Parts) -> Parts:
    return lambda s: tuple(part for parts in roles for part in parts(s))


_mlp = _together(_mlp_gate_up, _mlp_down)
_mlp_gelu = _together(_mlp_up, _mlp_down)
_experts = _together(_expert_gate_up, _expert_down)
_attention = _together(_attn_score, _attn_over_value)
_attn = _together(_qkv, _attention, _attn_out)


def _no_params(s: Shape) -> int:
    return 0


def _swiglu_params(s: Shape) -> int:
    return 3 * s.size("h") * s.size("d_ff")


def _gelu_params(s: Shape) -> int:
    return 2 * s.size("h") * s.size("d_ff")


def _qkv_params(s: Shape) -> int:
    return s.size("h") * (s.size("a") + 2 * s.key_value_heads) * s.head


def _out_params(s: Shape) -> int:
    return s.size("h") * s.size("a") * s.head


def _logits_params(s: Shape) -> int:
    return s.size("h") * s.size("v")


def _router_params(s: Shape) -> int:
    return s.size("h") * s.size("experts")


def _expert_params(s: Shape) -> int:
    return s.size("experts") * _swiglu_params(s)


def _sum(*params: Callable[[Shape], int]) -> Callable[[Shape], int]:
    return lambda s: sum(each(s) for each in params)


_attn_params = _sum(_qkv_params, _out_params)

_ROLES = (
    Role(
        name="seed_bmm",
        help="swiglu-maf-bench's bmm: batch x (h, d_ff/tp) @ (d_ff/tp, h)",
        needs_seq=False,
        parts=_seed_bmm,
        params=_swiglu_params,
    ),
    Role(name="mlp_up", help="GELU MLP: (batch*seq, h) @ (h, d_ff/tp)", parts=_mlp_up, params=_gelu_params),
    Role(
        name="mlp_gate_up",
        help="SwiGLU MLP, gate and up fused: (batch*seq, h) @ (h, 2*d_ff/tp)",
        parts=_mlp_gate_up,
        params=_swiglu_params,
    ),
    Role(
        name="mlp_down",
        help="MLP: (batch*seq, d_ff/tp) @ (d_ff/tp, h)",
        parts=_mlp_down,
        params=_swiglu_params,
    ),
    Role(name="mlp", help="SwiGLU MLP, gate_up and down together", parts=_mlp, params=_swiglu_params),
    Role(name="mlp_gelu", help="GELU MLP, up and down together", parts=_mlp_gelu, params=_gelu_params),
    Role(
        name="qkv",
        help="query, key and value: (batch*seq, h) @ (h, (a/tp + 2*max(kv/tp, 1))*head_dim)",
        dimensions=("h", *ATTENTION),
        axis="a",
        parts=_qkv,
        params=_qkv_params,
    ),
    Role(
        name="attn_score",
        help="Q @ K^T: batch*a/tp x (seq, head_dim) @ (head_dim, seq)",
        dimensions=HEADS,
        axis="a",
        parts=_attn_score,
        params=_no_params,
    ),
    Role(
        name="attn_over_value",
        help="scores @ V: batch*a/tp x (seq, seq) @ (seq, head_dim)",
        dimensions=HEADS,
        axis="a",
        parts=_attn_over_value,
        params=_no_params,
    ),
    Role(
        name="attn_out",
        help="attention's output: (batch*seq, a/tp*head_dim) @ (a/tp*head_dim, h)",
        dimensions=HEADS,
        axis="a",
        parts=_attn_out,
        params=_out_params,
    ),
    Role(
        name="attention",
        help="attn_score and attn_over_value together",
        dimensions=HEADS,
        axis="a",
        parts=_attention,
        params=_no_params,
    ),
    Role(
        name="attn",
        help="qkv, attn_score, attn_over_value and attn_out together",
        dimensions=("h", *ATTENTION),
        axis="a",
        parts=_attn,
        params=_attn_params,
    ),
    Role(
        name="logits",
        help="output layer: (batch*seq, h) @ (h, padded v/tp)",
        dimensions=("h", "v"),
        axis="v",
        parts=_logits,
        params=_logits_params,
    ),
    Role(
        name="router",
        help="mixture of experts, the router: (batch*seq, h) @ (h, experts)",
        dimensions=("h", "experts"),
        axis="experts",
        parts=_router,
        params=_router_params,
    ),
    Role(
        name="expert_gate_up",
        help="routed experts, gate and up: experts/ep x (batch*seq*topk/experts, h) @ (h, 2*d_ff/tp)",
        dimensions=("h", "d_ff", *MIXTURE),
        parts=_expert_gate_up,
        params=_expert_params,
    ),
    Role(
        name="expert_down",
        help="routed experts, down: experts/ep x (batch*seq*topk/experts, d_ff/tp) @ (d_ff/tp, h)",
        dimensions=("h", "d_ff", *MIXTURE),
        parts=_expert_down,
        params=_expert_params,
    ),
    Role(
        name="experts",
        help="routed experts, expert_gate_up and expert_down together",
        dimensions=("h", "d_ff", *MIXTURE),
        parts=_experts,
        params=_expert_params,
    ),
    Role(
        name="layer",
        help="a layer with a SwiGLU MLP: attn and mlp together",
        dimensions=("h", *ATTENTION, "d_ff"),
        parts=_together(_attn, _mlp),
        params=_sum(_attn_params, _swiglu_params),
    ),
    Role(
        name="layer_gelu",
        help="a layer with a GELU MLP: attn and mlp_gelu together",
        dimensions=("h", *ATTENTION, "d_ff"),
        parts=_together(_attn, _mlp_gelu),
        params=_sum(_attn_params, _gelu_params),
    ),
    Role(
        name="layer_moe",
        help="a mixture-of-experts layer: attn, router and experts together",
        dimensions=("h", *ATTENTION, "d_ff", *MIXTURE),
        parts=_together(_attn, _router, _experts),
        params=_sum(_attn_params, _router_params, _expert_params),
    ),
)

ROLES: dict[str, Role] = {role.name: role for role in _ROLES}
