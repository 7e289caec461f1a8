"""The verb ``capacity`` as a user meets it: wrong inputs, 80 columns, help, and an answer without heavy imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.capacity_arguments import KEYS
from tests.builders import mlp_family, up_family
from tests.reports import written_run
from tests.test_capacity import H100, H200, LLAMA, TABLES, call
from tests.test_imports import VIDUR, table_of

WRONG = [
    ([], "give model=, such as model=llama-3-8b, or also h=, a=, layers=, v=, d_ff="),
    ([*LLAMA], "give results=, runs or published tables"),
    (["model=llama-3-70", TABLES], "unknown model 'llama-3-70'; did you mean llama-3-70b"),
    (
        [*LLAMA, TABLES, "tp=3"],
        "divide d_ff=28672; tp=3 does not divide a=64; tp=3 does not divide kv=8",
    ),
    (["model=llama-3-70b", TABLES, "tp=16", "pp=81"], "pp=81 is more than layers=80"),
    ([*LLAMA, TABLES, "tpp=8"], "unknown key 'tpp'; did you mean tp"),
    ([*LLAMA, TABLES, "tp=eight"], "argument 'tp=eight': tp: 'eight'"),
    ([*LLAMA, TABLES, "mode=serve"], "unknown mode 'serve'; there are: prefill, training, decode"),
    ([*LLAMA, TABLES, "dtype=fp6"], "unknown dtype 'fp6'"),
    ([*LLAMA, TABLES, "price_per_gpu_hour=h1000:2"], "unknown GPU 'h1000'; did you mean h100"),
    ([*LLAMA, TABLES, "price_per_gpu_hour=free"], "'free' is not a number above 0"),
    ([*LLAMA, TABLES, "price_per_gpu_hour=2.5,3.5"], "'3.5' comes second; give one number, or one for each GPU"),
    ([*LLAMA, TABLES, "price_per_gpu_hour=h100:2,1,h100:9"], "'h100:9' comes second"),
    ([*LLAMA, TABLES, "intra_node_gb_s=0"], "'0' is not a number above 0"),
    ([*LLAMA, TABLES, "tokens_per_s=nan"], "'nan' is not a number above 0"),
    ([*LLAMA, TABLES, "tokens=1e300", "days=1e-300"], "tokens: 1e-30 <= value <= 1e+30 must hold, but got 1e+300"),
    ([*LLAMA, TABLES, "tokens=1e12", "days=1e-300"], "days: 1e-30 <= value <= 1e+30 must hold, but got 1e-300"),
    ([*LLAMA, TABLES, "price_per_gpu_hour=h200:1e308"], "1e-30 <= value <= 1e+30 must hold, but got 1e+308"),
    ([*LLAMA, f"results={'x' * 256}"], "File name too long"),
    ([*LLAMA, TABLES, "tokens=1e12"], "argument 'tokens=1e12': needs days= beside it"),
    ([*LLAMA, TABLES, "days=3"], "argument 'days=3': needs tokens= beside it"),
    ([*LLAMA, TABLES, "tokens_per_s=5", "tokens=1e12", "days=3"], "give either tokens_per_s=, or tokens= and days="),
    ([*LLAMA, "results=,"], "argument 'results=,': give results=, runs or published tables"),
    ([*LLAMA, "results=nowhere"], "nowhere"),
    ([*LLAMA, f"results=nowhere,{H100},noplace"], "no run 'noplace'"),
    ([*LLAMA, f"results=h1000={H100}"], "unknown GPU 'h1000'; did you mean h100"),
    ([*LLAMA, f"results=h100={H100}"], "'h100' may be h100-pcie or h100-sxm; give one of them"),
    ([*LLAMA, "results=h200=no/such"], "no/such: there is no such file or folder"),
    ([*LLAMA, "results=no/gemm_perf.parquet"], "no/gemm_perf.parquet: there is no such file or folder"),
    ([*LLAMA, f"results={H100},{H100}"], "are the same"),
    (["model=llama-3-70b", "tp=1", TABLES], "the weights alone are 141.1 GB a GPU in bf16, and h100-sxm has 80"),
    ([*LLAMA, TABLES, "dtype=fp8"], "fp8 was not measured, only bf16"),
    ([*LLAMA, TABLES, "b=8"], "m=16384 lies outside what was measured, 4 to 8192"),
    (["model=mixtral-8x7b", "tp=8", TABLES], "no bmm of b=8 was measured in bf16"),
]


@pytest.mark.parametrize(("words", "message"), WRONG)
def test_wrong_input_is_one_clear_message(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_corrupt_shard_may_be_why_a_gemm_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = written_run(tmp_path, [up_family([64, 96]), mlp_family([64, 96])])
    broken = store.shard_paths()[0]
    broken.write_bytes(b"")
    code, out, err = call(capsys, *LLAMA, f"results={store.path}")
    assert (code, out) == (2, "")
    assert err.splitlines()[-1].startswith(f"{broken} is corrupt and was left out: ")


def test_the_largest_amounts_have_finite_answers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tokens=1e30", "days=1e-30", "price_per_gpu_hour=1e30", "intra_node_gb_s=1e-30", "pp=80", "dp=2147483647")
    code, _, err = call(capsys, *LLAMA, TABLES, *words, "--json")  # infinity is no JSON
    assert (code, err) == (0, "")


def test_everything_wrong_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, "model=llama-3-70b", "tp=0", "mode=x", "days=1")
    for part in ("tp=0", "mode=x", "days=1", "results="):
        assert part in err


def test_a_gap_names_the_sweep_with_its_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = call(capsys, *LLAMA, TABLES, "b=8")
    (first, *_) = [line.strip() for line in err.splitlines() if line.strip().startswith("python")]
    assert first == (
        "python -m orchestrator cluster.gpu=h100-sxm space.roles=qkv,attn_out,mlp_gate_up,mlp_down space.h=8192 "
        "space.a=64 space.kv=8 space.head_dim=128 space.d_ff=28672 space.v=128256 space.tp=8 space.batch=8 "
        "space.seq=2048 space.dtype=bf16"
    )


def test_another_dtype_of_a_table_is_no_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = call(capsys, "model=llama-2-7b", "tp=1", f"results={VIDUR['a100']}", "dtype=bf16")
    assert code == 2
    assert "bf16 was not measured, only fp16" in err


def test_a_table_of_an_unknown_gpu_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = table_of(tmp_path / "a.parquet", {"device": "NVIDIA X900"})
    code, _, err = call(capsys, *LLAMA, f"results={path}")
    assert code == 2
    assert "'NVIDIA X900', which the catalogue has not" in err


@pytest.mark.parametrize("mode", ["prefill", "training", "decode"])
def test_everything_fits_80_columns(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tokens=15e12", "days=30", "price_per_gpu_hour=2", "intra_node_gb_s=450", "pp=4", "dp=128")
    code, out, err = call(capsys, *LLAMA, TABLES, f"mode={mode}", *words)
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    for needle in ("A h100-sxm", "B h200", "GPU-hours", "est. tokens/s per GPU with them", "upper bound"):
        assert needle in out


def test_many_sides_make_further_tables(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    copies = [str(shutil.copytree(H200, tmp_path / name)) for name in "stuvwxyz"]
    code, out, _ = call(capsys, *LLAMA, f"results={','.join(copies)}", "mode=training", "tokens=1e18", "days=1e-4")
    assert code == 0
    assert out.count("layer, 80 of them") == 2
    for letter in "ABCDEFGH":  # none is left out
        assert f"{letter} h200" in out
        assert sum(letter in line.split() for line in out.splitlines() if " m " in line) == 2
    assert max(map(len, out.splitlines())) <= 80


def test_help_names_every_key(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "--help")
    assert code == 0
    for key in KEYS:
        assert f"  {key}" in out


def test_a_usage_error_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom orchestrator import cli\ncode = cli.main(['capacity', 'model=llama-3-70b', 'tp=3'])\n"
        "assert code == 2\nassert not {'ray', 'torch', 'pyarrow', 'numpy'} & set(sys.modules), sorted(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
