"""A model's transformer layer as the components that one tensor-parallel rank runs, forward, in their order."""

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.divisibility import refusals
from orchestrator.model import Model
from orchestrator.roles import ROLES
from orchestrator.shape import Shape
from tasks.component import Component, Layer, Option, Variant
from tasks.gemm import ELEMENT_BYTES

DTYPES = ("bf16", "fp16", "fp32", "tf32")
UNFUSED, FLASH = "unfused", "flash"
FUSED_BACKENDS = ("flash", "efficient", "cudnn")
DROPOUT = 0.1
"""Probability of GPT-3's and Megatron-LM's examples; it does not change what a kernel costs."""
FLOAT_BYTES = 4
MOST_NORMS = 4
"""Before and after each block, as Gemma-2 has them; Phi and Falcon-7B have one, before both blocks at once."""
MATH_COPIES = 3
"""Matrices of scores in float32 that the math backend is taken to hold at once: an estimate, for memory only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCase:
    """A model and how its layer runs: tp and ep ranks, b sequences of s tokens; training adds dropout."""

    model: Model
    tp: int = 1
    ep: int = 1
    b: int = 4
    s: int = 2048
    dtype: str = "bf16"
    training: bool = False

    @property
    def shape(self) -> Shape:
        """The dimensions as roles see them; d_ff is an expert's where there are experts."""
        model, mixture = self.model, bool(self.model.experts)
        return Shape(
            tp=self.tp,
            batch=self.b,
            dtype=self.dtype,
            h=model.h,
            seq=self.s,
            d_ff=model.expert_d_ff if mixture else model.d_ff,
            a=model.a,
            kv=model.kv,
            head_dim=model.head_dim,
            experts=model.experts if mixture else None,
            topk=model.topk if mixture else None,
            ep=self.ep,
        )

    @property
    def shared(self) -> Shape:
        """The MLP of the experts that every token takes."""
        return self.shape.having("d_ff", self.model.shared_d_ff)


def problems(case: LayerCase) -> list[str]:
    """Say why the layer cannot be made: what does not divide what."""
    role = ROLES["layer_moe" if case.model.experts else "layer"]
    found = [each[1] for each in refusals(role, case.shape)]
    if case.model.shared_d_ff % case.tp:
        found.append(f"tp={case.tp} does not divide shared_d_ff={case.model.shared_d_ff}")
    if case.ep > 1 and not case.model.experts:
        found.append(f"ep={case.ep} needs experts")
    if case.model.experts and case.model.mlp != "swiglu":
        found.append(f"mlp={case.model.mlp}: experts are measured with swiglu only")
    if case.model.norms > MOST_NORMS:
        found.append(f"norms={case.model.norms}: a layer is timed with at most {MOST_NORMS}")
    if not case.model.positions and case.model.head_dim % 2:
        found.append(f"head_dim={case.model.head_dim} is odd: rotary positions turn its two halves")
    return found


def layer(case: LayerCase) -> Layer:
    """The layer with attention step by step and with fused attention; the math backend is shown beside them."""
    before, after = tuple(_before(case)), tuple(_after(case))
    unfused = tuple(_unfused(case))
    fused = tuple(component for backend in FUSED_BACKENDS for component in _sdpa(case, backend))
    return Layer(
        variants=(
            Variant(name=UNFUSED, steps=tuple((each,) for each in (*before, *unfused, *after))),
            Variant(name=FLASH, steps=(*((each,) for each in before), fused, *((each,) for each in after))),
        ),
        extras=tuple(_sdpa(case, "math")),
    )


def _gemm(case: LayerCase, role: str, *, name: str = "", shape: Shape | None = None) -> Component:
    part = ROLES[role].parts(shape or case.shape)[0]
    gemm = part.gemm
    return Component(name=name or role, kind="gemm", dtype=gemm.dtype, gemm=gemm, flops=gemm.flops)


def _other(
    case: LayerCase,
    name: str,
    op: str,
    inputs: tuple[tuple[int, ...], ...],
    output: int,
    *,
    workspace: int = 0,
    **options: Option,
) -> Component:
    return Component(
        name=name,
        op=op,
        dtype=case.dtype,
        inputs=inputs,
        output=output,
        workspace=workspace,
        options=tuple(options.items()),
    )


def _tokens(case: LayerCase) -> tuple[int, int, int]:
    return (case.b, case.s, case.model.h)


def _norm(case: LayerCase, place: int) -> Iterator[Component]:
    """The norm before attention (1), before the MLP (2), after attention (3) or after the MLP (4), if there is one."""
    if case.model.norms < place:
        return
    h = case.model.h
    weights = ((h,),) if case.model.norm == "rms" else ((h,), (h,))
    inputs = (_tokens(case), *weights)
    yield _other(case, f"{case.model.norm}_norm", f"{case.model.norm}_norm", inputs, case.shape.tokens * h)


