"""Operands as views of a pool: their shapes, and the distance between two uses of a byte, by simulated addresses."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tasks.calls import MAX_CALLS
from tasks.gemm import ELEMENT_BYTES, LAYOUTS, Gemm, kind_of
from tasks.pool import (
    ALIGN,
    OperandPool,
    Operands,
    Ring,
    fp8_type,
    input_elements,
    output_elements,
    padded,
    ring_elements,
    sweep,
)
from tasks.settings import L2_REUSE
from tasks.sweeps import outrun_cache, sweep_elements, sweep_plan

CPU = torch.device("cpu")
SIZES = st.sampled_from([1, 7, 16, 64, 100, 300, 1000])


@st.composite
def gemms(draw: st.DrawFn, dtype: str = "fp16") -> Gemm:
    batched = draw(st.booleans())
    b = draw(st.integers(1, 3)) if batched else 1
    layout = draw(st.sampled_from(LAYOUTS))
    # the smallest Gemms of a sweep have some hundreds of weights
    sizes = {"m": draw(SIZES), "n": draw(SIZES), "k": 64 + draw(SIZES)}
    return Gemm(kind=kind_of(dtype, batched), b=b, dtype=dtype, layout=layout, **sizes)


DTYPES = st.sampled_from(sorted(ELEMENT_BYTES))
OF_ANY_DTYPE = DTYPES.flatmap(gemms)
"""One Gemm of any dtype."""
SOME = DTYPES.flatmap(lambda dtype: st.lists(gemms(dtype), min_size=1, max_size=4))
"""Gemms of one dtype, as a Bundle has them."""


def density(gemm: Gemm) -> float:
    """Share of a window's inputs that is not padding."""
    return gemm.input_bytes / (input_elements(gemm) * gemm.element_bytes)


def pool(inputs: int, outputs: int, dtype: str = "fp16", seed: int = 0) -> OperandPool:
    return OperandPool(CPU, dtype, inputs=inputs, outputs=outputs, seed=seed)


def pool_for(*of: Gemm, windows: int = 1) -> OperandPool:
    return pool(windows * max(map(input_elements, of)), windows * max(map(output_elements, of)), of[0].dtype)


def extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First and one past the last address of a dense view."""
    begin = tensor.data_ptr()
    return begin, begin + tensor.numel() * tensor.element_size()


def overlap(one: tuple[int, int], two: tuple[int, int]) -> bool:
    return one[0] < two[1] and two[0] < one[1]


@pytest.mark.parametrize(
    ("elements", "expected"), [(1, 512), (511, 512), (512, 512), (513, 1024), (5_636_096, 5_636_096)]
)
def test_views_start_at_multiples_of_512_elements(elements: int, expected: int) -> None:
    assert padded(elements) == expected


def test_elements_of_a_window_by_hand() -> None:
    gemm = Gemm(kind="bmm", b=3, m=10, n=20, k=30, dtype="fp16")
    # A 3·10·30 = 900 -> 1024, B 3·30·20 = 1800 -> 2048, C 3·10·20 = 600 -> 1024
    assert (input_elements(gemm), output_elements(gemm)) == (3072, 1024)


@given(OF_ANY_DTYPE)
@settings(deadline=None)
def test_views_have_the_shapes_of_the_gemm(gemm: Gemm) -> None:
    operands = pool_for(gemm).operands(gemm, 0, 0)
    batch = (gemm.b,) if gemm.kind == "bmm" else ()
    assert operands.a.shape == (*batch, gemm.m, gemm.k)
    assert operands.b.shape == (*batch, gemm.k, gemm.n)
    assert operands.c.shape == (*batch, gemm.m, gemm.n)
    assert (operands.a.mT if gemm.layout == "tn" else operands.a).is_contiguous()
    assert (operands.b.mT if gemm.layout == "nt" else operands.b).is_contiguous()
    assert operands.c.is_contiguous()
    assert operands.a.element_size() == operands.b.element_size() == gemm.element_bytes
    assert operands.c.element_size() == gemm.output_element_bytes
    assert (operands.scales is None) == (gemm.kind != "scaled_mm")


def test_a_linear_layers_weight_is_stored_by_rows_of_n() -> None:
    gemm = Gemm(kind="mm", b=1, m=4, n=6, k=8, dtype="fp32", layout="nt")
    operands = pool_for(gemm).operands(gemm, 0, 0)
    assert operands.b.stride() == (1, 8)  # B[k, n] beside B[k + 1, n]
    assert operands.b.T.is_contiguous()
    plain = Gemm(kind="mm", b=1, m=4, n=6, k=8, dtype="fp32", layout="nn")
    assert pool_for(plain).operands(plain, 0, 0).b.stride() == (6, 1)


def test_a_weights_gradient_reads_what_the_layer_has_written() -> None:
    # dW (out, in) = dY^T X: dY is (tokens, out) by rows and X (tokens, in) by rows
    gemm = Gemm(kind="mm", b=1, m=4, n=6, k=8, dtype="fp32", layout="tn")
    operands = pool_for(gemm).operands(gemm, 0, 0)
    assert operands.a.stride() == (1, 4)  # A[m, k] beside A[m + 1, k]
    assert operands.b.stride() == (6, 1)


@given(OF_ANY_DTYPE, st.integers(2, 5))
@settings(deadline=None)
def test_views_of_a_window_are_apart_and_inside_it(gemm: Gemm, windows: int) -> None:
    of = pool_for(gemm, windows=windows)
    seen: list[tuple[int, int]] = []
    for operands in sweep(of, gemm, windows, windows):
        for tensor in (operands.a, operands.b):
            assert not any(overlap(extent(tensor), other) for other in seen)
            assert extent(of.inputs)[0] <= extent(tensor)[0]
            assert extent(tensor)[1] <= extent(of.inputs)[1]
            assert (tensor.data_ptr() - of.inputs.data_ptr()) % (ALIGN * gemm.element_bytes) == 0
            assert ALIGN * gemm.element_bytes >= 512  # as CUDA's allocator aligns
            seen.append(extent(tensor))
        assert overlap(extent(operands.c), extent(of.outputs))
        assert extent(operands.c)[1] <= extent(of.outputs)[1]
        seen.append(extent(operands.c))


@given(SOME, st.data())
def test_outputs_never_alias_inputs(some: list[Gemm], data: st.DataObject) -> None:
    ring = Ring(of := pool(*ring_elements(some, 10_000), some[0].dtype), hot=data.draw(st.booleans()))
    for gemm in data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=30)):
        operands = ring.take(gemm)
        assert not overlap(extent(operands.a), extent(operands.b))
        assert not overlap(extent(operands.c), extent(of.inputs))
        assert extent(operands.c)[1] <= extent(of.outputs)[1]
        assert max(extent(operands.a)[1], extent(operands.b)[1]) <= extent(of.inputs)[1]


def test_inputs_are_standard_normal_and_the_seeds() -> None:
    made = pool(100_000, 8, "fp32", seed=3)
    assert abs(float(made.inputs.mean())) < 0.02
    assert abs(float(made.inputs.std()) - 1) < 0.02
    assert torch.equal(made.inputs, pool(100_000, 8, "fp32", seed=3).inputs)
    assert not torch.equal(made.inputs, pool(100_000, 8, "fp32", seed=4).inputs)


@pytest.mark.parametrize(
    ("dtype", "kind", "written", "size"),
    [
        ("fp16", torch.float16, torch.float16, 2048),
        ("bf16", torch.bfloat16, torch.bfloat16, 2048),
        ("fp8", torch.float8_e4m3fn, torch.bfloat16, 1000 + 2 * 24),
        ("fp8_rowwise", torch.float8_e4m3fn, torch.bfloat16, 1000 + 2 * 24),
        ("int8", torch.int8, torch.int32, 1000 + 4 * 24),
    ],
)
def test_a_pool_knows_its_bytes(dtype: str, kind: torch.dtype, written: torch.dtype, size: int) -> None:
    made = pool(1000, 24, dtype)
    assert (made.inputs.dtype, made.outputs.dtype, made.bytes) == (kind, written, size)


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise"])
def test_an_fp8_pool_is_standard_normal_also_where_it_is_drawn_in_parts(
    monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setattr("tasks.pool.DRAWN", 30_000)
    made = pool(100_000, 8, dtype, seed=3).inputs.float()
    assert abs(float(made.mean())) < 0.02
    assert abs(float(made.std()) - 1) < 0.02
    assert all(abs(float(part.std()) - 1) < 0.03 for part in made.split(30_000))
    assert not torch.equal(made[:30_000], made[30_000:60_000])
    assert torch.equal(made, pool(100_000, 8, dtype, seed=3).inputs.float())
    assert not torch.equal(made, pool(100_000, 8, dtype, seed=4).inputs.float())


def test_an_int8_pool_has_every_small_integer_equally_often() -> None:
    values, counts = pool(640_000, 8, "int8", seed=3).inputs.unique(return_counts=True)
    assert values.tolist() == list(range(-32, 32))
    assert counts.min() > 9_000  # 10,000 each, give or take a hundred
    assert counts.max() < 11_000


def scaled(m: int, n: int, dtype: str = "fp8_rowwise") -> Gemm:
    return Gemm(kind="scaled_mm", b=1, m=m, n=n, k=64, dtype=dtype, layout="nt")


def test_scales_are_positive_and_far_from_one() -> None:
    gemm = scaled(300, 1000)
    operands = pool_for(gemm).operands(gemm, 0, 0)
    assert operands.scales is not None
    for scale, shape in zip(operands.scales, ((300, 1), (1, 1000)), strict=True):
        assert (scale.shape, scale.dtype, scale.is_contiguous()) == (shape, torch.float32, True)
        assert 1.25 <= float(scale.min()) < float(scale.max()) < 2.25
        assert len(scale.unique()) > 250
        assert scale.data_ptr() % 16 == 0
    plain = scaled(300, 1000, "fp8")
    tensorwise = pool_for(plain).operands(plain, 0, 0).scales
    assert tensorwise is not None
    assert [scale.numel() for scale in tensorwise] == [1, 1]
    assert tensorwise[0] != tensorwise[1]


def test_scales_are_made_once_and_stay_what_they_were() -> None:
    small, large = scaled(7, 16), scaled(1000, 1000)
    of = pool_for(small, large, windows=3)
    first, second = (of.operands(small, at, 0).scales for at in (0, 512))
    assert first is not None
    assert second is not None
    assert [scale.data_ptr() for scale in first] == [scale.data_ptr() for scale in second]
    kept = [scale.clone() for scale in first]
    of.operands(large, 0, 0)  # needs more of them
    assert all(map(torch.equal, first, kept))


@pytest.mark.parametrize(
    ("architecture", "kind"),
    [
        ("gfx942:sramecc+:xnack-", torch.float8_e4m3fnuz),
        ("gfx950:sramecc+:xnack-", torch.float8_e4m3fn),
        ("gfx1201", torch.float8_e4m3fn),
    ],
)
def test_the_mi300_series_has_an_fp8_of_its_own(
    monkeypatch: pytest.MonkeyPatch, architecture: str, kind: torch.dtype
) -> None:
    facts = SimpleNamespace(gcnArchName=architecture)
    monkeypatch.setattr(torch.version, "hip", "6.4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: facts)
    assert fp8_type(torch.device("cuda", 0)) == kind
    assert fp8_type(CPU) == torch.float8_e4m3fn


def test_a_tf32_pool_stores_float32() -> None:
    assert pool(8, 8, "tf32").inputs.dtype == torch.float32


def test_a_hot_ring_hands_out_one_window() -> None:
    gemm = Gemm(kind="mm", b=1, m=4, n=4, k=4, dtype="fp16")
    ring = Ring(pool_for(gemm, windows=5), hot=True)
    assert len({ring.take(gemm).a.data_ptr() for _ in range(7)}) == 1


def test_a_ring_steps_through_all_its_windows_and_starts_again() -> None:
    gemm = Gemm(kind="mm", b=1, m=4, n=4, k=4, dtype="fp16")
    ring = Ring(pool_for(gemm, windows=5), hot=False)
    addresses = [(o.a.data_ptr(), o.c.data_ptr()) for o in (ring.take(gemm) for _ in range(10))]
    assert len(set(addresses[:5])) == 5
    assert addresses[5:] == addresses[:5]


def test_a_gemm_larger_than_the_caches_needs_one_window() -> None:
    large = Gemm(kind="mm", b=1, m=100, n=100, k=100, dtype="fp16")  # 60,000 bytes
    assert ring_elements([large], 20_000) == (input_elements(large), output_elements(large))
    assert ring_elements([large], 20_001)[0] > input_elements(large)


@dataclass
class Traffic:
    """What calls touch, in order: every operand is read from its first byte to its last, then the next one.

    ``now`` counts bytes that moved. A byte's reuse distance is what moved between two touches of it.
    """

    now: int = 0
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)

    def call(self, operands: Operands, *, outputs: bool = True) -> float:
        """Touch a call's operands; return the smallest reuse distance met. outputs: whether C's reuse counts."""
        least = [self._touch(operands.a), self._touch(operands.b)]
        if outputs:
            least.append(self._touch(operands.c))
        else:
            self.now += operands.c.numel() * operands.c.element_size()
        return min(least)

    def forget(self) -> None:
        """The cache was flushed."""
        self.begins, self.ends, self.times = [], [], []

    def _touch(self, tensor: torch.Tensor) -> float:
        begin, end = extent(tensor)
        begins, ends, times = np.array(self.begins), np.array(self.ends), np.array(self.times)
        again = (begins < end) & (begin < ends)
        distances = self.now - times[again] + begins[again] - begin
        for record, value in zip((self.begins, self.ends, self.times), (begin, end, self.now), strict=True):
            record.append(value)
        self.now += end - begin
        return float(distances.min()) if distances.size else math.inf


def test_the_traffic_model_by_hand() -> None:
    gemm = Gemm(kind="mm", b=1, m=4, n=4, k=4, dtype="fp32")  # three operands of 64 bytes
    first, second = sweep(pool_for(gemm, windows=2), gemm, 2, 2)
    traffic = Traffic()
    assert [traffic.call(each) for each in (first, second, first, first)] == [math.inf, math.inf, 384, 192]


def smallest_distance(ring: Ring, visits: Sequence[Gemm], *, outputs: bool) -> float:
    traffic = Traffic()
    return min(traffic.call(ring.take(gemm), outputs=outputs) for gemm in visits)


@given(SOME, st.sampled_from([3_000, 30_000, 200_000]), st.data())
@settings(max_examples=60, deadline=None)
def test_no_sequence_of_calls_on_the_ring_finds_its_inputs_in_the_cache(
    some: list[Gemm], cache: int, data: st.DataObject
) -> None:
    visits = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=150))
    ring = Ring(pool(*ring_elements(some, cache), some[0].dtype), hot=False)
    assert smallest_distance(ring, visits, outputs=False) >= L2_REUSE * cache


@given(OF_ANY_DTYPE, st.sampled_from([3_000, 30_000, 200_000]))
@settings(deadline=None)
def test_calls_of_one_gemm_find_neither_inputs_nor_outputs_in_the_cache(gemm: Gemm, cache: int) -> None:
    ring = Ring(pool(*ring_elements([gemm], cache), gemm.dtype), hot=False)
    assert smallest_distance(ring, [gemm] * 100, outputs=True) >= L2_REUSE * cache


def test_the_ring_of_a_decode_sweep_turns_no_sooner_than_three_caches() -> None:
    """Thin activations are padded: the padding is not touched and must not count."""
    thin = Gemm(kind="mm", b=1, m=1, n=64, k=64, dtype="fp16")
    ring = Ring(pool(*ring_elements([thin], 100_000)), hot=False)
    assert smallest_distance(ring, [thin] * 200, outputs=True) >= 300_000


def test_the_ring_of_a_gemm_of_a_few_bytes_takes_little_memory() -> None:
    dot = Gemm(kind="mm", b=1, m=1, n=1, k=1, dtype="fp16")
    inputs, outputs = ring_elements([dot], 60 * 2**20)
    assert (inputs, outputs) == (2**17 * 1024, 2**17 * 512)  # 384 MiB, not 90 GiB


@given(gemms(), st.integers(2, 50), st.integers(0, 2), st.sampled_from([3_000, 100_000]), st.integers(0, 2_000_000))
def test_a_sweep_is_long_enough_in_whole_turns_and_in_memory(
    gemm: Gemm, calls: int, lead: int, cache: int, limit: int
) -> None:
    timed, windows = sweep_plan(gemm, calls, lead, cache, limit)
    assert 1 <= windows <= lead + timed
    assert (lead + timed) % windows == 0
    assert lead + timed >= min(MAX_CALLS, calls + lead)
    assert lead + timed < MAX_CALLS + windows
    if windows < lead + timed:  # reused within a visit: only beyond the limit, and only after three caches
        assert windows * gemm.input_bytes >= L2_REUSE * cache
    inputs, outputs = sweep_elements({gemm: (timed, windows)}, cache, limit)
    enough = L2_REUSE * cache
    assert inputs <= max(limit / gemm.bytes, enough / gemm.input_bytes + 1) * input_elements(gemm)
    assert outputs <= max(limit / gemm.bytes, enough / gemm.output_bytes + 1) * output_elements(gemm)
    steps = sweep(pool(inputs, outputs, gemm.dtype), gemm, lead + timed, windows)
    turn = len({step.c.data_ptr() for step in steps})
    assert turn == lead + timed or turn * gemm.output_bytes >= min(enough, windows * gemm.output_bytes)


def test_a_sweep_by_hand() -> None:
    # 16·1000·2 = 32,000 bytes of A, 64,000·2 = 128,000 of B, 2,048 of C: 160,000 of inputs
    gemm = Gemm(kind="mm", b=1, m=16, n=64, k=1000, dtype="fp16")
    # three caches of 400,000 bytes are 7.5 times the inputs: 8 calls, of which 1 leads
    assert sweep_plan(gemm, 4, 1, 400_000, 10**9) == (7, 8)
    # 20 calls are long enough as they are
    assert sweep_plan(gemm, 19, 1, 400_000, 10**9) == (19, 20)
    # without memory for 20 windows, whole turns of 8: 24 calls
    assert sweep_plan(gemm, 19, 1, 400_000, 1_000_000) == (23, 8)


def test_very_small_gemms_cannot_outrun_a_large_cache() -> None:
    tiny = Gemm(kind="mm", b=1, m=1, n=16, k=16, dtype="fp16")
    large = Gemm(kind="mm", b=1, m=64, n=256, k=256, dtype="fp16")
    plans = {gemm: sweep_plan(gemm, 10, 1, 10**6, 10**9) for gemm in (tiny, large)}
    assert plans[tiny] == (MAX_CALLS - 1, MAX_CALLS)
    assert not outrun_cache(plans, 1, 10**6)
    assert outrun_cache({large: plans[large]}, 1, 10**6)


@given(
    st.lists(gemms().filter(lambda gemm: density(gemm) > 0.8), min_size=1, max_size=3, unique=True),
    st.sampled_from([3_000, 60_000, 400_000]),
    st.sampled_from([1, 1000]),
    st.integers(0, 1),
    st.data(),
)
@settings(max_examples=40, deadline=None)
def test_no_sequence_of_sweeps_finds_its_inputs_in_the_cache(
    some: list[Gemm], cache: int, caches: int, lead: int, data: st.DataObject
) -> None:
    calls = data.draw(st.lists(st.integers(2, 12), min_size=len(some), max_size=len(some)))
    plans = {g: sweep_plan(g, n, lead, cache, caches * cache) for g, n in zip(some, calls, strict=True)}
    assume(outrun_cache(plans, lead, cache))  # else the cache is flushed before each visit
    of = pool(*sweep_elements(plans, cache, caches * cache))
    traffic = Traffic()
    # One Gemm's windows end inside another's, and padding makes the other reach them a little sooner.
    near = max(gemm.input_bytes for gemm in some) if len(some) > 1 else 0
    enough = L2_REUSE * cache * min(map(density, some)) / max(map(density, some)) - near
    for gemm in data.draw(st.lists(st.sampled_from(some), min_size=2, max_size=5)):
        timed, windows = plans[gemm]
        for operands in sweep(of, gemm, lead + timed, windows):
            assert traffic.call(operands, outputs=False) >= enough


@given(OF_ANY_DTYPE, st.integers(1, 12))
@settings(deadline=None)
def test_a_sweep_of_one_gemm_reuses_nothing_within_a_turn(gemm: Gemm, windows: int) -> None:
    steps = sweep(pool_for(gemm, windows=windows), gemm, 2 * windows, windows)
    for column in ("a", "b", "c"):
        addresses = [getattr(step, column).data_ptr() for step in steps]
        assert len(set(addresses[:windows])) == windows
        assert addresses[windows:] == addresses[:windows]
