"""Tensors of components as views of one random pool, handed out so that no call finds them in the cache."""

from collections.abc import Sequence
from math import ceil, prod

import torch

from tasks.component import Component, gemms
from tasks.pool import OperandPool, Ring, padded, ring_elements
from tasks.settings import L2_REUSE


def elements(component: Component) -> int:
    """Elements that one window of a component's inputs takes."""
    return sum(padded(prod(shape)) for shape in component.inputs)


def views(pool: OperandPool, component: Component, at: int) -> tuple[torch.Tensor, ...]:
    """A component's inputs, the first of which starts at element ``at`` of the pool."""
    found: list[torch.Tensor] = []
    for shape in component.inputs:
        found.append(pool.inputs[at : at + prod(shape)].view(shape))
        at += padded(prod(shape))
    return tuple(found)


def pool_elements(components: Sequence[Component], cache_bytes: int) -> tuple[int, int]:
    """Elements of inputs and outputs of a pool in which a byte comes back after ``L2_REUSE`` caches of others."""
    own = [component for component in components if component.gemm is None]
    most = max(map(elements, own), default=0)
    enough = max((padded(ceil(L2_REUSE * cache_bytes / each.element_bytes)) for each in own), default=0)
    inputs, outputs = ring_elements(found, cache_bytes) if (found := gemms(components)) else (0, 0)
    return max(inputs, enough + 2 * most if most < enough else most), outputs


class Windows(Ring):
    """A ring that hands out the tensors of components as well as the operands of Gemms."""

    def tensors(self, component: Component) -> tuple[torch.Tensor, ...]:
        """The next window for ``component``; always the first where the ring is hot."""
        size = elements(component)
        if self._hot or self._input + size > self._pool.inputs.numel():
            self._input = 0
        self._input += size
        return views(self._pool, component, self._input - size)

    def room(self, component: Component) -> int:
        """How many windows of ``component`` the pool has."""
        return self._pool.inputs.numel() // elements(component)

    def at(self, component: Component, number: int) -> tuple[torch.Tensor, ...]:
        """A window counted from the pool's start: where a captured graph finds it each time."""
        return views(self._pool, component, number * elements(component))
