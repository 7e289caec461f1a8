"""Which dimensions must divide which: what cannot be sharded is skipped with its reason, never rounded."""

from collections.abc import Callable, Iterable

from orchestrator.model import Model
from orchestrator.model_counts import expert_layers
from orchestrator.roles import Role
from orchestrator.shape import Shape

Refusal = tuple[str, str]
"""The kind of reason, without numbers, and the reason with them."""


def refusal(role: Role, shape: Shape) -> Refusal | None:
    """Say why this Point has no Gemms on a rank, or None where it has."""
    return next(iter(refusals(role, shape)), None)


def refusals(role: Role, shape: Shape) -> list[Refusal]:
    """Say everything because of which this Point has no Gemms on a rank."""
    laws = (law for name, law in _LAWS if name in role.dimensions)
    return [found for law in laws if (found := law(shape)) is not None]


def unsplit(model: Model, tp: int) -> list[str]:
    """Say which dimensions of a model ``tp`` ranks cannot share evenly; the vocabulary is padded."""
    shape = Shape(tp=tp, batch=1, dtype="bf16", h=model.h, a=model.a, kv=model.kv, head_dim=model.head_dim)
    sparse = expert_layers(model)
    widths = {"d_ff": model.d_ff if sparse < model.layers else 0}
    widths |= {name: getattr(model, name) if sparse else 0 for name in ("expert_d_ff", "shared_d_ff")}
    found = [*(_divides("tp", tp, name, width) for name, width in widths.items())]
    return [each[1] for each in (*found, _heads(shape), _key_value_heads(shape)) if each is not None]


def _d_ff(s: Shape) -> Refusal | None:
    return _divides("tp", s.tp, "d_ff", s.size("d_ff"))


def _heads(s: Shape) -> Refusal | None:
    a = s.size("a")
    if s.head_dim is None and (found := _divides("a", a, "h", s.size("h"))):
        return found
    return _divides("tp", s.tp, "a", a)


def _key_value_heads(s: Shape) -> Refusal | None:
    kv = s.key_value_heads
    if kv == s.size("a"):
        return None  # then what holds for a is all
    if found := _divides("kv", kv, "a", s.size("a")):
        return found
    return None if s.tp % kv == 0 else _divides("tp", s.tp, "kv", kv)


def _experts(s: Shape) -> Refusal | None:
    experts, topk = s.size("experts"), s.size("topk")
    if topk > experts:
        return "topk is more than experts", f"topk={topk} is more than experts={experts}"
    if found := _divides("ep", s.ep, "experts", experts):
        return found
    return _divides("experts", experts, "tokens*topk", s.tokens * topk)


_LAWS: Iterable[tuple[str, Callable[[Shape], Refusal | None]]] = (
    ("d_ff", _d_ff),
    ("a", _heads),
    ("kv", _key_value_heads),
    ("topk", _experts),
)
"""The law that holds for a role which has the dimension."""


def _divides(divisor: str, by: int, name: str, value: int) -> Refusal | None:
    if value % by == 0:
        return None
    return f"{divisor} does not divide {name}", f"{divisor}={by} does not divide {name}={value}"
