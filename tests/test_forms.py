"""JSON and CSV of every verb that prints a table: one strict document, or one table of the same values."""

import csv
import io
import json
import math
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cli
from orchestrator.columns import RANKING_SCHEMA
from orchestrator.forms import CsvTable, cell, write_csv, write_json
from orchestrator.model import Model
from orchestrator.store import RunStore, shard_table
from orchestrator.verbs import VERBS
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, mlp_family, per_flop
from tests.inspected import facts, gpu, healthy, report
from tests.test_layer_verb import SKIPPED, result

ROOT = Path(cli.__file__).parents[1]
EXAMPLES = ROOT / "results" / "examples"
AGAIN = ROOT / "tests" / "data" / "h200-again"
LLAMA = "model=llama-3-70b tp=8 s=2048 mode=prefill"
TABLES = ",".join(str(ROOT / f"tests/data/llama-3-70b/{gpu}_sxm/gemm_perf.parquet") for gpu in ("h100", "h200"))
Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A command, the names in its document, and what of it are the rows of its CSV."""

    line: str
    names: str
    rows: Callable[[Document], list[Document]]
    code: int = 0


def groups(found: Document) -> list[Document]:
    return [
        {**group, **figures, "side": side["name"], "gpu": side["gpu"]}
        for group in found["groups"]
        for side, figures in zip(found["sides"], group["figures"], strict=True)
    ]


def gemms(found: Document) -> list[Document]:
    return [
        {**gemm, **{name: side[name] for name in ("gpu", "imported")}, "side": side["name"], "block": block["name"]}
        | {"times": block["times"]}
        for side in found["sides"]
        for block in side["blocks"]
        for gemm in block["gemms"]
    ]


def components(found: Document) -> list[Document]:
    return [
        {**layer, **component, "model": layer["model"]["name"], "h": layer["model"]["h"], "variant": variant["name"]}
        | {"gpu": found["device"]["gpu"]}
        for layer in found["layers"]
        for variant in layer["variants"]
        for component in variant["components"]
    ]


def ranked(found: Document) -> list[Document]:
    return [{**row, "part": {part["part"]: part for part in row["parts"]}} for row in found["rows"]]


RANKING = "run path state counts rows fleets notes problems"
CASES = {
    "plan": Case(
        line="plan conf=h200 space.around=h space.a=32 space.roles=qkv,attn_score space.h=2048,2304 space.tp=1,3",
        names="conf overrides points bundles gemms flops skipped skips memory timing cost families notes",
        rows=lambda found: list(found["families"]),
    ),
    "rank": Case(line="rank {attn}", names=RANKING, rows=ranked),
    "run": Case(line="run resume={attn} resume_anyway=true", names=RANKING, rows=ranked),
    "status": Case(
        line="status {attn}",
        names="run path conf overrides state started_utc ended_utc bundles devices seconds counts gemms problems",
        rows=lambda found: list(found["gemms"]),
    ),
    "check": Case(
        line="check model=gpt-3-2.7b gpu=h100",
        names="ok model tp b s gpu mode dtype counts findings notes",
        rows=lambda found: list(found["findings"]),
        code=1,
    ),
    "explain": Case(line="explain {attn}", names="gemms fits", rows=lambda found: list(found["gemms"])),
    "explain a Gemm": Case(
        line="explain m=8192 n=4096 k=11008 gpu=h200", names="gemms fits", rows=lambda found: list(found["gemms"])
    ),
    "compare": Case(
        line=f"compare {AGAIN}/first {AGAIN}/second",
        names="sides common_shapes groups environment portable gate",
        rows=groups,
    ),
    "capacity": Case(
        line=f"capacity {LLAMA} results={TABLES}",
        names="model tp pp dp b s mode dtype gpus tokens_per_step target excluded left_out sides",
        rows=gemms,
    ),
    "layer": Case(line="layer model=llama-2-7b", names="device layers", rows=components, code=1),
    "doctor": Case(
        line="doctor",
        names="ok conf overrides gpu findings results kept nodes",
        rows=lambda found: found["findings"],
        code=1,
    ),
}


@contextmanager
def alone(*arguments: object) -> Iterator[bool]:
    yield True


@pytest.fixture(autouse=True)
def devices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a GPU nor Ray: a layer that was timed, and a cluster that was inspected, are hand-made."""
    model = Model(name="=made-up", h=4096, layers=2, a=32, kv=8, head_dim=128, d_ff=11008, v=1)
    monkeypatch.setattr("orchestrator.verbs.layer._measured", lambda asked: [result(model, SKIPPED)])
    hot = facts((gpu(temperature_c=95, name="@SUM(1)"),))
    fleet = replace(healthy(), reports=(report("-one", hot, here=True), report("two", None, error='no "answer", yet')))
    monkeypatch.setattr("orchestrator.cluster.connect", alone)
    monkeypatch.setattr("orchestrator.inspect_cluster.inspect_fleet", lambda config, own_ray: fleet)


