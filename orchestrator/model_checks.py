"""What must hold between a model's dimensions. Messages use the names that the user's file has for them."""

import math
from collections.abc import Callable, Mapping

Names = Callable[[str], str]
"""Turns a dimension (``kv``) into the key that it was read from (``num_key_value_heads``)."""


def violations(values: Mapping[str, int | None], name: Names) -> list[tuple[str, str]]:
    """Return (key, message) for everything that does not hold between values; what is None is not looked at.

    ``head_dim`` None stands for h / a.
    """
    found = [*_heads(values, name), *_experts(values, name)]
    return [(name(noun), message) for noun, message in found]


def _heads(values: Mapping[str, int | None], name: Names) -> list[tuple[str, str]]:
    h, a, kv = (values.get(noun) for noun in ("h", "a", "kv"))
    found = []
    if h and a and values.get("head_dim") is None and h % a:
        near = ", ".join(str(divisor) for divisor in _divisors_near(h, a))
        text = f"{a} does not divide {name('h')}={h}; give {name('head_dim')}, or a number of heads such as {near}"
        found.append(("a", text))
    if a and kv and a % kv:
        near = ", ".join(str(divisor) for divisor in _divisors_near(a, kv))
        found.append(("kv", f"{kv} does not divide {name('a')}={a}; give a number of heads such as {near}"))
    return found


def _experts(values: Mapping[str, int | None], name: Names) -> list[tuple[str, str]]:
    experts, topk = values.get("experts"), values.get("topk")
    layers, dense = values.get("layers"), values.get("dense_layers")
    found = []
    if experts and topk and topk > experts:
        found.append(("topk", f"{topk} is more than {name('experts')}={experts}; a token takes at most all experts"))
    if layers and dense and dense > layers:
        found.append(("dense_layers", f"{dense} is more than {name('layers')}={layers}; give at most {layers}"))
    return found


def divisors(whole: int) -> list[int]:
    """Return all divisors of ``whole`` in increasing order.

    >>> divisors(12)
    [1, 2, 3, 4, 6, 12]
    """
    low = {divisor for divisor in range(1, math.isqrt(whole) + 1) if whole % divisor == 0}
    return sorted(low | {whole // divisor for divisor in low})


def _divisors_near(whole: int, wanted: int, limit: int = 3) -> list[int]:
    """Return the divisors of ``whole`` whose ratio to ``wanted`` is nearest to 1, in increasing order.

    >>> _divisors_near(4096, 30)
    [16, 32, 64]
    """
    return sorted(sorted(divisors(whole), key=lambda divisor: max(divisor / wanted, wanted / divisor))[:limit])
