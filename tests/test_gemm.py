"""One matmul: FLOPs, bytes, names and alignment, by hand-worked values and by laws."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.gemm import ELEMENT_BYTES, LAYOUTS, Gemm, kind_of, largest_power_of_two

SIZES = st.integers(1, 2**20)


def mm(m: int, n: int, k: int, dtype: str = "fp16", layout: str = "nn") -> Gemm:
    return Gemm(kind=kind_of(dtype), b=1, m=m, n=n, k=k, dtype=dtype, layout=layout)


@st.composite
def gemms(draw: st.DrawFn) -> Gemm:
    dtype, batched = draw(st.sampled_from(sorted(ELEMENT_BYTES))), draw(st.booleans())
    return Gemm(
        kind=kind_of(dtype, batched),
        b=draw(st.integers(1, 64)) if batched else 1,
        m=draw(SIZES),
        n=draw(SIZES),
        k=draw(SIZES),
        dtype=dtype,
        layout=draw(st.sampled_from(LAYOUTS)),
    )


@pytest.mark.parametrize(
    ("gemm", "flops"),
    [
        (mm(1, 1, 1), 2),
        (mm(2, 3, 5), 60),
        # 2·8192·1376·4096 = 2^13 · 1376 · 2^13 = 1376 · 2^26
        (mm(8192, 1376, 4096), 92_341_796_864),
        # 2·4·4096·4096·10920 = 10920 · 2^27
        (Gemm(kind="bmm", b=4, m=4096, n=4096, k=10920, dtype="fp16"), 1_465_657_589_760),
    ],
)
def test_flops_are_two_per_multiply_and_add(gemm: Gemm, flops: int) -> None:
    assert gemm.flops == flops


def test_bytes_read_a_and_b_once_and_write_c_once() -> None:
    # A 2x5, B 5x3, C 2x3: 10 + 15 read, 6 written
    assert (mm(2, 3, 5).input_bytes, mm(2, 3, 5).output_bytes, mm(2, 3, 5).bytes) == (50, 12, 62)
    # three of them, of 4 bytes: 3·25·4 and 3·6·4
    batched = Gemm(kind="bmm", b=3, m=2, n=3, k=5, dtype="fp32")
    assert (batched.input_bytes, batched.output_bytes, batched.bytes) == (300, 72, 372)


def test_a_decode_call_of_llama_moves_its_weights() -> None:
    # M=16, tp 8 of Llama-2-7B's up: 16x4096 and 4096x1376 in, 16x1376 out, 2 bytes each
    assert mm(16, 1376, 4096).bytes == 2 * (65_536 + 5_636_096 + 22_016)


@pytest.mark.parametrize(
    ("dtype", "size", "written"),
    [
        ("fp16", 2, 2),
        ("bf16", 2, 2),
        ("fp32", 4, 4),
        ("tf32", 4, 4),
        ("fp8", 1, 2),
        ("fp8_rowwise", 1, 2),
        ("int8", 1, 4),
    ],
)
def test_bytes_of_an_element(dtype: str, size: int, written: int) -> None:
    gemm = mm(2, 3, 5, dtype)
    assert (gemm.element_bytes, gemm.output_element_bytes) == (size, written)
    assert (gemm.input_bytes, gemm.output_bytes) == (25 * size, 6 * written)  # A 2x5, B 5x3, C 2x3
    assert gemm.bytes == 25 * size + 6 * written


def test_a_prefill_call_in_fp8_reads_half_and_writes_as_much_as_one_in_bf16() -> None:
    # 8192x4096 and 4096x2752 in, one byte each; 8192x2752 out, two bytes each
    assert mm(8192, 2752, 4096, "fp8", "nt").bytes == 33_554_432 + 11_272_192 + 45_088_768
    assert mm(8192, 2752, 4096, "int8", "nt").bytes == 33_554_432 + 11_272_192 + 90_177_536


@pytest.mark.parametrize(
    ("dtype", "batched", "kind"),
    [
        ("fp16", False, "mm"),
        ("tf32", False, "mm"),
        ("bf16", True, "bmm"),
        ("fp8", False, "scaled_mm"),
        ("fp8_rowwise", False, "scaled_mm"),
        ("int8", False, "int_mm"),
        ("fp8", True, "bmm"),
        ("int8", True, "bmm"),
    ],
)
def test_the_kind_follows_from_the_dtype_and_from_whether_there_is_a_batch(
    dtype: str, batched: bool, kind: str
) -> None:
    assert kind_of(dtype, batched) == kind
    Gemm(kind=kind, b=3 if batched else 1, m=2, n=3, k=5, dtype=dtype)


def test_the_id_names_every_field() -> None:
    gemm = Gemm(kind="bmm", b=4, m=4096, n=4097, k=10920, dtype="bf16", layout="nt")
    assert gemm.gemm_id == "bmm-4x4096x4097x10920-bf16-nt"
    assert mm(1, 2, 3).gemm_id == "mm-1x1x2x3-fp16-nn"
    assert mm(1, 2, 3, "fp8_rowwise", "nt").gemm_id == "scaled_mm-1x1x2x3-fp8_rowwise-nt"
    assert mm(1, 2, 3, "int8", "tn").gemm_id == "int_mm-1x1x2x3-int8-tn"


@pytest.mark.parametrize(
    ("value", "power"), [(1, 1), (2, 2), (3, 1), (12, 4), (1376, 32), (688, 16), (10922, 2), (10944, 64), (11008, 256)]
)
def test_alignment_is_the_largest_power_of_two(value: int, power: int) -> None:
    assert largest_power_of_two(value) == power


@given(st.integers(1, 2**60))
def test_alignment_divides_the_value_and_its_double_does_not(value: int) -> None:
    power = largest_power_of_two(value)
    assert power == 2 ** (power.bit_length() - 1)
    assert value % power == 0
    assert value % (2 * power)


@given(gemms())
def test_an_id_can_be_read_back(gemm: Gemm) -> None:
    found = re.fullmatch(r"(\w+)-(\d+)x(\d+)x(\d+)x(\d+)-(\w+)-(nn|nt|tn)", gemm.gemm_id)
    assert found is not None
    kind, b, m, n, k, dtype, layout = found.groups()
    assert Gemm(kind=kind, b=int(b), m=int(m), n=int(n), k=int(k), dtype=dtype, layout=layout) == gemm


@given(gemms())
def test_flops_are_twice_the_product_and_bytes_at_least_one_operand(gemm: Gemm) -> None:
    assert gemm.flops % (2 * gemm.m * gemm.n * gemm.k) == 0
    assert gemm.flops // (2 * gemm.m * gemm.n * gemm.k) == gemm.b
    read, written = gemm.m * gemm.k + gemm.k * gemm.n, gemm.m * gemm.n
    assert gemm.bytes == gemm.b * (gemm.element_bytes * read + gemm.output_element_bytes * written)


@given(gemms())
def test_transposing_the_product_changes_neither_flops_nor_bytes(gemm: Gemm) -> None:
    other = Gemm(kind=gemm.kind, b=gemm.b, m=gemm.n, n=gemm.m, k=gemm.k, dtype=gemm.dtype, layout=gemm.layout)
    assert (other.flops, other.bytes) == (gemm.flops, gemm.bytes)


@given(SIZES, SIZES, SIZES, st.integers(2, 8))
def test_splitting_any_dimension_splits_the_flops(m: int, n: int, k: int, tp: int) -> None:
    whole = mm(m * tp, n * tp, k * tp).flops
    assert tp * mm(m, n * tp, k * tp).flops == tp * mm(m * tp, n, k * tp).flops == tp * mm(m * tp, n * tp, k).flops
    assert tp * mm(m, n * tp, k * tp).flops == whole


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "gemm"},
        {"layout": "tt"},
        {"dtype": "fp61"},
        {"m": 0},
        {"n": -1},
        {"k": 0},
        {"b": 0},
        {"b": 2},  # kind mm has no batch
        {"kind": "mm", "dtype": "fp8"},
        {"kind": "mm", "dtype": "int8"},
        {"kind": "scaled_mm"},  # not in fp16
        {"kind": "scaled_mm", "dtype": "int8"},
        {"kind": "int_mm", "dtype": "fp8"},
        {"kind": "scaled_mm", "dtype": "fp8", "b": 2},
        {"kind": "int_mm", "dtype": "int8", "b": 2},
    ],
    ids=str,
)
def test_what_cannot_be_a_gemm_is_refused(wrong: dict[str, str | int]) -> None:
    good: dict[str, str | int] = {"kind": "mm", "b": 1, "m": 2, "n": 3, "k": 5, "dtype": "fp16", "layout": "nn"}
    Gemm(**good)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"in Gemm\("):
        Gemm(**{**good, **wrong})  # type: ignore[arg-type]


def test_a_batch_of_one_is_not_a_plain_matmul() -> None:
    """They take different library paths: each is measured."""
    assert Gemm(kind="bmm", b=1, m=2, n=3, k=5, dtype="fp16") != mm(2, 3, 5)


def test_equal_gemms_are_one_key() -> None:
    assert len({mm(2, 3, 5), mm(2, 3, 5), mm(3, 2, 5), mm(2, 3, 5, layout="nt"), mm(2, 3, 5, "bf16")}) == 4