@pytest.fixture(scope="module")
def attn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a committed run: ``rank`` writes into it."""
    return Path(shutil.copytree(EXAMPLES / "h200-gpt-3-2.7b", tmp_path_factory.mktemp("runs") / "it"))


@pytest.fixture
def printed(attn: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(line: str, *options: str) -> tuple[int, str, str]:
        code = cli.main([*line.replace("{attn}", str(attn)).split(), *options])
        return code, *capsys.readouterr()

    return call


def strict(text: str) -> Any:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    return json.loads(text, parse_constant=refuse)


def read(text: str) -> list[dict[str, str]]:
    header, *rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    assert {len(row) for row in rows} <= {len(header)}
    assert len(set(header)) == len(header)
    return [dict(zip(header, row, strict=True)) for row in rows]


def at(row: Document, column: str) -> Any:
    value: Any = row
    for name in column.split("."):
        value = None if value is None else value.get(name)
    return value


def test_every_verb_that_prints_a_table_has_a_case() -> None:
    without = {"report", "export", "upload", "compact", "release"}
    assert {case.line.split()[0] for case in CASES.values()} | without >= set(VERBS)


@pytest.mark.parametrize("name", CASES)
def test_json_and_csv_say_the_same_and_the_exit_code_is_that_of_the_tables(
    name: str, printed: Callable[..., tuple[int, str, str]]
) -> None:
    case = CASES[name]
    assert printed(case.line)[0] == case.code
    code, text, _ = printed(case.line, "--json")
    found = strict(text)
    assert (code, list(found)) == (case.code, case.names.split())
    code, text, _ = printed(case.line, "--csv")
    rows, expected = read(text), case.rows(found)
    assert (code, len(rows)) == (case.code, len(expected))
    assert rows
    for row, values in zip(rows, expected, strict=True):
        for column, field in row.items():
            value = at(values, column)
            if isinstance(value, str):
                assert field == (f"'{value}" if value[:1] in tuple("=+-@") and value[1:] else value), column
            elif value is None:
                assert field == "", column
            else:
                assert strict(field) == value, column  # no digit is lost


@pytest.mark.parametrize("name", CASES)
def test_one_form_at_a_time(name: str, printed: Callable[..., tuple[int, str, str]]) -> None:
    with pytest.raises(SystemExit, match="2"):
        printed(CASES[name].line, "--json", "--csv")


def test_the_configuration_is_a_form_of_its_own() -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["plan", "--cfg", "--json"])


def test_a_rankings_csv_has_every_column_and_the_rate_of_each_part(
    printed: Callable[..., tuple[int, str, str]], attn: Path
) -> None:
    _, text, err = printed("rank {attn}", "--csv")
    header = text.splitlines()[0].split(",")
    assert header[: len(RANKING_SCHEMA.names)] == RANKING_SCHEMA.names
    assert header[len(RANKING_SCHEMA.names) :] == [
        f"part.{name}.tflops" for name in ("score", "over_value", "qkv", "out")
    ]
    assert err.splitlines()[-1] == f"next: python -m orchestrator report {attn}"


def test_an_export_tells_what_it_wrote(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["export", str(EXAMPLES / "h200-heads"), "--to", "csv", "--out", str(tmp_path / "out"), "--json"]
    assert cli.main(words) == 0
    found = strict(capsys.readouterr().out)
    assert list(found) == ["target", "run", "gpu", "directory", "files", "gemms", "left_out", "notes"]
    assert (found["target"], found["files"], found["gemms"]) == ("csv", ["gemms.csv"], 30)
    assert (Path(found["directory"]) / "gemms.csv").read_text().count("\n") == 31


@pytest.mark.parametrize("verb", ["rank", "status"])
def test_a_run_without_rows_is_a_header_and_an_empty_list(
    verb: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    RunStore.create(tmp_path, "it", {})
    cli.main([verb, str(tmp_path / "it"), "--csv"])
    (header,) = capsys.readouterr().out.splitlines()
    assert header.startswith("gpu,family_id" if verb == "rank" else "gemm_id,bundle_id")
    cli.main([verb, str(tmp_path / "it"), "--json"])
    assert strict(capsys.readouterr().out)["rows" if verb == "rank" else "gemms"] == []


def test_text_from_devices_and_failures_is_no_formula(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    store, family = RunStore.create(tmp_path, "it", {}), mlp_family([128, 256])
    hostile = '=HYPERLINK("http://x","a")\r\nnext, line'
    failed = {family.candidates[0].parts[0].gemm.gemm_id: ("oom", hostile)}
    device = replace(DEVICE, gpu="@GPU|1", host="-host")
    measured = measurement(family, per_flop({}), status=failed, device=device)
    bundle = as_bundle(family)
    store.write_shard(shard_table(bundle, measured, Timing(), attempt=0, code_version="1", plan_hash="a"))
    assert cli.main(["status", str(store.path), "--csv"]) == 1
    rows = read(capsys.readouterr().out)
    assert {row["gpu"] for row in rows} == {"'@GPU|1"}
    assert {row["host"] for row in rows} == {"'-host"}
    assert {row["message"] for row in rows} == {"", '\'=HYPERLINK("http://x","a")\nnext, line'}
    cli.main(["status", str(store.path), "--json"])
    assert hostile in {row["message"] for row in strict(capsys.readouterr().out)["gemms"]}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-1.5, "-1.5"),
        (1e-7 / 3, "3.3333333333333334e-08"),
        (1_234_567, "1234567"),
        (None, ""),
        (False, "false"),
        (math.nan, ""),
        (-math.inf, ""),
        ("+", "+"),
        ("-1.5", "'-1.5"),
        ("+cmd", "'+cmd"),
        ("\t=1", "'\t=1"),
        ("＝1", "'＝1"),
        ("a=1", "a=1"),
        (datetime(2026, 11, 30, 1, 2, 3, tzinfo=UTC), "2026-11-30T01:02:03+00:00"),
        (("=a", math.inf), '["=a", null]'),
        ({"µ": 1}, '{"µ": 1}'),
    ],
)
def test_a_cell(value: object, text: str) -> None:
    assert cell(value) == text


def test_quoting_is_that_of_rfc_4180() -> None:
    out = io.StringIO()
    table = CsvTable(columns=("a", "b.c"), rows=[{"a": 'x"y', "b": {"c": "1,2"}}, {"a": "two\nlines", "b": None}])
    write_csv(table, out)
    assert out.getvalue() == 'a,b.c\n"x""y","1,2"\n"two\nlines",\n'


def test_a_large_document_is_not_one_text_in_memory() -> None:
    written: list[str] = []

    class Out(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    rows = [{"value": value} for value in range(10_000)]
    write_json({"rows": rows}, Out())
    assert json.loads("".join(written)) == {"rows": rows}
    assert "".join(written) == json.dumps({"rows": rows}, indent=2) + "\n"
    assert max(map(len, written)) < len("".join(written)) / 3


def test_json_has_null_for_what_is_no_number() -> None:
    out = io.StringIO()
    write_json({"a": [math.nan, 1.0, (math.inf,)]}, out)
    assert strict(out.getvalue()) == {"a": [None, 1.0, [None]]}


@pytest.mark.parametrize(
    "words", [["plan", "conf=h100", "--csv"], ["check", "model=llama-2-7b", "--json"], ["status", "{run}", "--csv"]]
)
def test_a_full_disk_is_told_by_the_exit_code(words: list[str]) -> None:
    command = [word.replace("{run}", str(EXAMPLES / "h200-heads")) for word in words]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "orchestrator", *command],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "cannot write the output: No space left on device\n")
