"""Gemms as columns calculate what each Gemm does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.alignment import aligned
from orchestrator.gemm_columns import GemmSets, sets_of, table_of
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import LAYOUTS, Gemm, kind_of

size = st.sampled_from([1, 8, 12, 100, 4096])


@st.composite
def gemms(draw: st.DrawFn) -> Gemm:
    dtype, batched = draw(st.sampled_from(["fp16", "fp32", "fp8", "int8"])), draw(st.booleans())
    return Gemm(
        kind=kind_of(dtype, batched),
        b=draw(size) if batched else 1,
        m=draw(size),
        n=draw(size),
        k=draw(size),
        dtype=dtype,
        layout=draw(st.sampled_from(LAYOUTS)),
    )


@given(st.lists(gemms(), min_size=1, max_size=8, unique=True))
def test_columns_have_the_figures_of_each_gemm(known: list[Gemm]) -> None:
    table = table_of(known)
    assert [table.gemm(row) for row in range(len(table))] == known
    assert table.flops().tolist() == [gemm.flops for gemm in known]
    assert table.bytes().tolist() == [gemm.bytes for gemm in known]
    assert table.each(aligned, bool).tolist() == [aligned(gemm) for gemm in known]


def of_lengths(*lengths: int) -> GemmSets:
    starts = np.concatenate(([0], np.cumsum(lengths)))
    return GemmSets(table=table_of(()), gemms=np.arange(starts[-1]), starts=starts, rivals=np.ones(len(lengths), int))


def test_sums_are_exact_where_no_int64_takes_them() -> None:
    values = np.array([2**60 - 1, 2**60 - 3] * 8 + [5], dtype=np.int64)
    assert of_lengths(16, 1).exact_sums(values) == [8 * (2**61 - 4), 5]


def test_a_median_is_of_each_set() -> None:
    values = np.array([4.0, 1.0, 2.0, 9.0, 1.0, 3.0, 7.0])
    assert of_lengths(4, 1, 2).medians(values).tolist() == pytest.approx([3.0, 1.0, 5.0])


def test_a_gemm_of_several_bundles_is_one_row() -> None:
    one, two = (Gemm(kind="mm", b=1, m=8, n=n, k=8, dtype="fp16") for n in (8, 16))
    chosen = [(one, two), (one,)]
    bundles = [
        Bundle(
            families=(
                Family(
                    role="mlp_up",
                    h=8,
                    tp=1,
                    batch=1,
                    seq=8,
                    dtype="fp16",
                    candidates=tuple(Candidate(value=g.n, parts=(Part(name="up", gemm=g),)) for g in asked),
                ),
            )
        )
        for asked in chosen
    ]
    found = sets_of(bundles)
    assert (len(found.table), found.gemms.tolist(), found.starts.tolist()) == (2, [0, 1, 0], [0, 2, 3])
    assert found.rivals.tolist() == [2, 1]
