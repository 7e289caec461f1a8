"""The table of docs/check.md."""

from benchmarks.check_table import BEGIN, END, PAGE, rows, updated
from orchestrator.check import RULES
from tests.shapes import LLAMA_2_7B


def test_a_model_has_a_row_for_each_tp() -> None:
    found = list(rows(LLAMA_2_7B))
    assert len(found) == 5
    assert found[0] == "| llama-2-7b | 1 | 10 | 0 | 0 |  |  |"
    assert found[3] == "| llama-2-7b | 8 | 7 | 3 | 0 |  | vocabulary 4000, swiglu 11008, d_ff 1376 |"


def test_the_committed_table_is_what_check_says_now() -> None:
    page = PAGE.read_text("utf-8")
    assert updated(page) == page, "python -m benchmarks.check_table"


def test_the_page_names_every_rule_and_has_the_place_of_the_table() -> None:
    page = PAGE.read_text("utf-8")
    assert page.count(BEGIN) == page.count(END) == 1
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
