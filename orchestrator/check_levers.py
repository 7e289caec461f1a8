"""The values that are tried when a dimension is to change: nearest first, below and above the present one."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from orchestrator.axis import MAX_DIMENSION
from orchestrator.check_case import Case
from orchestrator.check_memory import MOST_TP
from orchestrator.reshape import follows_h

MOST_HEADS = 512
MOST_CHANGE = 2
STEPS = 64
"""Multiples that are tried on each side."""

Side = Iterator[int]


def values(case: Case, dimension: str) -> tuple[list[int], list[int]]:
    """Return what to try below the present value and above it, the nearest first; each is at least 1."""
    now = case.value(dimension)
    tried = set(_LEVERS[dimension](case)) - {now}
    return ordered(tried, now)


def ordered(tried: Iterable[int], now: int) -> tuple[list[int], list[int]]:
    """Split values into those below ``now`` and those above it, the nearest first."""
    positive = {value for value in tried if 1 <= value <= MAX_DIMENSION}
    return sorted((v for v in positive if v < now), reverse=True), sorted(v for v in positive if v > now)


def _multiples(now: int, step: int) -> Side:
    base = now // step
    return (step * (base + i) for i in range(-STEPS, STEPS + 1))


def _share(dimension: str) -> Callable[[Case], Iterable[int]]:
    """Multiples that are fully aligned on each rank."""
    return lambda case: _multiples(case.value(dimension), case.tp * case.full)


def _vocabulary(case: Case) -> Iterable[int]:
    """Only more: a vocabulary is padded, tokens are not taken from it."""
    return (v for v in _multiples(case.model.v, 64 * case.tp) if v > case.model.v)


def _hidden(case: Case) -> Iterable[int]:
    step = math.lcm(case.tp * case.full, case.model.a if follows_h(case.model) else 1)
    now = case.model.h  # a model of another size is no answer
    return (h for h in _multiples(now, step) if now / MOST_CHANGE <= h <= now * MOST_CHANGE)


def _heads(case: Case) -> Iterable[int]:
    if follows_h(case.model):
        return (a for a in range(1, MOST_HEADS + 1) if case.model.h % a == 0)
    return range(1, MOST_HEADS + 1)


def _kv_heads(case: Case) -> Iterable[int]:
    return (kv for kv in range(1, min(case.model.a, MOST_HEADS) + 1) if case.model.a % kv == 0)


def _head_dim(case: Case) -> Iterable[int]:
    return _multiples(case.model.head_dim, case.full)


def _tensor_parallel(case: Case) -> Iterable[int]:
    return (tp for tp in range(1, MOST_TP + 1) if tp & (tp - 1) == 0 or case.model.a % tp == 0)


def _doublings_and_neighbours(dimension: str, step: int) -> Callable[[Case], Iterable[int]]:
    """Powers of two, multiples of ``step``, and the nearest whole numbers."""

    def around(case: Case) -> Iterator[int]:
        now = case.value(dimension)
        yield from (1 << i for i in range(24))
        yield from _multiples(now, step)
        yield from range(now - STEPS, now + STEPS + 1)

    return around


_LEVERS: Mapping[str, Callable[[Case], Iterable[int]]] = MappingProxyType(
    {
        "h": _hidden,
        "a": _heads,
        "kv": _kv_heads,
        "head_dim": _head_dim,
        "v": _vocabulary,
        **{name: _share(name) for name in ("d_ff", "expert_d_ff", "shared_d_ff")},
        "tp": _tensor_parallel,
        "b": _doublings_and_neighbours("b", 64),
        "s": _doublings_and_neighbours("s", 64),
    }
)
