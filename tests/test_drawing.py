"""Tables within a width: what does not fit are whole columns, the last ones."""

import io
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.console import Console, Group, RenderableType
from rich.text import Text

from orchestrator import drawing
from orchestrator.drawing import Line, table, write

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


# What is laid out here is what rich draws


def as_on(terminal: bool, width: int, what: RenderableType, encoding: str = "utf-8") -> bytes:
    out = io.BytesIO()
    file = io.TextIOWrapper(out, encoding, errors="replace")
    system = "standard" if terminal else None
    console = Console(file=file, width=width, height=25, force_terminal=terminal, color_system=system)  # type: ignore[arg-type]
    console.print(what)
    file.flush()
    return out.getvalue()


CELL = st.one_of(
    st.sampled_from(
        ["", "best", "±", "0.5%", "[red]", "a b", "日本", "e\u0301", "x…", "a\nb", "\t", "90°C", " x ", "\x1b[1m"]
    ),
    st.text("ab1 ", max_size=14),
)
TABLES = st.integers(1, 5).flatmap(
    lambda columns: st.lists(st.tuples(*[CELL] * columns), min_size=1, max_size=4).map(lambda rows: (rows[0], rows[1:]))
)


@settings(max_examples=60, deadline=None)
@given(
    cells=TABLES,
    width=st.sampled_from([10, 20, 40, 80]),
    left=st.integers(0, 5),
    folds=st.booleans(),
    leads=st.booleans(),
    terminal=st.booleans(),
    encoding=st.sampled_from(["utf-8", "ascii"]),
)
@example((COLUMNS, ROWS), 80, 1, False, True, True, "utf-8")
def test_a_table_is_the_one_that_rich_draws(
    cells: tuple[tuple[str, ...], list[tuple[str, ...]]],
    width: int,
    left: int,
    folds: bool,
    leads: bool,
    terminal: bool,
    encoding: str,
) -> None:
    columns, rows = cells
    made = table(columns, rows, width, left=left, folding=columns[:1] if folds else (), leads=leads)
    assert as_on(terminal, width, made, encoding) == as_on(terminal, width, made.by_rich(), encoding)


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize(
    "text", ["", "[b] mlp h=64", "two words that do not fit", "日本" * 8, "a\nb", "a-word-too-long-for-it"]
)
def test_a_line_is_the_one_that_rich_draws(text: str, terminal: bool) -> None:
    expected = as_on(terminal, 20, Text(text, style="bold cyan"))
    assert as_on(terminal, 20, Line(text, "bold cyan")) == expected
    assert ("\x1b[" in expected.decode()) == (terminal and bool(text))


def test_a_table_that_fits_is_not_left_to_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which would take ten times as long: most of the end of a large sweep."""
    monkeypatch.setattr(drawing, "Table", None)
    monkeypatch.setattr(drawing, "Text", None)
    found = as_on(True, 80, Group(Line("title", "bold"), table(COLUMNS, ROWS, math.inf, left=1)))  # type: ignore[arg-type]
    assert len(found.splitlines()) == 5
