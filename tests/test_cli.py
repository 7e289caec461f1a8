"""The command line: help, verbs, exit codes, and what a user's mistake looks like."""

import errno
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from orchestrator import __version__, cli
from orchestrator.config import compose, conf_names, keys, to_dict
from orchestrator.store import RunStore, shard_table
from orchestrator.verbs import VERBS
from tasks.settings import Timing
from tests.builders import as_bundle, measurement, mlp_family, per_flop
from tests.commands import called as call

ROOT = Path(cli.__file__).parents[1]


def command(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_home_directory_is_found_where_a_shell_leaves_it_to_us(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.yaml").write_text("space: {h: 64}\n")
    RunStore.create(tmp_path / "runs", "it", {})
    assert call(capsys, "plan", "conf=~/mine.yaml")[0] == 0
    assert call(capsys, "status", "it", "--dir=~/runs")[0] == 0
    assert cli.at_home("results=~/a,~/b") == f"results={tmp_path}/a,{tmp_path}/b"
    kept = ["space.kv=~", "model=a~/b", "~/a", "s3://b/~/a"]
    assert [cli.at_home(word) for word in kept] == kept


@pytest.mark.parametrize("word", ["--help", "-h", "help"])
def test_help_lists_every_verb_sweep_and_key(capsys: pytest.CaptureFixture[str], word: str) -> None:
    code, out, err = call(capsys, word)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    lines = re.sub(r"\n {10,}", " ", out).splitlines()  # what goes on in the column of the texts
    for verb in VERBS:
        assert any(line.startswith(f"  {verb} ") for line in lines), verb
    assert ", ".join(conf_names()) in " ".join(out.split())
    for name, _, default, text in keys():
        (line,) = (line for line in lines if line.startswith(f"  {name} "))
        assert text in line
        assert line.endswith(f"[{default}]")
    assert cli.EXIT_CODES in out.replace("\n", " ")


@pytest.mark.parametrize("verb", list(VERBS))
def test_every_verb_has_help_of_its_own(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    code, out, err = call(capsys, verb, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"usage: python -m orchestrator {verb} ")
    assert VERBS[verb] in " ".join(out.split())
    assert "130 interrupted" in " ".join(out.split())
    assert max(map(len, out.splitlines())) <= 80


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == (0, f"{__version__}\n", "")


def test_the_package_runs_as_a_module() -> None:
    done = command("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{__version__}\n", "")


def test_a_mistake_ends_the_process_with_2_and_no_traceback() -> None:
    done = command("plan", "conf=h10")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("argument 'conf=h10': unknown sweep 'h10'; did you mean h100")
    assert "Traceback" not in done.stderr


def test_with_debug_a_mistake_shows_where_it_was_found() -> None:
    plain, done = command("plan", "conf=h10"), command("plan", "conf=h10", "--debug")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" in done.stderr
    assert "ConfigError" in done.stderr
    assert done.stderr.endswith(plain.stderr)


@pytest.mark.parametrize("verb", [["plan"], ["run"], []], ids=["plan", "run", "no verb"])
def test_the_printed_configuration_is_a_sweep_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, verb: list[str]
) -> None:
    arguments = ["conf=h100", "space.tp=8", "space.where=d_ff % (64*tp) == 0", "timing.protocol=seed"]
    code, out, err = call(capsys, *verb, *arguments, "--cfg")
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)["space"]["tp"] == 8
    file = tmp_path / "mine.yaml"
    file.write_text(out, "utf-8")
    assert call(capsys, *verb, f"conf={file}", "--cfg") == (0, out, "")
    assert to_dict(compose(str(file))) == to_dict(compose("h100", arguments[1:]))


def test_the_default_sweep_is_auto(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--cfg") == call(capsys, "conf=auto", "--cfg")
    assert call(capsys, "--cfg")[0] == 0


def test_the_last_conf_counts(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "conf=nope", "conf=l40s", "--cfg") == call(capsys, "conf=l40s", "--cfg")


def test_a_plan_of_a_users_own_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("space: {h: 1024, tp: 2, roles: [mlp_up], d_ff: [2048, 2816]}\ncluster: {gpu: h200}\n", "utf-8")
    code, out, _ = call(capsys, "plan", f"conf={file}")
    assert code == 0
    assert out.startswith("conf=mine\n")
    assert "mlp_up-h1024-tp2-b4-s2048-fp16" in out


FILE = "space: {h: -1, wide: 2}\nrank: {top: none}\n"

WRONG = [
    ("measure conf=a100", ["unknown verb 'measure'", "run, plan, rank, status", "usage: python -m orchestrator"]),
    ("paln", ["unknown verb 'paln'; did you mean plan?"]),
    ("a100", ["unknown verb 'a100'"]),
    ("plan conf=h10", ["argument 'conf=h10': unknown sweep 'h10'; did you mean h100", "a100, auto, b200"]),
    ("plan conf=", ["argument 'conf=': unknown sweep ''"]),
    ("plan conf=no/such.yaml", ["no/such.yaml: there is no such file"]),
    ("plan conf=base", ["unknown sweep 'base'"]),
    ("conf=a100 plan", ["argument 'plan': is not of the form key=value"]),
    ("plan a100", ["argument 'a100': is not of the form key=value; did you mean conf=a100?"]),
    ("plan space.h=1e6", ["space.h: 1000000.0 (a decimal number) is not a whole number; write 1000000"]),
    ("plan space.h=[1,2", ["space.h: '[1,2' is not valid YAML"]),
    ("plan space.h=", ["argument 'space.h=': space.h: no value after '='"]),
    ("plan =3", ["argument '=3': has no key before '='"]),
    ("plan space.hh=4", ["unknown key 'space.hh'; did you mean space.h"]),
    ("plan tp=8", ["unknown key 'tp'; did you mean space.tp?"]),
    ("plan space.tp=0", ["space.tp: 0 is too small"]),
    ("plan space.h=010", ["octal"]),
    ("plan space.roles=mlp_dwn", ["unknown role 'mlp_dwn'; did you mean mlp_down"]),
    ("plan space.dtype=fp4", ["unknown dtype 'fp4'"]),
    ("plan timing.protocol=fast", ["unknown protocol 'fast'; there are: interleaved, seed, sequential"]),
    ("plan timing.min_rounds=200", ["timing.min_rounds <= timing.max_rounds must hold, but got 200 and 100"]),
    ("plan cluster.gpu=h10", ["unknown GPU 'h10'"]),
    ("run run.name=a/b", ["'a/b' cannot name a run"]),
    ("run.name=..", ["'..' cannot name a run"]),
    ("run space.where=x>3", ["space.where: 'x' at column 1 is an unknown name", "there are: h, tp, batch, seq, d_ff"]),
    (
        "plan space.where=d_ff%0==1",
        ["argument 'space.where=d_ff%0==1': space.where: 'd_ff%0' at column 1 divides by zero for h=4096"],
    ),
    ("plan space.tp=7 space.h=4096 space.d_ff=64", ["nothing is left to measure", "tp=7 does not divide d_ff=64"]),
    ("run space.where=tp==3", ["nothing is left to measure", "space.where (tp==3) does not hold"]),
    ("run timing.protocol=seed space.roles=mlp", ["nothing is left to measure", "seed_bmm in fp16 only"]),
    ("plan --cfgs", ["unrecognized arguments: --cfgs"]),
    ("plan --cf", ["unrecognized arguments: --cf"]),  # no guessing at half a word
    ("--cfgs", ["unrecognized arguments: --cfgs"]),
    ("rank --top x", ["argument --top: 'x' is not a whole number >= 1"]),
    ("rank --top 0", ["argument --top: '0' is not a whole number >= 1"]),
    ("rank one two", ["unrecognized arguments: two"]),
    ("rank no-such --dir {here}/none", ["no run 'no-such': there are no runs under", "none"]),
    ("rank --dir {here}/none", ["no run 'latest'"]),
    ("rank {here}", ["is not a run"]),
    ("status no-such --dir {here}/none", ["no run 'no-such'"]),
    ("run conf=cpu run.dir={here}/mine.yaml", ["mine.yaml is not a directory"]),
    ("run conf=cpu run.dir={here}/mine.yaml/deeper", ["mine.yaml is not a directory"]),
    (
        "plan conf={here}/mine.yaml space.tp=x nope timing.l2=cold",
        [
            "mine.yaml: space.h: -1 is too small",
            "mine.yaml: unknown key 'space.wide'",
            "mine.yaml: rank.top: 'none' is not a whole number",
            "argument 'space.tp=x': space.tp: 'x' is not a whole number",
            "argument 'nope': is not of the form key=value",
            "argument 'timing.l2=cold': timing.l2: unknown L2 regime 'cold'",
        ],
    ),
    (
        "run conf=h10 space.tp=x =1",
        ["'conf=h10': unknown sweep", "'space.tp=x': space.tp", "argument '=1': has no key"],
    ),
]


@pytest.mark.parametrize(("line", "fragments"), WRONG, ids=[line or "nothing" for line, _ in WRONG])
def test_a_wrong_input_is_explained_with_exit_code_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, line: str, fragments: list[str]
) -> None:
    (tmp_path / "mine.yaml").write_text(FILE, "utf-8")
    code, out, err = call(capsys, *(word.replace("{here}", str(tmp_path)) for word in line.split()))
    assert (code, out) == (2, "")
    assert [fragment for fragment in fragments if fragment not in err] == []
    assert "Traceback" not in err
    assert err.endswith("\n")


def test_a_condition_of_a_file_that_cannot_be_evaluated_names_the_sweep(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "halves.yaml").write_text("space: {where: d_ff // (tp - 1) == 0}", "utf-8")
    code, _, err = call(capsys, "plan", f"conf={tmp_path}/halves.yaml")
    assert (code, err.startswith("conf=halves: space.where: 'd_ff // (tp - 1)' at column 1 divides by zero")) == (
        2,
        True,
    )


def test_problems_are_one_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, "plan", "space.h=x", "space.tp=y", "zzz=1")
    assert len(err.splitlines()) == 3


