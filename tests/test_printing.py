"""How wide the output is, and that colours stay on terminals that show them: each verb in a real terminal."""

import shutil
import sys

import pytest

from orchestrator.printing import width, wrapped
from tests.pty import ROOT, coloured, in_terminal, plain

HEADS = ROOT / "results" / "examples" / "h200-heads"
AGAIN = ROOT / "tests" / "data" / "h200-again"
VERBS = {
    "plan": ["conf=h200"],
    "rank": ["{copy}"],
    "status": [str(HEADS)],
    "check": ["model=gpt-3-2.7b", "gpu=h100"],
    "explain": [str(HEADS)],
    "compare": [f"{AGAIN}/first", f"{AGAIN}/second"],
}
COLOURFUL = {"rank", "check"}


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A copy of a committed run: ``rank`` writes into it."""
    return str(shutil.copytree(HEADS, tmp_path_factory.mktemp("runs") / "it"))


def shown(verb: str, columns: int, copy: str, **environment: str) -> str:
    words = [word.replace("{copy}", copy) for word in VERBS[verb]]
    _, drawn = in_terminal([sys.executable, "-m", "orchestrator", verb, *words], columns=columns, **environment)
    return drawn


def widest(drawn: str, *whole: str) -> int:
    """The widest line but those with a path or a command, which are in one piece, to be copied."""
    return max(len(line) for line in plain(drawn) if not any(part in line for part in (str(ROOT), "key: ", *whole)))


@pytest.mark.parametrize(("variable", "expected"), [("60", 60), ("7", 20), ("x", 80), (None, 80)])
def test_the_width_is_that_of_columns_else_80(
    monkeypatch: pytest.MonkeyPatch, variable: str | None, expected: int
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    if variable is not None:
        monkeypatch.setenv("COLUMNS", variable)
    monkeypatch.setattr("sys.__stdout__", None)
    assert width() == expected


def test_lines_break_between_words_alone() -> None:
    assert wrapped("mlp-h4096-tp1 0123456789 a", 12, "at ") == ["at mlp-h4096-tp1", "   0123456789", "   a"]


@pytest.mark.parametrize("verb", VERBS)
def test_what_a_verb_prints_fits_a_narrow_terminal(verb: str, copy: str) -> None:
    drawn = shown(verb, 60, copy)
    assert len(plain(drawn)) > 5
    assert widest(drawn, copy) <= 60
    assert coloured(drawn) == (verb in COLOURFUL)


@pytest.mark.parametrize("verb", sorted(COLOURFUL))
@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_no_colour_where_it_is_not_wanted_or_not_known(verb: str, environment: dict[str, str], copy: str) -> None:
    drawn = shown(verb, 60, copy, **environment)
    assert not coloured(drawn)
    assert widest(drawn, copy) <= 60
