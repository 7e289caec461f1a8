"""The verb ``check``: its report, JSON, exit codes, and what a user's mistake looks like."""

import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
from rich.console import Console

from orchestrator import catalogue, cli
from orchestrator.check import RULES, check
from orchestrator.check_arguments import KEYS
from orchestrator.check_case import Case
from orchestrator.check_finding import STATUSES
from orchestrator.check_report import show
from orchestrator.store import RunStore
from tests.builders import mlp_family, up_family
from tests.shapes import GPT_3_2_7B, LLAMA_2_7B, MIXTRAL, on
from tests.test_compare import run

ROOT = Path(cli.__file__).parents[1]
LLAMA = "h=4096 a=32 layers=32 d_ff=11008 v=32000"
EXAMPLE = "results=examples/h200-seed-and-mlp"


def call(capsys: pytest.CaptureFixture[str], line: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command; argparse leaves by SystemExit."""
    try:
        code = cli.main(["check", *line.split()])
    except SystemExit as exit:
        code = int(exit.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_exit_0_when_nothing_fails_though_something_warns(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, f"{LLAMA} tp=8 b=4 s=4096 gpu=a100-sxm-80")
    assert (code, err) == (0, "")
    assert "1376" in out
    assert " warn" in out
    assert "d_ff 11264: +100,663,296 parameters (+1.49%)" in out
    assert out.splitlines()[-1] == "7 pass, 5 warn"


def test_exit_1_when_a_rule_fails(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, f"{LLAMA} tp=3")
    assert code == 1
    assert "tp=3 does not divide d_ff=11008" in " ".join(out.split())


def test_llama_2_7b_by_name_is_told_about_1376(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "model=llama-2-7b tp=8 b=4 s=4096 gpu=a100-sxm-80")
    assert (code, err) == (0, "")
    assert "d_ff/tp = 1376" in " ".join(out.split())


def test_a_size_beside_a_model_replaces_the_models(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "model=llama-2-7b d_ff=11264 a=64 tp=8 --json")
    model = json.loads(out)["model"]
    assert (model["d_ff"], model["a"], model["kv"], model["head_dim"], model["h"]) == (11264, 64, 64, 64, 4096)


def test_measured_gains_are_in_the_report(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    code, out, err = call(capsys, f"{LLAMA} d_ff=10944 tp=8 s=2048 gpu=h200 {EXAMPLE}")
    assert (code, err) == (0, "")
    text = " ".join(out.split())
    assert "d_ff 10944 at tp 8: measured rank 2 of 25 on NVIDIA H200, 1.0% behind the best" in text
    assert "d_ff 11008: +25,165,824 parameters (+0.37%); measured, it gains 1.0% (0.7 to 1.3)" in text
    assert "what d_ff gains is per FLOP, measured as mlp batch=4 seq=2048 fp16 on NVIDIA H200" in text


def test_a_corrupt_shard_is_named_and_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path / "it", up_family([64, 96]), mlp_family([64, 96]), cost=lambda gemm, _: gemm.flops / 1e12)
    assert call(capsys, f"{LLAMA} results={path}")[0] == 0
    RunStore.open(path).shard_paths()[0].write_bytes(b"PAR1")
    code, out, _ = call(capsys, f"{LLAMA} results={path}")
    assert code == 1
    assert "is corrupt and was left out" in " ".join(out.split())
    assert call(capsys, f"{LLAMA} results={path} --json")[0] == 1


SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ok", "model", "tp", "b", "s", "gpu", "mode", "dtype", "counts", "findings", "notes"],
    "properties": {
        "ok": {"type": "boolean"},
        "model": {
            "type": "object",
            "required": ["name", "h", "layers", "a", "kv", "head_dim", "d_ff", "v", "parameters"],
        },
        **{key: {"type": "integer", "minimum": 1} for key in ("tp", "b", "s")},
        "gpu": {"enum": [None, *catalogue.load()]},
        "mode": {"enum": ["training", "inference"]},
        "dtype": {"type": "string"},
        "counts": {
            "type": "object",
            "additionalProperties": False,
            "required": list(STATUSES),
            "properties": {status: {"type": "integer", "minimum": 0} for status in STATUSES},
        },
        "notes": {"type": "array", "items": {"type": "string"}},
        "findings": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["rule", "number", "title", "status", "value", "reason", "suggestions"],
                "properties": {
                    "rule": {"enum": [rule.name for rule in RULES]},
                    "number": {"enum": ["1", "2", "3", "4", "5", "6", "+"]},
                    "title": {"type": "string"},
                    "status": {"enum": list(STATUSES)},
                    "value": {"type": ["number", "null"]},
                    "reason": {"type": "string", "minLength": 1},
                    "suggestions": {
                        "type": "array",
                        "items": {
                            "type": "object",
                            "additionalProperties": False,
                            "required": ["dimension", "value", "parameters", "percent", "gain"],
                            "properties": {
                                "dimension": {"enum": [key for key in KEYS if key not in ("model", "results")]},
                                "value": {"type": "integer", "minimum": 1},
                                "parameters": {"type": "integer"},
                                "percent": {"type": "number"},
                                "gain": {
                                    "type": ["object", "null"],
                                    "additionalProperties": False,
                                    "required": ["percent", "low", "high"],
                                    "properties": {
                                        "percent": {"type": "number"},
                                        "low": {"type": ["number", "null"]},
                                        "high": {"type": ["number", "null"]},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}


@pytest.mark.parametrize(
    ("line", "ok"),
    [
        (f"{LLAMA} tp=8 gpu=a100-sxm-80", True),
        (f"{LLAMA} tp=8 d_ff=10944 s=2048 {EXAMPLE}", True),
        ("h=2560 a=32 layers=32 d_ff=10240 v=50257 mlp=gelu tp=3 dtype=bf16 mode=inference gpu=v100", False),
        ("h=4096 a=32 kv=8 layers=32 experts=8 topk=2 expert_d_ff=14336 v=32000 tp=4", True),
    ],
)
def test_the_json_has_its_schema(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str, ok: bool
) -> None:
    monkeypatch.chdir(ROOT)
    code, out, err = call(capsys, f"{line} --json")
    document = json.loads(out)
    jsonschema.validate(document, SCHEMA)
    assert (code, err, document["ok"]) == (0 if ok else 1, "", ok)
    assert sum(document["counts"].values()) == len(document["findings"])


def test_a_suggestion_given_as_an_argument_passes(capsys: pytest.CaptureFixture[str]) -> None:
    line = "h=2560 a=32 layers=32 d_ff=10240 v=50257 mlp=gelu tp=8"
    before = json.loads(call(capsys, f"{line} --json")[1])["findings"]
    offered = [(finding, suggestion) for finding in before for suggestion in finding["suggestions"]]
    assert {suggestion["dimension"] for _, suggestion in offered} >= {"v", "a"}
    for finding, suggestion in offered:
        _, out, _ = call(capsys, f"{line} {suggestion['dimension']}={suggestion['value']} --json")
        after = {other["rule"]: other["status"] for other in json.loads(out)["findings"]}
        assert after[finding["rule"]] == "pass"


WRONG = [
    ("", ["arguments: give model=, such as model=llama-3-8b, or also h=, a=, layers=, v=, d_ff="]),
    ("h=4096 a=32", ["arguments: give model=, such as model=llama-3-8b, or also layers=, v=, d_ff="]),
    ("h=4096 a=32 layers=2 v=64 experts=8 topk=2", [", or also expert_d_ff="]),
    (f"{LLAMA} tpp=8", ["argument 'tpp=8': unknown key 'tpp'; did you mean tp", "there are: model, h, a, kv"]),
    (f"{LLAMA} tp=0", ["argument 'tp=0': tp: 0 is too small; it must be >= 1"]),
    (f"{LLAMA} s={'9' * 5000}", ["s: '9999"]),
    (f"{LLAMA} llama-2-7b", ["argument 'llama-2-7b': is not of the form key=value", "model=llama-2-7b"]),
    (f"{LLAMA} gpu=a10", ["argument 'gpu=a10': gpu: unknown GPU 'a10'; did you mean a100"]),
    (f"{LLAMA} mode=train", ["mode: unknown mode 'train'; did you mean training"]),
    (f"{LLAMA} dtype=fp61", ["dtype: unknown dtype 'fp61'; did you mean fp16"]),
    (f"{LLAMA} tp=8 results=no-such --dir {{here}}", ["no run 'no-such'"]),
    (f"{LLAMA} --jsn", ["unrecognized arguments: --jsn"]),
    (
        "h=x a=32 tp=0 nope gpu=h10 zz=1",
        [
            "argument 'h=x': h: 'x' is not a whole number",
            "argument 'tp=0': tp: 0 is too small",
            "argument 'nope': is not of the form key=value",
            "argument 'gpu=h10': gpu: unknown GPU 'h10'",
            "argument 'zz=1': unknown key 'zz'",
            "arguments: give model=, such as model=llama-3-8b, or also layers=, v=, d_ff=",
        ],
    ),
]


@pytest.mark.parametrize(("line", "fragments"), WRONG, ids=[line[:60] or "nothing" for line, _ in WRONG])
def test_a_wrong_input_is_explained_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, fragments: list[str]
) -> None:
    code, out, err = call(capsys, line.replace("{here}", str(tmp_path)))
    assert (code, out) == (2, "")
    assert [fragment for fragment in fragments if fragment not in err] == []
    assert "Traceback" not in err


def test_a_model_that_there_is_not_is_reported_with_the_other_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "model=lama-2-7b tp=x")
    assert code == 2
    assert "argument 'model=lama-2-7b'" in err
    assert "llama-2-7b" in err
    assert "argument 'tp=x'" in err


def test_a_family_of_gpus_is_the_one_that_its_sweep_is_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, f"{LLAMA} gpu=v100")
    assert "v100-sxm2-32 (32 GB)" in out
    assert "gpu=v100 is taken as v100-sxm2-32; name another by its key: v100-sxm2-16" in out.splitlines()
    assert json.loads(call(capsys, f"{LLAMA} gpu=v100 --json")[1])["gpu"] == "v100-sxm2-32"
    assert "is taken as" not in call(capsys, f"{LLAMA} gpu=v100-sxm2-16")[1]


def test_no_line_ends_in_blanks_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    lines = call(capsys, f"{LLAMA} tp=8")[1].splitlines()
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize("gpu", [None, "a100-sxm-80", "l4"])
def test_the_report_fits_80_columns(gpu: str | None) -> None:
    for model in (LLAMA_2_7B, GPT_3_2_7B, MIXTRAL):
        case = Case(model=model, tp=6, b=3, s=4096)
        case = on(case, gpu) if gpu else case
        console = Console(file=io.StringIO(), width=80)
        show(case, check(case), (), console)
        assert isinstance(console.file, io.StringIO)
        lines = console.file.getvalue().splitlines()
        assert max(map(len, lines)) <= 80
        told = " ".join(" ".join(lines).split())
        assert all(finding.reason in told for finding in check(case) if " ... " not in finding.reason)


def test_it_loads_neither_ray_nor_torch_nor_pyarrow() -> None:
    code = (
        "import sys; from orchestrator.cli import main; "
        f"main('check {LLAMA} tp=8 gpu=h200'.split()); "
        "print([name for name in ('ray', 'torch', 'pyarrow', 'numpy', 'omegaconf') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_help_lists_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--help")
    assert code == 0
    unwrapped = re.sub(r"\n {4,}", " ", out)
    for key, what in KEYS.items():
        assert re.search(rf"^  {key}[ /].*{re.escape(what.help)}$", unwrapped, re.MULTILINE)


def test_the_largest_numbers_are_answered(capsys: pytest.CaptureFixture[str]) -> None:
    most = 2**31 - 1
    sizes = " ".join(f"{key}={most}" for key in ("h", "a", "d_ff", "v", "b", "s"))
    code, out, _ = call(capsys, f"{sizes} layers=10000 tp=7 gpu=b200")
    assert code == 1
    assert "fail" in out
