"""Data inside a page."""

import math

from orchestrator.report.payload import columns, packed, packed_text, unpacked
from tests.builders import parts_at, ranking_of


def test_what_is_packed_comes_back() -> None:
    value = {"a": [1, 2.5, None, True], "b": "</script>\u2028é"}
    assert unpacked(packed(value)) == value


def test_figures_have_nine_digits_and_what_is_not_finite_is_null() -> None:
    assert unpacked(packed([1 / 3, 123456789.123, math.nan, math.inf])) == [0.333333333, 123456789.0, None, None]


def test_packed_text_has_letters_of_base64_only() -> None:
    text = packed_text("<script>" * 100)
    assert text.replace("+", "").replace("/", "").replace("=", "").isalnum()
    assert text == packed_text("<script>" * 100)
    packed_text("\ud800")  # half of a letter, as JSON may have it


def test_a_ranking_is_packed_by_column_and_one_value_once() -> None:
    found = columns(ranking_of({"parts": parts_at(1.0, 2.0)}, {"d_ff": 64}))
    assert found["gpu"] == {"all": "NVIDIA H200", "count": 2}
    assert found["d_ff"] == [21845, 64]
    assert [[part["tflops"] for part in parts] for parts in found["parts"]] == [[1.0, 2.0], []]
    assert columns(ranking_of())["gpu"] == []
