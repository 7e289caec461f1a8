"""The verb ``report``: formats, where they go, and what is wrong with the words."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.store import RunStore
from tests.builders import up_family
from tests.reports import EXAMPLES, LAYER, written_run

ROOT = EXAMPLES.parents[1]
EXAMPLE = str(EXAMPLES / "h200-gpt-3-2.7b")


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    try:
        code = cli.main(["report", *words])
    except SystemExit as exit:
        code = int(exit.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_a_page_is_written_where_it_is_wanted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "it.html"
    code, text, err = call(capsys, EXAMPLE, "--out", str(out))
    assert (code, err) == (0, "")
    assert text.startswith(f"{out}: h200-gpt-3-2.7b, ")
    assert out.read_bytes().startswith(b"<!doctype html>")
    assert [path.name for path in out.parent.iterdir()] == ["it.html"]


def test_the_default_is_the_latest_run_as_report_html(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "results", [up_family([64, 96])])
    assert call(capsys)[0] == 0
    assert "mlp_up-h64-tp1" in (tmp_path / "report.html").read_text()


def test_markdown_goes_to_standard_output_or_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text, _ = call(capsys, EXAMPLE, "--format", "md")
    assert (code, text.splitlines()[0]) == (0, "# Report of h200-gpt-3-2.7b")
    call(capsys, EXAMPLE, "--out", str(tmp_path / "it.md"))  # by its name
    assert (tmp_path / "it.md").read_text() == text


@pytest.mark.parametrize(("form", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, start: bytes) -> None:
    out = tmp_path / f"it.{form}"
    assert call(capsys, EXAMPLE, "--format", form, "--plot", "roofline", "--out", str(out))[0] == 0
    assert out.read_bytes().startswith(start)


def test_layers_are_taken_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    layer = tmp_path / "layer.json"
    layer.write_text(json.dumps(LAYER))
    code, text, _ = call(capsys, EXAMPLE, "--layer", str(layer), "--format", "md")
    assert code == 0
    assert "| tiny h=64 tp=1 b=1 s=8 fp16, without FlashAttention | NVIDIA H200 | 4.0 µs | 75.0% | qkv 75%" in text


def test_a_run_of_nothing_gives_a_report_that_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.create(tmp_path, "it", {})
    code, _, err = call(capsys, str(store.path), "--out", str(tmp_path / "it.html"))
    assert (code, err) == (0, "")
    assert "Nothing was measured in this run." in (tmp_path / "it.html").read_text()


def test_failures_are_told_with_their_reasons(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = up_family([64, 96, 128])
    failed = {family.gemms[1].gemm_id: ("oom", "needs 3 GiB")}
    store = written_run(tmp_path, [family], failed=failed)
    _, text, _ = call(capsys, str(store.path), "--format", "md")
    assert "| it | 1 | oom | up: needs 3 GiB | mlp_up-h64-tp1-b4-s8-fp16 d_ff=96 |" in text


def test_a_corrupt_shard_is_named_and_the_rest_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = written_run(tmp_path, [up_family([64, 96]), up_family([64, 96], tp=2)])
    store.shard_paths()[0].write_bytes(b"PAR1")
    code, text, err = call(capsys, str(store.path), "--format", "md")
    assert code == 1
    assert "is corrupt and was left out" in err
    assert "is corrupt and was left out" in text
    assert "mlp\\_up · h=64 · tp=2" in text


def test_a_corrupt_shard_may_be_why_there_is_nothing_to_draw(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = written_run(tmp_path, [up_family([64, 96])])
    (path,) = store.shard_paths()
    path.write_bytes(b"")
    code, _, err = call(capsys, str(store.path), "--out", str(tmp_path / "it.svg"))
    first, second = err.splitlines()
    assert (code, first) == (2, "nothing was measured: there is nothing to draw")
    assert second.startswith(f"{path} is corrupt and was left out: ")
    assert not (tmp_path / "it.svg").exists()


def wrong(tmp_path: Path) -> list[tuple[list[str], str]]:
    return [
        (["no-such-run"], "unknown run 'no-such-run'"),
        ([EXAMPLE, EXAMPLE], "are the same run"),
        ([EXAMPLE, "--out", str(tmp_path)], "is a folder: name a file in it"),
        ([EXAMPLE, "--out", "."], "names no file"),
        ([EXAMPLE, "--out", os.devnull], "is no regular file"),
        ([EXAMPLE, "--out", str(tmp_path / "file" / "it.html")], "is not a directory"),
        ([EXAMPLE, "--layer", "no.json"], "--layer no.json: No such file"),
        ([EXAMPLE, "--layer", "no.json", "--layer", "nor.json"], "--layer nor.json: No such file"),
        (["nosuch", EXAMPLE, "neither"], "unknown run 'nosuch'"),
        (["nosuch", EXAMPLE, "neither"], "unknown run 'neither'"),
        ([EXAMPLE, "--format", "png", "--family", "x", "--out", str(tmp_path / "a")], "unknown family 'x'"),
        ([EXAMPLE, "--format", "pdf"], "invalid choice: 'pdf'"),
        ([EXAMPLE, "--out", "it.pdf"], "--out it.pdf: a report is html, md, png, svg; --format says which it is to be"),
        ([EXAMPLE, "--plot", "pie"], "invalid choice: 'pie'"),
        (
            [EXAMPLE, "--plot", "roofline", "--family", "x"],
            "--plot and --family: only of --format png and svg, not html",
        ),
        ([EXAMPLE, "--format", "svg", "--layer", "x"], "--layer: only of --format html and md, not svg"),
        ([EXAMPLE, "--format", "svg", "--plot", "gain", "--family", "x"], "--family: only of --plot family, not gain"),
    ]


@pytest.mark.parametrize("case", range(len(wrong(Path()))))
def test_a_mistake_is_named_with_exit_code_2(case: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    words, message = wrong(tmp_path)[case]
    code, out, err = call(capsys, *words, "--dir", str(EXAMPLES.parent))
    assert (code, out) == (2, "")
    assert message in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(("form", "name"), [("html", "plotly"), ("html", "jinja2"), ("png", "matplotlib")])
def test_what_is_not_installed_is_named(
    form: str, name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)  # as import does where it is absent
    code, _, err = call(capsys, EXAMPLE, "--format", form)
    assert code == 2
    assert f"--format {form} needs {name}, not installed here: pip install {name}" in err


def test_a_full_disk_leaves_the_old_report(tmp_path: Path) -> None:
    out = tmp_path / "it.html"
    out.write_text("old")
    code = (
        "import resource, signal, sys; from orchestrator import cli; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)); signal.signal(signal.SIGXFSZ, signal.SIG_IGN); "
        f"sys.exit(cli.main({['report', EXAMPLE, '--out', str(out)]!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot write {out}: File too large" in done.stderr
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["it.html"]


def test_a_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(tempfile.mkdtemp())
    assert call(capsys, EXAMPLE, "--out", str(root / "it.html"))[0] == 0  # all is imported while root may read it
    (root / "it.html").unlink()
    root.chmod(0o555)
    privileged = os.geteuid() == 0
    if privileged:
        os.seteuid(65534)  # root is let through everywhere
    try:
        code, out, err = call(capsys, EXAMPLE, "--out", str(root / "it.html"))
    finally:
        if privileged:
            os.seteuid(0)
    assert (code, out) == (2, "")
    assert str(root) in err
    assert list(root.iterdir()) == []
    root.rmdir()


def test_a_run_in_a_store_is_brought_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    written_run(tmp_path / "there", [up_family([64, 96])])
    code, text, err = call(capsys, "it", "--dir", f"file://{tmp_path}/there", "--format", "md")
    assert (code, err) == (0, "")
    assert "mlp\\_up · h=64 · tp=1" in text


def test_help_needs_no_heavy_library() -> None:
    code = (
        "import sys; from orchestrator import cli\n"
        "try: cli.main(['report', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('numpy', 'pyarrow', 'ray', 'torch', 'plotly', 'jinja2') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
