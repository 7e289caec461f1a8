"""The kernel and its check on the CPU, in every dtype and layout: right results pass, each kind of wrong one fails."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from tasks import bmm
from tasks.gemm import ELEMENT_BYTES, LAYOUTS, Gemm, kind_of
from tasks.pool import OperandPool, Operands, input_elements, output_elements

DTYPES = [dtype for dtype in ELEMENT_BYTES if dtype != "tf32"]  # which a CPU does not have
ONE_BYTE = ["fp8", "fp8_rowwise", "int8"]


def gemm(dtype: str, layout: str = "nt", *, m: int = 33, n: int = 65, k: int = 700, b: int | None = None) -> Gemm:
    kind = kind_of(dtype, batched=b is not None)
    return Gemm(kind=kind, b=b or 1, m=m, n=n, k=k, dtype=dtype, layout=layout)


def operands(of: Gemm) -> Operands:
    inputs, outputs = input_elements(of), output_elements(of)
    return OperandPool(torch.device("cpu"), of.dtype, inputs=inputs, outputs=outputs, seed=7).operands(of, 0, 0)


def computed(of: Gemm) -> Operands:
    made = operands(of)
    bmm.poison(made)
    bmm.call(of, made)
    return made


@contextmanager
def element(made: Operands, row: int, column: int, add: float) -> Iterator[None]:
    """One element of the last matrix of C is off."""
    c = made.c if made.c.dim() == 2 else made.c[-1]
    before = c[row, column].clone()
    c[row, column] += add
    yield
    c[row, column] = before


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_dtype_and_layout_computes_what_float64_does(dtype: str, layout: str) -> None:
    of = gemm(dtype, layout)
    assert bmm.check(of, computed(of))() is None


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_so_does_a_batch(dtype: str, layout: str) -> None:
    of = gemm(dtype, layout, b=3)
    assert bmm.check(of, computed(of))() is None


def test_two_by_two_by_hand() -> None:
    of = gemm("int8", m=2, n=2, k=2)
    made = operands(of)
    made.a.copy_(torch.tensor([[1, 2], [3, 4]]))
    made.b.copy_(torch.tensor([[5, 6], [7, 8]]))
    bmm.call(of, made)
    assert made.c.tolist() == [[19, 22], [43, 50]]
    assert made.c.dtype == torch.int32


def test_scales_by_hand() -> None:
    of = gemm("fp8_rowwise", m=2, n=2, k=1)
    made = operands(of)
    made.a.copy_(torch.tensor([[1.0], [2.0]]))
    made.b.copy_(torch.tensor([[1.0, 4.0]]))
    assert made.scales is not None
    made.scales[0].copy_(torch.tensor([[1.0], [3.0]]))
    made.scales[1].copy_(torch.tensor([[5.0, 0.5]]))
    bmm.call(of, made)
    assert made.c.tolist() == [[5.0, 2.0], [30.0, 12.0]]
    assert made.c.dtype == torch.bfloat16
    assert bmm.check(of, made)() is None


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_result_is_written_where_it_is_wanted(dtype: str) -> None:
    of = gemm(dtype)
    made = operands(of)
    address = made.c.data_ptr()
    bmm.poison(made)
    assert int(bmm.unwritten(made.c)) == 33 * 65
    bmm.call(of, made)
    assert (made.c.data_ptr(), int(bmm.unwritten(made.c))) == (address, 0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_element_that_was_not_written_is_counted(dtype: str) -> None:
    of = gemm(dtype)
    made = computed(of)
    bmm.poison(Operands(made.a, made.b, made.c[17:18, 3:4]))
    word = "were not written" if dtype == "int8" else "are NaN"
    assert bmm.check(of, made)() == f"1 of 2145 elements of C {word}"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("row", "column"), [(0, 0), (0, -1), (-1, 0), (-1, -1)])
def test_one_wrong_element_in_a_corner_is_found(dtype: str, row: int, column: int) -> None:
    of = gemm(dtype)
    made = computed(of)
    # an element of C is some 26 times the scales; one of int8 is a whole number, and exact
    with element(made, row, column, 1 if dtype == "int8" else 400):
        message = bmm.check(of, made)()
        assert message is not None
        assert "against float64 on a 8x8 slice" in message
    assert bmm.check(of, made)() is None


@pytest.mark.parametrize("dtype", ["fp8", "fp8_rowwise"])
@pytest.mark.parametrize("side", [0, 1])
def test_a_scale_that_the_kernel_did_not_use_is_found(dtype: str, side: int) -> None:
    of = gemm(dtype)
    made = computed(of)
    assert made.scales is not None
    kept = made.scales[side].clone()
    made.scales[side].fill_(1.0)
    assert "relative error" in (bmm.check(of, made)() or "")
    made.scales[side].copy_(kept)
    assert bmm.check(of, made)() is None


@pytest.mark.parametrize("side", [0, 1])
def test_the_scale_of_one_row_or_column_is_found(side: int) -> None:
    of = gemm("fp8_rowwise")
    made = computed(of)
    assert made.scales is not None
    made.scales[side].view(-1)[-1] *= 2
    assert "relative error" in (bmm.check(of, made)() or "")


@pytest.mark.parametrize("dtype", ONE_BYTE)
def test_half_of_the_sum_is_found(dtype: str) -> None:
    of = gemm(dtype)
    made = operands(of)
    half = Operands(made.a[:, :350], made.b[:350], made.c, made.scales)
    bmm.call(of, half)
    assert "relative error" in (bmm.check(of, made)() or "")


def test_a_product_of_zeros_is_right_and_anything_else_is_not() -> None:
    of = gemm("int8", m=2, n=2, k=2)
    made = operands(of)
    made.a.zero_()
    bmm.call(of, made)
    assert bmm.check(of, made)() is None
    made.c[0, 0] = 1
    assert bmm.check(of, made)() == "relative error inf against float64 on a 2x2 slice, 0 allowed"


def test_integers_at_the_ends_of_their_range_are_exact() -> None:
    of = gemm("int8", m=2, n=2, k=2**20)
    made = operands(of)
    made.a.fill_(-32)
    made.b.fill_(-32)
    bmm.call(of, made)
    assert made.c.tolist() == [[2**30] * 2] * 2
    assert bmm.check(of, made)() is None
