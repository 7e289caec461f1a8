"""Alignment and roofline, worked out by hand."""

import pytest

from orchestrator.alignment import aligned, alignments
from orchestrator.catalogue import load
from orchestrator.roofline import COMPUTE, MEMORY, roofline
from tasks.gemm import Gemm
from tests.builders import round_spec

SPEC = round_spec({"fp16": 100.0, "bf16": None})
"""The peak and the bandwidth meet at 100 FLOP per byte."""


def mm(m: int, n: int, k: int, dtype: str = "fp16", layout: str = "nt") -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype=dtype, layout=layout)


def test_a_square_gemm_does_a_third_of_its_size_flops_per_byte() -> None:
    found = roofline(mm(3000, 3000, 3000), SPEC)
    assert found.intensity == pytest.approx(1000)  # 2 n^3 over 3 n^2 * 2 bytes
    assert (found.ridge, found.side) == (100.0, COMPUTE)
    assert found.compute_s == pytest.approx(54e9 / 1e14)
    assert found.memory_s == pytest.approx(54e6 / 1e12)
    assert found.least_s == found.compute_s


def test_one_token_is_memorys() -> None:
    found = roofline(mm(1, 1000, 1000), SPEC)
    assert found.intensity == pytest.approx(2e6 / (2 * (1e6 + 2000)))
    assert found.side == MEMORY
    assert found.least_s == pytest.approx(2 * (1e6 + 2000) / 1e12)


def test_without_a_peak_only_the_bytes_are_known() -> None:
    found = roofline(mm(64, 64, 64, "bf16"), SPEC)
    assert (found.ridge, found.compute_s, found.side) == (None, None, None)
    assert found.least_s == found.memory_s > 0


def test_the_h200_turns_at_206_flop_per_byte() -> None:
    assert roofline(mm(8, 8, 8), load()["h200"]).ridge == pytest.approx(989e12 / 4800e9)


def test_alignment_is_told_in_elements_and_bytes() -> None:
    m, n, k = alignments(mm(8192, 1376, 10922))
    assert (m.elements, m.bytes, m.rows_of) == (8192, 16384, ())
    assert (n.elements, n.bytes, n.rows_of) == (32, 64, ("C",))
    assert (k.elements, k.bytes, k.rows_of) == (2, 4, ("A", "B"))


@pytest.mark.parametrize(
    ("layout", "rows"),
    [
        ("nt", {"k": ("A", "B"), "n": ("C",)}),
        ("nn", {"k": ("A",), "n": ("B", "C")}),
        ("tn", {"m": ("A",), "n": ("B", "C")}),
    ],
)
def test_rows_run_along_what_the_layout_stores_last(layout: str, rows: dict[str, tuple[str, ...]]) -> None:
    found = {each.dimension: each.rows_of for each in alignments(mm(8, 8, 8, layout=layout))}
    assert found == {"m": (), "n": (), "k": (), **rows}


@pytest.mark.parametrize(
    ("gemm", "right"),
    [
        (mm(3, 8, 8), True),  # m is no row's length
        (mm(8, 12, 8), False),
        (mm(8, 8, 12), False),
        (mm(8, 4, 4, "fp32"), True),
        (mm(8, 6, 4, "fp32"), False),
        (mm(8, 8, 3, layout="tn"), True),
        (mm(4, 8, 8, layout="tn"), False),
    ],
)
def test_rows_of_whole_multiples_of_16_bytes_are_aligned(gemm: Gemm, right: bool) -> None:
    assert aligned(gemm) is right
