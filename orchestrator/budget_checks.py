"""What must hold of a space with a budget of parameters, beside what holds of each key."""

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.axis import choice, d_ff_values, is_ratio
from orchestrator.budget_count import MLP
from orchestrator.shape_code import MOST

BUDGET = "space.params_budget"
NEEDED = {"layers": "the number of layers", "v": "the vocabulary, whose embedding counts"}

Complaint = tuple[tuple[str, ...], str]


def budget_checks(values: Mapping[str, Any]) -> Iterator[Complaint]:
    """Yield (keys concerned, message) for what contradicts the budget, or where there is none for what needs one."""
    if values.get(BUDGET) is None:
        yield from _idle(values)
        return
    yield from _contradictions(values)
    for name, what in NEEDED.items():
        if values.get(f"space.{name}") is None:
            yield (BUDGET,), f"space.{name}: {BUDGET} needs {what}; give it, or a model=NAME that has it"
    yield from _heads(values)
    yield from _too_large(values)


def _contradictions(values: Mapping[str, Any]) -> Iterator[Complaint]:
    around = values.get("space.around", "d_ff")
    if around != "d_ff":
        message = f"{BUDGET} chooses h, d_ff and a together, space.around={around} only {around}: leave one of them out"
        yield (BUDGET, "space.around"), message
    if values.get("timing.protocol") == "seed":
        yield (
            (BUDGET, "timing.protocol"),
            f"{BUDGET}: timing.protocol=seed times role seed_bmm only, and no whole layer",
        )
    if wrong := [name for name in values["space.roles"] if name not in MLP]:
        yield (
            (BUDGET, "space.roles"),
            f"{BUDGET}: {', '.join(wrong)} is not a whole layer of a dense model; space.roles takes {' or '.join(MLP)}",
        )


def _idle(values: Mapping[str, Any]) -> Iterator[Complaint]:
    for name in ("space.layers", "space.other_weights"):
        if values.get(name) is not None:
            yield (name,), f"{name}: it counts under {BUDGET} only: give one, or leave it out"


def _heads(values: Mapping[str, Any]) -> Iterator[Complaint]:
    if values.get("space.a") is None and values.get("space.head_dim") is None:
        yield (BUDGET,), f"space.head_dim: {BUDGET} needs sizes of a head, such as space.head_dim=64,128, or space.a"


def _too_large(values: Mapping[str, Any]) -> Iterator[Complaint]:
    h, a, head_dim = (values.get(f"space.{name}") for name in ("h", "a", "head_dim"))
    largest = {"h": max(choice(h)[0]), "d_ff": _widest(values["space.d_ff"], h)}
    if a is not None:
        largest["a"] = max(choice(a)[0])
    elif head_dim is not None:
        largest["a"] = largest["h"] // min(choice(head_dim)[0])
    for name, most in MOST.items():
        if largest.get(name, 0) > most:
            keys = (f"space.{name}",) if values.get(f"space.{name}") is not None else ("space.h", "space.head_dim")
            yield (BUDGET, *keys), f"space.{name}: {BUDGET} takes shapes with {name} <= {most}, not {largest[name]}"


def _widest(spec: object, h: object) -> int:
    return max(d_ff_values(spec, max(choice(h)[0]))[0]) if is_ratio(spec) else max(choice(spec)[0])
