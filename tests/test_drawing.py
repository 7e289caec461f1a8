"""Tables within a width: what does not fit are whole columns, the last ones."""

import io

import pytest
from rich.console import Console

from orchestrator.drawing import table, write

COLUMNS = ("node", "MHz", "torch")
ROWS = [("a-node-of-a-very-long-name", "1234567890", "2.13.0+cu130"), ("b", "1", "-")]


def drawn(width: int, **options: object) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width)
    write(lambda console: console.print(table(COLUMNS, ROWS, console.width, **options)), console)  # type: ignore[arg-type]
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "columns"), [(52, 3), (51, 2), (38, 2)])
def test_the_last_columns_are_left_out(width: int, columns: int) -> None:
    # 26 + 2 + 10 + 2 + 12 columns
    lines = drawn(width, left=1)
    assert len(lines[0].split()) == columns
    assert [len(line.split()) for line in lines[2:]] == [columns] * 2
    assert all("1234567890" in line for line in lines if line.startswith("a-"))


def test_names_fold_and_numbers_never_do() -> None:
    lines = drawn(38, left=3, folding=("node",))  # 12 of the name
    assert "2.13.0+cu130" in lines[2]
    assert "1234567890" in lines[2]
    assert "".join(line[:12].strip() for line in lines[2:5]) == "a-node-of-a-very-long-name"
    assert max(map(len, lines)) <= 38


def test_cells_are_text_and_not_markup() -> None:
    out = io.StringIO()
    console = Console(file=out, width=80)
    write(lambda console: console.print(table(("a", "b"), [("[red]x[/red]", "[/]")], 80)), console)
    assert "[red]x[/red]  [/]" in out.getvalue()


def test_no_blanks_are_at_the_ends_of_lines_but_on_a_terminal() -> None:
    assert not [line for line in drawn(60, left=3) if line.endswith(" ")]
