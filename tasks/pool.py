"""Operands as views of one random pool on the device: switching Gemms costs nothing, memory is the largest case.

A device keeps two pools that never share a byte. In the ring, each launched call takes the next window, round and
round. A captured graph has fixed addresses: each of its replays sweeps the other pool from its start. Either way a byte
comes back only after three times the last-level cache of other bytes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from tasks.gemm import Gemm

TORCH_DTYPE = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "tf32": torch.float32}
ALIGN = 512
"""Elements between the starts of two views: at least as aligned as an allocation of its own."""

L2_REUSE = 3
"""Bytes touched between two uses of the same byte, in units of the last-level cache."""


def padded(elements: int) -> int:
    """Round ``elements`` up to the alignment of a view."""
    return -(-elements // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class Operands:
    """A (b, m, k), B (b, k, n) and C (b, m, n) of one call, without the batch dimension for kind ``mm``."""

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor


def input_elements(gemm: Gemm) -> int:
    """Elements that one window of A and B takes."""
    return padded(gemm.b * gemm.m * gemm.k) + padded(gemm.b * gemm.k * gemm.n)


def output_elements(gemm: Gemm) -> int:
    """Elements that one window of C takes."""
    return padded(gemm.b * gemm.m * gemm.n)


def sweep_windows(gemm: Gemm, calls: int, cache_bytes: int, limit_bytes: int) -> int:
    """How many windows a sweep of ``calls`` steps through: all different, or whole turns of enough to outrun the cache.

    Fewer than ``calls`` only where all different ones would take more than ``limit_bytes``.
    """
    if calls * gemm.bytes <= limit_bytes:
        return calls
    return min(calls, math.ceil(L2_REUSE * cache_bytes / gemm.input_bytes))


class OperandPool:
    """Random inputs, normal(0, 1), and space for outputs, in one dtype on one device."""

    def __init__(self, device: torch.device, dtype: str, *, inputs: int, outputs: int, seed: int) -> None:
        generator = torch.Generator(device=device).manual_seed(seed)
        kind = TORCH_DTYPE[dtype]
        self.dtype = dtype
        self.inputs = torch.randn(inputs, device=device, dtype=kind, generator=generator)
        self.outputs = torch.empty(outputs, device=device, dtype=kind)

    @property
    def bytes(self) -> int:
        """Bytes that the pool holds on its device."""
        return (self.inputs.numel() + self.outputs.numel()) * self.inputs.element_size()

    def operands(self, gemm: Gemm, input_at: int, output_at: int) -> Operands:
        """Views of one call whose A and B start at element ``input_at`` and C at ``output_at``."""
        b_at = input_at + padded(gemm.b * gemm.m * gemm.k)
        a = self.inputs[input_at : input_at + gemm.b * gemm.m * gemm.k].view(gemm.b, gemm.m, gemm.k)
        flat = self.inputs[b_at : b_at + gemm.b * gemm.k * gemm.n]
        stored = (gemm.b, gemm.k, gemm.n) if gemm.layout == "nn" else (gemm.b, gemm.n, gemm.k)
        b = flat.view(stored)
        b = b if gemm.layout == "nn" else b.transpose(1, 2)
        c = self.outputs[output_at : output_at + gemm.b * gemm.m * gemm.n].view(gemm.b, gemm.m, gemm.n)
        return Operands(a, b, c) if gemm.kind == "bmm" else Operands(a[0], b[0], c[0])


class Ring:
    """Windows of a pool handed out one after another, from its start again when the end is reached."""

    def __init__(self, pool: OperandPool, *, hot: bool) -> None:
        self._pool = pool
        self._hot = hot
        self._input = 0
        self._output = 0

    def take(self, gemm: Gemm) -> Operands:
        """The next window for ``gemm``; always the first where the ring is hot."""
        inputs, outputs = input_elements(gemm), output_elements(gemm)
        if self._hot or self._input + inputs > self._pool.inputs.numel():
            self._input = 0
        if self._hot or self._output + outputs > self._pool.outputs.numel():
            self._output = 0
        operands = self._pool.operands(gemm, self._input, self._output)
        self._input += inputs
        self._output += outputs
        return operands


def sweep(pool: OperandPool, gemm: Gemm, calls: int, windows: int) -> list[Operands]:
    """Operands of ``calls`` calls that step through ``windows`` windows from the pool's start."""
    inputs, outputs = input_elements(gemm), output_elements(gemm)
    return [pool.operands(gemm, (i % windows) * inputs, (i % windows) * outputs) for i in range(calls)]


def ring_elements(gemms: Sequence[Gemm], cache_bytes: int) -> tuple[int, int]:
    """Elements of inputs and of outputs of a ring in which a byte comes back only after ``L2_REUSE`` caches of others.

    One window of the largest does where even the smallest Gemm's bytes outrun the cache.
    """
    inputs, outputs = max(map(input_elements, gemms)), max(map(output_elements, gemms))
    smallest, enough = min(gemm.bytes for gemm in gemms), L2_REUSE * cache_bytes
    if smallest >= enough:
        return inputs, outputs
    windows, cache = math.ceil(enough / smallest) + 1, enough / gemms[0].element_bytes
    # the padding of a view is never touched: small Gemms need a longer ring for as many bytes
    read = cache * max(input_elements(gemm) * gemm.element_bytes / gemm.input_bytes for gemm in gemms)
    written = cache * max(output_elements(gemm) * gemm.element_bytes / gemm.output_bytes for gemm in gemms)
    return (
        min(windows * inputs, padded(math.ceil(read)) + 2 * inputs),
        min(windows * outputs, padded(math.ceil(written)) + 2 * outputs),
    )