def test_a_run_that_cannot_be_written_is_refused_before_the_cluster_starts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def started(*arguments: object) -> None:
        raise AssertionError("the cluster was started")

    monkeypatch.setattr("orchestrator.cluster.connect", started)
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    code, _, err = call(capsys, "run", "conf=cpu", f"run.dir={tmp_path}")
    assert code == 2
    assert f"{tmp_path} is not writable" in err


def test_an_interrupt_is_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("orchestrator.verbs.plan.expand_space", interrupted)
    assert call(capsys, "plan", "conf=h100") == (130, "", "interrupted\n")
    code, out, err = call(capsys, "plan", "conf=h100", "--debug")
    assert (code, out) == (130, "")
    assert "in interrupted\n    raise KeyboardInterrupt" in err
    assert err.endswith("interrupted\n")


@pytest.mark.parametrize("words", [(), ("--debug",)])
def test_a_full_disk_under_the_output_is_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("orchestrator.verbs.plan.expand_space", full)
    code, _, err = call(capsys, "plan", "conf=h100", *words)
    assert code == 1
    assert err.endswith("cannot write the output: No space left on device\n")
    assert ("Traceback" in err) == bool(words)


def test_a_traceback_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "plan", "conf=\x1b[2J", "--debug")
    assert (code, "\x1b" in err) == (2, False)


