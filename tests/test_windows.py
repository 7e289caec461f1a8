"""Tensors from a pool: no two windows share a byte before the cache has been outrun."""

import torch

from tasks.component import Component
from tasks.gemm import Gemm
from tasks.pool import OperandPool, padded
from tasks.windows import Windows, elements, pool_elements

CACHE = 1 << 20
SMALL = Component(name="residual", dtype="fp32", op="residual", inputs=((3, 100), (3, 100)), output=300)
LARGE = Component(name="norm", dtype="fp32", op="rms_norm", inputs=((4, 1000, 1000), (1000,)), output=4_000_000)
GEMM = Component(
    name="qkv", kind="gemm", dtype="fp32", gemm=Gemm(kind="mm", b=1, m=64, n=32, k=16, dtype="fp32", layout="nt")
)


def windows(*components: Component, hot: bool = False) -> Windows:
    inputs, outputs = pool_elements(components, CACHE)
    pool = OperandPool(torch.device("cpu"), components[0].dtype, inputs=inputs, outputs=outputs, seed=0)
    return Windows(pool, hot=hot)


def start(tensors: tuple[torch.Tensor, ...]) -> int:
    return tensors[0].data_ptr()


def test_a_window_is_each_input_aligned_one_after_another() -> None:
    assert elements(SMALL) == 2 * padded(300) == 1024
    first, second = windows(SMALL).tensors(SMALL)
    assert (first.shape, second.shape) == ((3, 100), (3, 100))
    assert second.data_ptr() - first.data_ptr() == 512 * 4


def test_a_small_components_bytes_come_back_after_three_caches_of_others() -> None:
    ring = windows(SMALL)
    starts = [start(ring.tensors(SMALL)) for _ in range(2000)]
    again = starts.index(starts[0], 1)
    assert again * 1024 * 4 >= 3 * CACHE
    assert len(set(starts[:again])) == again


def test_a_hot_window_is_always_the_same() -> None:
    ring = windows(SMALL, hot=True)
    assert start(ring.tensors(SMALL)) == start(ring.tensors(SMALL))


def test_one_window_of_a_large_component_is_enough() -> None:
    inputs, outputs = pool_elements([LARGE], CACHE)
    assert (inputs, outputs) == (elements(LARGE), 0)


def test_gemms_and_components_take_turns_in_one_ring() -> None:
    ring = windows(SMALL, GEMM)
    assert GEMM.gemm is not None
    first = ring.tensors(SMALL)
    operands = ring.take(GEMM.gemm)
    third = ring.tensors(SMALL)
    assert operands.a.data_ptr() - start(first) == 1024 * 4
    assert start(third) - operands.a.data_ptr() == (padded(64 * 16) + padded(32 * 16)) * 4


def test_windows_from_the_pools_start_are_counted() -> None:
    ring = windows(SMALL)
    assert ring.room(SMALL) == pool_elements([SMALL], CACHE)[0] // 1024
    assert start(ring.at(SMALL, 2)) - start(ring.at(SMALL, 0)) == 2 * 1024 * 4
