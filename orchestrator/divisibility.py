"""Which dimensions must divide which: what cannot be sharded is skipped with its reason, never rounded."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from orchestrator.model import Model
from orchestrator.model_counts import expert_layers
from orchestrator.roles import Role
from orchestrator.shape import Shape

Refusal = tuple[str, str]
"""The kind of reason, without numbers, and the reason with them."""


@dataclass(frozen=True, slots=True)
class Law:
    """What must hold, and of one Point whether it is broken; of a Column of Points ``broken`` is a mask.

    kind: the reason without numbers; reason: writes it with those of one Point.
    """

    kind: str
    broken: bool
    reason: Callable[[], str]


def refusal(role: Role, shape: Shape) -> Refusal | None:
    """Say why this Point has no Gemms on a rank, or None where it has."""
    return next(iter(refusals(role, shape)), None)


def refusals(role: Role, shape: Shape) -> list[Refusal]:
    """Say everything because of which this Point has no Gemms on a rank."""
    return [found for name, laws in _LAWS if name in role.dimensions if (found := _first(laws(shape))) is not None]


def laws(role: Role, shape: Shape) -> list[Law]:
    """Every law for a role; the first that is broken is why a Point has no Gemms on a rank."""
    return [law for name, laws in _LAWS if name in role.dimensions for law in laws(shape)]


def unsplit(model: Model, tp: int) -> list[str]:
    """Say which dimensions of a model ``tp`` ranks cannot share evenly; the vocabulary is padded."""
    shape = Shape(tp=tp, batch=1, dtype="bf16", h=model.h, a=model.a, kv=model.kv, head_dim=model.head_dim)
    sparse = expert_layers(model)
    widths = {"d_ff": model.d_ff if sparse < model.layers else 0}
    widths |= {name: getattr(model, name) if sparse else 0 for name in ("expert_d_ff", "shared_d_ff")}
    found = [_first([_divides("tp", tp, name, width)]) for name, width in widths.items()]
    found += [_first(_heads(shape)), _first(_key_value_heads(shape))]
    return [each[1] for each in found if each is not None]


def _first(laws: Iterable[Law]) -> Refusal | None:
    return next(((law.kind, law.reason()) for law in laws if law.broken), None)


def _d_ff(s: Shape) -> list[Law]:
    return [_divides("tp", s.tp, "d_ff", s.size("d_ff"))]


def _heads(s: Shape) -> list[Law]:
    a = s.size("a")
    whole = [_divides("a", a, "h", s.size("h"))] if s.head_dim is None else []
    return [*whole, _divides("tp", s.tp, "a", a)]


def _key_value_heads(s: Shape) -> list[Law]:
    kv, a = s.key_value_heads, s.size("a")
    shared = _divides("tp", s.tp, "kv", kv)  # where kv is a, what holds for a is all
    broken = shared.broken & (s.tp % kv != 0) & (kv != a)
    return [_divides("kv", kv, "a", a), replace(shared, broken=broken)]


def _experts(s: Shape) -> list[Law]:
    experts, topk = s.size("experts"), s.size("topk")
    return [
        Law("topk is more than experts", topk > experts, lambda: f"topk={topk} is more than experts={experts}"),
        _divides("ep", s.ep, "experts", experts),
        _divides("experts", experts, "tokens*topk", s.tokens * topk),
    ]


_LAWS: Iterable[tuple[str, Callable[[Shape], list[Law]]]] = (
    ("d_ff", _d_ff),
    ("a", _heads),
    ("kv", _key_value_heads),
    ("topk", _experts),
)
"""The laws that hold for a role which has the dimension."""


def _divides(divisor: str, by: int, name: str, value: int) -> Law:
    kind = f"{divisor} does not divide {name}"
    return Law(kind, value % by != 0, lambda: f"{divisor}={by} does not divide {name}={value}")