def test_an_internal_fault_shows_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("orchestrator.verbs.plan.expand_space", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["plan", "conf=h100"])


def read_by_nobody(*words: str, **environment: str) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader has left."""
    reader, writer = os.pipe()
    os.close(reader)
    settings = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"} | environment
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=ROOT,
        env=settings,
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "buffering",
    [{}, {"PYTHONUNBUFFERED": "1"}],
    ids=["buffered", "unbuffered"],
)
@pytest.mark.parametrize("word", ["--help", "plan"])
def test_a_reader_that_leaves_is_no_error(word: str, buffering: dict[str, str]) -> None:
    assert read_by_nobody(word, **buffering) == (0, "")


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("check", "model=llama-2-7b"), 0),
        (("check", "model=gpt-3-2.7b"), 1),
        (("check", "model=gpt-3-2.7b", "--json"), 1),
        (("explain", "examples/h200-heads"), 0),
        (("explain", "examples/h200-heads", "--csv"), 0),
        (("status", "examples/h200-heads", "--json"), 0),
        (("compare", "{slower}/a", "{slower}/b", "--fail-if-slower", "3"), 3),
    ],
)
def test_what_was_found_is_told_by_the_exit_code_also_where_nobody_reads(
    words: tuple[str, ...], code: int, slower: Path
) -> None:
    assert read_by_nobody(*(word.replace("{slower}", str(slower)) for word in words)) == (code, "")


@pytest.fixture(scope="module")
def slower(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs, of which the second takes half as long again."""
    folder, family = tmp_path_factory.mktemp("runs"), mlp_family([128, 256, 512])
    for name, cost in (("a", 1.0), ("b", 1.5)):
        measured = measurement(family, per_flop({128: cost, 256: cost, 512: cost, 1024: cost}), noise=0.002, rounds=40)
        table = shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p")
        RunStore.create(folder, name, {}).write_shard(table)
    return folder


@pytest.mark.parametrize(
    ("words", "code", "out"),
    [
        (("rank", "nosuch"), 2, ""),
        (("plan", "conf=h10"), 2, ""),
        (
            ("resume=examples/h200-fp8", "resume_anyway=true"),
            0,
            "mlp_gate_up",
        ),  # which says «nothing to do» on standard error, and goes on
    ],
)
def test_nobody_reading_standard_error_changes_nothing(words: tuple[str, ...], code: int, out: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", *words],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
        check=False,
    )
    os.close(writer)
    assert done.returncode == code
    assert out in done.stdout
