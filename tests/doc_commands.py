"""The commands that README and docs show, and what stands for their placeholders where a test runs them."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "results" / "examples" / "README.md")

DATA = "tests/data/llama-3-70b"
STAND_INS = {
    "RUN": "examples/h200-seed-and-mlp",
    "a100-run": "tests/data/aiconfigurator/systems/data/a100_sxm",
    "h100-run": "tests/data/aiconfigurator/systems/data/h100_sxm",
    "h200-run": "tests/data/aiconfigurator/systems/data/h200_sxm",
    "path/to/systems/data/h100_sxm": f"{DATA}/h100_sxm",
    "before": "tests/data/h200-again/first",
    "after": "tests/data/h200-again/second",
    "path/to/h100_sxm": f"{DATA}/h100_sxm",
    "path/to/h200_sxm": f"{DATA}/h200_sxm",
    "run-a": f"{DATA}/h100_sxm",
    "run-b": f"{DATA}/h200_sxm",
    "path/to/config.json": "config.json",
    "…": "examples/h200-fp8",
}
"""By word, or by one of the values of a word's list: what docs name and only a reader has."""

_BLOCK = re.compile(r"^(?: {4,}|\t)(?:\$ )?((?:python|gemm-orchestrator|make)\b.*(?:(?<=\\)\n.*)*)", re.MULTILINE)
_INLINE = re.compile(r"`((?:python -m|make) [^`]+)`")


def commands(page: Path) -> list[str]:
    """Every command line of a page that is Python's or make's, without comments, each once."""
    text = page.read_text("utf-8")
    found = [*_BLOCK.findall(text), *_INLINE.findall(text)]
    return list(dict.fromkeys(shlex.join(shlex.split(_joined(each), comments=True)) for each in found))


def orchestrator_words(command: str) -> list[str] | None:
    """What a command gives the orchestrator, placeholders filled in; None where it is another program's."""
    words = shlex.split(command)
    if words[:3] == ["python", "-m", "orchestrator"]:
        words = words[3:]
    elif words[:1] == ["gemm-orchestrator"]:
        words = words[1:]
    else:
        return None
    return [filled(word) for word in words]


def filled(word: str) -> str:
    """A word with its placeholders replaced."""
    key, equals, value = word.partition("=")
    if equals:
        return f"{key}={','.join(STAND_INS.get(each, each) for each in value.split(','))}"
    return STAND_INS.get(word, word)


def links(page: Path) -> Iterator[tuple[str, str]]:
    """Path and anchor of every link of a page that leads into the repository."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
        if not re.match(r"[a-z]+:", target):
            path, _, anchor = target.partition("#")
            yield path, anchor


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def _joined(text: str) -> str:
    return re.sub(r"\s*\\?\n\s*", " ", text)
