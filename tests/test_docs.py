"""README and docs: every command works as it is shown, links resolve, generated tables are fresh."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks import references
from benchmarks.column_texts import PARTS, RANKING, SHARD
from orchestrator import cli
from orchestrator.columns import PART_TYPE, RANKING_SCHEMA, SHARD_SCHEMA
from orchestrator.config import keys
from orchestrator.layer_arguments import parse as layer_words
from orchestrator.verbs import VERBS
from tasks.settings import PROTOCOL_VERSION
from tests.doc_commands import DATA, PAGES, ROOT, STAND_INS, anchors, commands, filled, links, orchestrator_words
from tests.reports import LAYER

COMMANDS = {words: page for page in PAGES for words in commands(page)}
ELSEWHERE = re.compile(r"s3://|REGISTRY|SYSTEMS/|systems/|/NAME|my-sweep\.yaml")
"""What only a reader has: a store, another tool's files."""
OWN = [command for command in COMMANDS if orchestrator_words(command) is not None and not ELSEWHERE.search(command)]
MAY_FAIL = {"check": (0, 1)}
"""Exit codes beside 0: a rule that is not met is an answer."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader of the docs has it after some work: the examples, the latest run, a config.json."""
    place = tmp_path_factory.mktemp("reader")
    examples = place / "results" / "examples"
    shutil.copytree(ROOT / "results" / "examples", examples)
    shutil.copytree(examples / "h200-fp8", place / "results" / "h200-latest")
    for path in (place / "results" / "h200-latest" / "shards").rglob("*.parquet"):
        measured_by_this_version(path)
    (place / "tests").mkdir()
    for name in (DATA, "tests/data/aiconfigurator", "tests/data/h200-again"):
        shutil.copytree(ROOT / name, place / name)
    shutil.copy(next((ROOT / "tests" / "data" / "configs").glob("*lama*.json")), place / "config.json")
    (place / "layer.json").write_text(json.dumps(LAYER), "utf-8")
    return place


def measured_by_this_version(path: Path) -> None:
    """A run goes on by the way of timing that it was begun with."""
    shard = pq.ParquetFile(path).read()
    at = shard.schema.get_field_index("protocol_version")
    current = [PROTOCOL_VERSION.get(name) for name in shard["protocol"].to_pylist()]
    pq.write_table(shard.set_column(at, shard.schema.field(at), pa.array(current, shard.schema.field(at).type)), path)


def shown(words: list[str]) -> list[str]:
    """The command as a machine without a GPU can run it: a sweep is planned, what needs devices is read and told."""
    verb = words[0] if words and words[0] in VERBS else "run"
    if words == ["--help"]:
        return words
    if verb == "run" and not any(word.startswith("resume=") for word in words):
        return [*([] if "--cfg" in words else ["plan"]), *(word for word in words if word not in ("run", "--keep"))]
    if verb == "doctor":
        return [*(word for word in words if word != "--json"), "--cfg"]
    if verb == "export":
        return [*words, "--out", "exported", "--force"]
    return words


@pytest.mark.parametrize("command", OWN)
def test_every_command_of_the_docs_works(
    command: str, reader: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(reader)
    words = orchestrator_words(command)
    assert words is not None
    verb = words[0] if words else "run"
    if verb == "layer":
        assert layer_words([word for word in words[1:] if not word.startswith("-")]).cases
        return
    code = cli.main(shown(words))
    printed = capsys.readouterr()
    assert code in MAY_FAIL.get(verb, (0,)), printed.err
    assert printed.out


@pytest.mark.parametrize("command", [each for each in COMMANDS if ELSEWHERE.search(each)])
def test_commands_on_what_only_a_reader_has_are_of_verbs_and_keys_that_exist(command: str) -> None:
    words = orchestrator_words(command)
    if words is None:
        return
    known = {name for name, *_ in keys()} | {"conf", "model", "resume", "dtype", "h", "a", "kv", "v"}
    for word in words:
        if "=" in word and not word.startswith("-"):
            assert word.partition("=")[0] in known, word
        elif not word.startswith(("-", "s3:", "~")) and word == words[0]:
            assert word in VERBS, word


@pytest.mark.parametrize("command", [each for each in COMMANDS if orchestrator_words(each) is None])
def test_other_commands_are_of_modules_and_targets_that_exist(command: str) -> None:
    program, *words = command.split()
    if program == "make":
        assert re.search(rf"^{re.escape(words[0])}:", (ROOT / "Makefile").read_text(), re.MULTILINE), command
    elif words[:1] == ["-m"]:
        assert importlib.util.find_spec(words[1]) is not None, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_resolve(page: Path) -> None:
    for path, anchor in links(page):
        target = page.parent / path if path else page
        assert target.exists(), f"{page.name}: {path}"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {path}#{anchor}"


@pytest.mark.parametrize("name", references.PAGES)
def test_generated_tables_are_what_the_code_says_now(name: str) -> None:
    page = (references.DOCS / name).read_text("utf-8")
    assert references.updated(page) == page, "make docs"


def test_every_table_has_its_place() -> None:
    text = "".join((references.DOCS / name).read_text("utf-8") for name in references.PAGES)
    assert sorted(re.findall(r"<!-- table ([a-z-]+): begin -->", text)) == sorted(references.TABLES)


def test_every_column_has_a_text_and_every_text_a_column() -> None:
    assert SHARD.keys() == set(SHARD_SCHEMA.names)
    assert RANKING.keys() | SHARD.keys() >= set(RANKING_SCHEMA.names)
    assert RANKING.keys() <= set(RANKING_SCHEMA.names)
    assert PARTS.keys() <= {field.name for field in PART_TYPE} <= PARTS.keys() | SHARD.keys()


def test_every_key_and_verb_is_in_the_docs() -> None:
    configuration = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    assert [name for name, *_ in keys() if f"`{name}`" not in configuration] == []
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [verb for verb in VERBS if not re.search(rf"^\| `{verb}\b", readme, re.MULTILINE)] == []


def test_every_page_is_reached_from_the_readme() -> None:
    linked = {(ROOT / path).resolve() for path, _ in links(ROOT / "README.md")}
    for page in list(linked):
        if page.suffix == ".md":
            linked |= {(page.parent / path).resolve() for path, _ in links(page) if path}
    assert [page.name for page in (ROOT / "docs").glob("*.md") if page not in linked] == []


def test_stand_ins_are_used_and_fill_lists() -> None:
    text = "".join(page.read_text("utf-8") for page in PAGES)
    assert [word for word in STAND_INS if word not in text] == []
    assert filled("results=run-a,run-b") == f"results={DATA}/h100_sxm,{DATA}/h200_sxm"
    assert filled("space.tp=1,2") == "space.tp=1,2"