def _before(case: LayerCase) -> Iterator[Component]:
    """Up to the scores: queries, keys and values, turned by their positions."""
    shape, d = case.shape, case.shape.head
    heads, kv = shape.size("a") // case.tp, shape.local_kv
    projected, turned = (case.b, case.s, heads + 2 * kv, d), shape.tokens * (heads + kv) * d
    yield from _norm(case, 1)
    yield _gemm(case, "qkv")
    if case.model.qk_norm:
        yield _other(case, "qk_norm", "qk_norm", (projected, (d,)), turned, heads=heads + kv)
    if not case.model.positions:
        angles = (case.s, d // 2)
        yield _other(case, "rope", "rope", (projected, angles, angles), turned, heads=heads + kv)


def _unfused(case: LayerCase) -> Iterator[Component]:
    """Attention step by step: the scores are written to memory and read again."""
    shape, b, s, d = case.shape, case.b, case.s, case.shape.head
    heads, kv = shape.size("a") // case.tp, shape.local_kv
    scores = (b * heads, s, s)
    elements = b * heads * s * s
    if kv < heads:
        narrow = (b, s, kv, d)
        wide = 2 * b * s * heads * d
        yield _other(case, "repeat_kv", "repeat_kv", (narrow, narrow), wide, repeats=heads // kv)
    yield _gemm(case, "attn_score")
    yield _other(case, "scale_mask", "scale_mask", (scores, (s, s)), elements, scale=d**-0.5)
    yield _other(case, "softmax", "softmax", (scores,), elements)
    if case.training:
        yield _dropout(case, "attn_dropout", scores, elements)
    yield _gemm(case, "attn_over_value")


def _sdpa(case: LayerCase, backend: str) -> Iterator[Component]:
    """Causal attention by one backend; for ``efficient``, which knows no GQA, the key and value heads are repeated.

    FLOPs are those of the pairs that a causal mask leaves: s·(s+1)/2 of them, 4·d each.
    """
    shape, b, s, d = case.shape, case.b, case.s, case.shape.head
    heads, kv = shape.size("a") // case.tp, shape.local_kv
    repeat = kv < heads and backend == "efficient"
    size = ELEMENT_BYTES[case.dtype]
    repeated = 2 * b * s * heads * d * size if repeat else 0
    scores = MATH_COPIES * b * heads * s * s * FLOAT_BYTES if backend == "math" else 0
    yield Component(
        name=f"sdpa_{backend}",
        kind="attention",
        op="attention",
        dtype=case.dtype,
        inputs=((b, s, heads, d), (b, s, kv, d), (b, s, kv, d)),
        output=b * s * heads * d,
        workspace=repeated + scores,
        flops=2 * b * heads * d * s * (s + 1),
        options=(("backend", backend), ("repeat", repeat), ("p", DROPOUT if case.training else 0.0)),
    )


def _after(case: LayerCase) -> Iterator[Component]:
    """From attention's output to the end of the layer."""
    yield _gemm(case, "attn_out")
    yield from _norm(case, 3)
    yield from _residual(case)
    yield from _norm(case, 2)
    yield from _mixture(case) if case.model.experts else _mlp(case)
    yield from _norm(case, 4)
    yield from _residual(case)


def _residual(case: LayerCase) -> Iterator[Component]:
    elements = case.shape.tokens * case.model.h
    if case.training:
        yield _dropout(case, "dropout", _tokens(case), elements)
    yield _other(case, "residual", "residual", (_tokens(case), _tokens(case)), elements)


def _dropout(case: LayerCase, name: str, shape: tuple[int, ...], elements: int) -> Component:
    return _other(case, name, "dropout", (shape,), elements, workspace=elements, p=DROPOUT)


def _mlp(case: LayerCase) -> Iterator[Component]:
    shape = case.shape
    if case.model.mlp == "swiglu":
        yield _gemm(case, "mlp_gate_up")
        yield _swiglu(case, "swiglu", (shape.tokens, 2 * shape.local_d_ff))
    else:
        yield _gemm(case, "mlp_up")
        elements = shape.tokens * shape.local_d_ff
        yield _other(case, "gelu", "gelu", ((shape.tokens, shape.local_d_ff),), elements)
    yield _gemm(case, "mlp_down")


def _swiglu(case: LayerCase, name: str, gate_up: tuple[int, int]) -> Component:
    elements = gate_up[0] * gate_up[1] // 2
    return _other(case, name, "swiglu", (gate_up,), elements, workspace=elements * ELEMENT_BYTES[case.dtype])


def _mixture(case: LayerCase) -> Iterator[Component]:
    """Router, the experts of this rank with their tokens, and the experts that every token takes."""
    shape, h = case.shape, case.model.h
    tokens, experts, topk = shape.tokens, shape.size("experts"), shape.size("topk")
    rows = shape.local_experts * shape.expert_tokens
    sizes = {"tokens": tokens, "topk": topk, "rows": rows}
    yield _gemm(case, "router")
    yield _other(case, "route", "route", ((tokens, experts),), tokens * topk, topk=topk)
    yield _other(case, "dispatch", "dispatch", ((tokens, h),), rows * h, **sizes)
    yield _gemm(case, "expert_gate_up")
    yield _swiglu(case, "expert_swiglu", (rows, 2 * shape.local_d_ff))
    yield _gemm(case, "expert_down")
    weighted = rows * h * ELEMENT_BYTES[case.dtype]
    yield _other(case, "combine", "combine", ((rows, h), (rows, 1)), tokens * h, workspace=weighted, **sizes)
    if case.model.shared_d_ff:
        width = 2 * case.shared.local_d_ff
        yield _gemm(case, "mlp_gate_up", name="shared_gate_up", shape=case.shared)
        yield _swiglu(case, "shared_swiglu", (tokens, width))
        yield _gemm(case, "mlp_down", name="shared_down", shape=case.shared)
        yield _other(case, "shared_add", "residual", (_tokens(case), _tokens(case)), tokens * h)
