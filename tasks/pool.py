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
from tasks.settings import L2_REUSE

TORCH_DTYPE = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "int8": torch.int8,
}
OUTPUT_DTYPE = {"fp8": torch.bfloat16, "fp8_rowwise": torch.bfloat16, "int8": torch.int32}
"""Type of C where it is not that of A and B."""

ALIGN = 512
"""Elements, of a byte or more, between the starts of two views: at least as aligned as an allocation of its own."""

DRAWN = 2**24
"""float32 numbers drawn at a time for a pool whose own type cannot be drawn."""

INTEGERS = (-32, 32)
"""Range of an int8 pool, the end excluded: no sum of two million products leaves int32."""

LEAST_SCALE = 1.25
"""fp8's scales lie between this and one more: a product without them, or with another row's, is a wrong result."""

MOST_WINDOWS = 2**17
"""Of a ring: enough for Gemms of 1.4 kB and a cache of 60 MiB."""


def padded(elements: int) -> int:
    """Round ``elements`` up to the alignment of a view."""
    return -(-elements // ALIGN) * ALIGN


@dataclass(frozen=True, slots=True)
class Operands:
    """A (b, m, k), B (b, k, n) and C (b, m, n) of one call, without the batch dimension except for kind ``bmm``.

    scales: of fp8's A and B: two numbers, or (m, 1) and (1, n) row-wise.
    """

    a: torch.Tensor
    b: torch.Tensor
    c: torch.Tensor
    scales: tuple[torch.Tensor, torch.Tensor] | None = None


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


def fp8_type(device: torch.device) -> torch.dtype:
    """The e4m3 of a device: AMD's MI300 series (gfx94x) has one of its own, all others have the OCP's."""
    if torch.version.hip and device.type == "cuda":
        architecture = str(getattr(torch.cuda.get_device_properties(device), "gcnArchName", ""))
        if architecture.startswith("gfx94"):
            return torch.float8_e4m3fnuz
    return torch.float8_e4m3fn


class OperandPool:
    """Random inputs, normal(0, 1) or small integers, and space for outputs, of one dtype on one device."""

    def __init__(self, device: torch.device, dtype: str, *, inputs: int, outputs: int, seed: int) -> None:
        self._generator = torch.Generator(device=device).manual_seed(seed)
        self.dtype = dtype
        kind = TORCH_DTYPE.get(dtype) or fp8_type(device)
        self.inputs = self._drawn(inputs, kind)
        self.outputs = torch.empty(outputs, device=device, dtype=OUTPUT_DTYPE.get(dtype, kind))
        self._scales = torch.empty(0, device=device)

    @property
    def bytes(self) -> int:
        """Bytes that the pool holds on its device."""
        return sum(each.numel() * each.element_size() for each in (self.inputs, self.outputs, self._scales))

    def operands(self, gemm: Gemm, input_at: int, output_at: int) -> Operands:
        """Views of one call whose A and B start at element ``input_at`` and C at ``output_at``."""
        a = _view(self.inputs, input_at, (gemm.b, gemm.m, gemm.k), transposed=gemm.layout == "tn")
        b_at = input_at + padded(gemm.b * gemm.m * gemm.k)
        b = _view(self.inputs, b_at, (gemm.b, gemm.k, gemm.n), transposed=gemm.layout == "nt")
        c = _view(self.outputs, output_at, (gemm.b, gemm.m, gemm.n), transposed=False)
        return Operands(a, b, c) if gemm.kind == "bmm" else Operands(a[0], b[0], c[0], self._scales_of(gemm))

    def _drawn(self, count: int, kind: torch.dtype) -> torch.Tensor:
        device = self._generator.device
        if kind == torch.int8:
            return torch.empty(count, device=device, dtype=kind).random_(*INTEGERS, generator=self._generator)
        if kind.itemsize > 1:
            return torch.randn(count, device=device, dtype=kind, generator=self._generator)
        drawn = torch.empty(count, device=device, dtype=kind)
        for part in drawn.split(DRAWN):
            part.copy_(torch.randn(part.numel(), device=device, generator=self._generator))
        return drawn

    def _scales_of(self, gemm: Gemm) -> tuple[torch.Tensor, torch.Tensor] | None:
        """The scales of a Gemm; views already handed out keep theirs where more have to be drawn."""
        if gemm.kind != "scaled_mm":
            return None
        rowwise = gemm.dtype == "fp8_rowwise"
        m, n = (gemm.m, gemm.n) if rowwise else (1, 1)
        if self._scales.numel() < padded(m) + n:
            drawn = torch.rand(padded(m) + padded(n), device=self._scales.device, generator=self._generator)
            self._scales = drawn + LEAST_SCALE
        a, b = self._scales[:m], self._scales[padded(m) : padded(m) + n]
        return (a.view(m, 1), b.view(1, n)) if rowwise else (a[0], b[0])


def _view(flat: torch.Tensor, at: int, shape: tuple[int, int, int], *, transposed: bool) -> torch.Tensor:
    """Matrices of ``shape`` (b, rows, columns) from ``at`` on, stored by rows or, transposed, by columns."""
    b, rows, columns = shape
    part = flat[at : at + b * rows * columns]
    return part.view(b, columns, rows).transpose(1, 2) if transposed else part.view(shape)


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
    """Operands of ``calls`` calls that step through ``windows`` windows from the pool's start.

    Through fewer windows of outputs where the pool has no more.
    """
    inputs, outputs = input_elements(gemm), output_elements(gemm)
    written = min(windows, pool.outputs.numel() // outputs)
    return [pool.operands(gemm, (i % windows) * inputs, (i % written) * outputs) for i in range(calls)]


def ring_elements(gemms: Sequence[Gemm], cache_bytes: int) -> tuple[int, int]:
    """Elements of inputs and of outputs of a ring in which a byte comes back only after ``L2_REUSE`` caches of others.

    One window of the largest does where even the smallest Gemm's bytes outrun the cache. Gemms of so few bytes that it
    would take more than ``MOST_WINDOWS`` are found in the cache: each would take a thousand times its bytes.
    """
    inputs, outputs = max(map(input_elements, gemms)), max(map(output_elements, gemms))
    smallest, enough = min(gemm.bytes for gemm in gemms), L2_REUSE * cache_bytes
    if smallest >= enough:
        return inputs, outputs
    windows = min(MOST_WINDOWS, math.ceil(enough / smallest) + 1)
    # the padding of a view is never touched: small Gemms need a longer ring for as many bytes
    read = enough * max(input_elements(gemm) / gemm.input_bytes for gemm in gemms)
    written = enough * max(output_elements(gemm) / gemm.output_bytes for gemm in gemms)
    return (
        min(windows * inputs, padded(math.ceil(read)) + 2 * inputs),
        min(windows * outputs, padded(math.ceil(written)) + 2 * outputs),
    )
