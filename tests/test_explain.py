"""The verb ``explain``: one Gemm, a run, what is wrong with the words, and that it answers at once."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator import cli
from orchestrator.errors import ConfigError
from orchestrator.explain_arguments import GemmWish, RunWish, parse
from orchestrator.explain_tables import Table, short_kernel, text
from orchestrator.store import RunStore, shard_table
from tasks.family import Family
from tasks.gemm import ELEMENT_BYTES, Gemm
from tasks.records import DeviceInfo
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, mlp_family, per_flop, up_family
from tests.commands import called

ROOT = Path(cli.__file__).parents[1]
EXAMPLE = ROOT / "results" / "examples" / "h200-seed-and-mlp"
GEMM = ("m=2304", "n=1_537", "k=4096", "gpu=a100-sxm-80")
NVJET, REDUCE = "nvjet_hsh_128x256_64x4_TNT", "void cublasLt::splitKreduce_kernel<32, 16>(int)"


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return called(capsys, "explain", *words)


def cells(out: str, title: str) -> list[list[str]]:
    """The lines of the table whose title begins so, without its columns' names, as words."""
    blocks = [block.splitlines() for block in out.split("\n\n")]
    (found,) = (block for block in blocks if block[0].startswith(title))
    return [line.split() for line in found[2:]]


def run(
    path: Path, families: Sequence[Family], *, device: DeviceInfo = DEVICE, kernels: dict[int, str] | None = None
) -> str:
    """A run in which every Gemm takes a second per TFLOP, those of d_ff 128 twice that; kernels: by their n."""
    store = RunStore.create(path, "it", {})
    for family in families:
        measured = measurement(family, per_flop({128: 2.0}), device=device, noise=0.001)
        names = {gemm.gemm_id: (kernels or {}).get(gemm.n) for gemm in family.gemms}
        facts = tuple(replace(each, kernel=names[each.gemm_id]) for each in measured.facts)
        measured = replace(measured, facts=facts)
        table = shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p")
        store.write_shard(table)
    return str(store.path)


def test_a_gemm_is_explained_without_any_run(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, *GEMM)
    assert (code, err) == (0, "")
    assert out.startswith("mm-1x2304x1537x4096-fp16-nt on a100-sxm-80, 108 SMs\n")
    m, n, k, note, _ = cells(out, "alignment")
    assert m == ["m", "2304", "256", "512", "-", "4608"]
    assert n == ["n", "1537", "1", "2", "C", "3074"]
    assert k == ["k", "4096", "4096", "8192", "A", "B", "8192"]
    assert note[:3] == ["Rows", "are", "not"]
    tiles = cells(out, "tiles")
    assert tiles[0] == ["256x128", "117", "2", "92.4%", "54.2%", "50.0%", "*"]
    assert [row[0] for row in tiles] == ["256x128", "128x256", "128x128", "64x64"]
    assert ["n", "1536", "108", "1", "-50.0%", "-50.0%"] in cells(out, "neighbours")
    assert "arithmetic is the limit" in out
    assert "explained little or nothing of which d_ff is fast" in " ".join(out.split())


@pytest.mark.parametrize("batch", [1, 4])
@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
def test_a_gemm_of_every_dtype_is_explained(capsys: pytest.CaptureFixture[str], dtype: str, batch: int) -> None:
    code, out, err = call(capsys, "m=64", "n=64", "k=64", f"b={batch}", "gpu=h200", f"dtype={dtype}")
    assert (code, err) == (0, "")
    assert f"-{batch}x64x64x64-{dtype}-nt on h200" in out


def test_a_family_of_gpus_is_the_one_that_its_sweep_is_planned_for(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "m=64", "n=64", "k=64", "gpu=h100")
    assert out.startswith("mm-1x64x64x64-fp16-nt on h100-sxm, 132 SMs\n")
    assert out.endswith("\ngpu=h100 is taken as h100-sxm; name another by its key: h100-pcie\n")


def test_a_decode_gemm_is_limited_by_memory(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "m=1", "n=11008", "k=4096", "gpu=h200", "dtype=bf16")
    assert "memory is the limit" in out
    assert "1.0 FLOP per byte" in out


def test_amds_tiles_are_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert "NVIDIA's libraries" in call(capsys, "m=64", "n=64", "k=64", "gpu=mi300x")[1]
    assert "NVIDIA's libraries" not in call(capsys, *GEMM)[1]


def test_a_dtype_without_a_peak_has_no_side(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "m=64", "n=64", "k=64", "gpu=v100-sxm2-16", "dtype=bf16")
    assert code == 0
    assert "the catalogue has no bf16 peak" in out
    assert "is the limit" not in out


def test_json_says_all_of_a_gemm(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, *GEMM, "--json")
    (found,) = json.loads(out)["gemms"]
    assert found["gemm"] == {"kind": "mm", "b": 1, "m": 2304, "n": 1537, "k": 4096, "dtype": "fp16", "layout": "nt"}
    assert found["gpu"] == {"name": "a100-sxm-80", "sms": 108, "key": "a100-sxm-80"}
    assert [(each["tile"], each["tiles"], each["waves"]) for each in found["quantisations"]] == [
        ({"m": 256, "n": 128}, 117, 2),
        ({"m": 128, "n": 256}, 126, 2),
        ({"m": 128, "n": 128}, 234, 3),
        ({"m": 64, "n": 64}, 900, 9),
    ]
    assert found["choice"] == found["quantisations"][0]
    assert (found["aligned"], found["measured"]) == (False, None)
    assert found["roofline"]["side"] == "compute"


@pytest.mark.parametrize(
    ("words", "wish"),
    [
        ((), RunWish(run="latest")),
        (("it",), RunWish(run="it")),
        (("gpu=x/it",), None),
        (("results/gpu=x/it", "family=mlp"), RunWish(run="results/gpu=x/it", family="mlp")),
        (("it", "d_ff=128", "d_ff=64"), RunWish(run="it", axis="d_ff", value=64)),
        (("value=3",), RunWish(run="latest", value=3)),
        (("a=32",), RunWish(run="latest", axis="a", value=32)),
    ],
)
def test_words_name_a_run_and_what_of_it(words: Sequence[str], wish: RunWish | None) -> None:
    if wish is None:
        with pytest.raises(ConfigError):
            parse(words)
    else:
        assert parse(words) == wish


def test_a_batch_is_a_bmm() -> None:
    wish = parse(["m=128", "n=256", "k=64", "batch=8", "dtype=bf16", "layout=nn", "gpu=h200"])
    assert isinstance(wish, GemmWish)
    assert wish.gemm == Gemm(kind="bmm", b=8, m=128, n=256, k=64, dtype="bf16", layout="nn")


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (["m=0", "n=1", "k=1", "gpu=h200"], ["argument 'm=0': m: 0 is too small"]),
        (["m=1e3", "n=x", "k=", "gpu=h200"], ["m: '1e3' is not", "n: 'x' is not a whole number", "k: no value"]),
        (["m=1"], ["a Gemm lacks n=, k=, gpu="]),
        (["gpu=h200"], ["a Gemm lacks m=, n=, k="]),
        (["m=1", "n=1", "k=1", "gpu=h300"], ["unknown GPU 'h300'; did you mean"]),
        (["m=1", "n=1", "k=1", "gpu=cpu"], ["unknown GPU 'cpu'"]),
        (["m=1", "n=1", "k=1", "gpu=h200", "dtype=fp7"], ["unknown dtype 'fp7'"]),
        (["m=1", "n=1", "k=1", "gpu=h200", "layout=tt"], ["unknown layout 'tt'; there are: nn, nt, tn"]),
        (["kk=1"], ["unknown key 'kk'; did you mean k?"]),
        (["it", "m=1", "d_ff=2"], ["'it', d_ff= is of a run, m= of one Gemm", "a Gemm lacks n=, k=, gpu="]),
        (["it", "that"], ["one run at a time, but got 'it' and 'that'"]),
        (["d_ff=1", "h=2"], ["argument 'd_ff=1' and argument 'h=2': one value at a time"]),
        (["family="], ["family: empty"]),
        (["d_ff=many", "family="], ["d_ff: 'many' is not a whole number", "family: empty"]),
        (["nosuch"], ["unknown run 'nosuch'"]),
        ([str(EXAMPLE), "family=mlq"], ["unknown family 'mlq'"]),
        ([str(EXAMPLE), "d_ff=3"], ["no d_ff=3 was measured; the nearest are 10820, 10824"]),
        ([str(EXAMPLE), "h=4096"], ["no h=4096 was measured; what was chosen is d_ff"]),
    ],
)
def test_all_that_is_wrong_is_told_at_once(
    capsys: pytest.CaptureFixture[str], words: Sequence[str], messages: Sequence[str]
) -> None:
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    for message in messages:
        assert message in err
    assert "Traceback" not in err


def test_a_run_shows_the_measured_beside_the_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [up_family([64, 96, 128], baseline=96)])
    code, out, err = call(capsys, path)
    assert (code, err) == (0, "")
    rows = cells(out, "mlp_up-")
    assert [row[0] for row in rows] == ["96*", "64", "128"]
    assert rows[-1][1] in ("+99.9%", "+100.0%", "+100.1%")
    # 32 x 64, 32 x 96 and 32 x 128 of C: one, two and two tiles of 64 x 64 for 132 SMs
    assert [row[5:] for row in rows] == [
        ["32", "32", "64", "64x64", "1", "0.6%"],
        ["32", "64", "64", "64x64", "1", "0.4%"],
        ["32", "128", "64", "64x64", "1", "0.8%"],
    ]
    assert "run.kernels=true records it" in out
    assert "too few" in out


def test_the_kernels_that_ran_are_shown_with_who_ran_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [up_family([64, 96, 128])], kernels={64: NVJET, 96: NVJET, 128: f"{NVJET} + {REDUCE}"})
    _, out, _ = call(capsys, path)
    flat = " ".join(out.split())
    assert f"{NVJET} + cublasLt::splitKreduce_kernel: 128 up" in flat
    assert "64 up" in flat
    assert "run.kernels" not in out
    _, out, _ = call(capsys, path, "d_ff=128")
    assert f"kernel: {NVJET} + {REDUCE}" in " ".join(out.split())


def test_one_candidate_is_explained_part_by_part(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [mlp_family([64, 96])])
    code, out, _ = call(capsys, path, "d_ff=96")
    assert code == 0
    assert "d_ff=96, gate_up: mm-" in out
    assert "d_ff=96, down: mm-" in out
    assert "d_ff=64" not in out
    assert out.count("TFLOP/s, ") == 2  # with its share of the roofline


def test_a_family_is_chosen_by_how_its_id_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [up_family([64, 96], tp=1), up_family([64, 96], tp=2), mlp_family([64, 96])])
    _, out, _ = call(capsys, path, "family=mlp_up-h64-tp2")
    assert "mlp_up-h64-tp2-" in out
    assert "mlp_up-h64-tp1-" not in out
    assert "how well the tiles explain mlp on" not in out


def test_a_cpu_has_no_tiles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = replace(DEVICE, kind="cpu", gpu="a CPU")
    path = run(tmp_path, [up_family([64, 96])], device=here)
    for words in ((), ("d_ff=64",)):
        code, out, _ = call(capsys, path, *words)
        assert code == 0
        assert "A CPU has no SMs" in out
        assert "how well" not in out
    found = json.loads(call(capsys, path, "--json")[1])
    assert (found["fits"], found["gemms"][0]["quantisations"]) == ([], [])


def test_the_rate_of_a_slow_device_has_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = replace(DEVICE, kind="cpu", gpu="a CPU")
    store = RunStore.create(tmp_path, "slow", {})
    family = up_family([64, 96])
    measured = measurement(family, per_flop({64: 238.0, 96: 238.0}), device=here)
    store.write_shard(shard_table(as_bundle(family), measured, Timing(), attempt=1, code_version="1", plan_hash="p"))
    assert " 0.00420 " in call(capsys, str(store.path))[1]
    assert ", 0.00420 TFLOP/s" in call(capsys, str(store.path), "d_ff=64")[1]


def test_json_of_a_run_has_every_gemm_and_the_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [mlp_family([64, 96], baseline=64)], kernels={64: NVJET})
    found: dict[str, Any] = json.loads(call(capsys, path, "--json")[1])
    assert [(each["value"], each["part"], each["baseline"]) for each in found["gemms"]] == [
        (64, "gate_up", True),
        (64, "down", True),
        (96, "gate_up", False),
        (96, "down", False),
    ]
    assert all(each["measured"]["seconds"] > 0 for each in found["gemms"])
    assert {(fit["role"], fit["which"], fit["verdict"]) for fit in found["fits"]} == {
        ("mlp", "all", "too few"),
        ("mlp", "aligned", "too few"),
    }


def test_a_run_without_measurements_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.create(tmp_path, "it", {})
    code, _, err = call(capsys, str(store.path))
    assert (code, "nothing was measured in" in err) == (2, True)


@pytest.mark.parametrize(
    ("kept", "words", "message"),
    [(0, [], "nothing was measured in"), (1, ["family=mlp_up"], "unknown family 'mlp_up'")],
)
def test_a_corrupt_shard_may_be_why_what_is_asked_for_is_not_there(
    kept: int, words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path, [mlp_family([64, 96]), up_family([64, 96])])
    broken = sorted(RunStore.open(path).shard_paths())[kept:]
    for shard in broken:
        shard.write_bytes(b"")
    code, out, err = call(capsys, path, *words)
    first, *more = err.splitlines()
    assert (code, out, message in first) == (2, "", True)
    assert [line.split(" is corrupt")[0] for line in more] == [str(shard) for shard in broken]


def test_a_corrupt_shard_is_named_and_the_rest_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run(tmp_path, [up_family([64, 96]), mlp_family([64, 96])])
    broken = RunStore.open(path).shard_paths()[0]
    broken.write_bytes(b"PAR1")
    code, out, _ = call(capsys, path)
    assert code == 1
    assert "is corrupt and was left out" in " ".join(out.split())


@pytest.mark.parametrize("words", [GEMM, (str(EXAMPLE),), (str(EXAMPLE), "family=mlp-h4096", "d_ff=11008")])
def test_it_fits_80_columns(capsys: pytest.CaptureFixture[str], words: Sequence[str]) -> None:
    code, out, _ = call(capsys, *words)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80


def test_the_committed_example_says_how_well_the_model_fits(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, str(EXAMPLE))
    verdicts = {(row[0], row[1]): " ".join(row[9:]) for row in cells(out, "how well the tiles explain mlp on")}
    assert verdicts["2", "aligned"] == verdicts["1", "all"] == "no relation"
    assert {" ".join(row[9:]) for row in cells(out, "how well the tiles explain seed_bmm")} == {"all alike", "too few"}


def test_columns_that_do_not_fit_are_left_out() -> None:
    table = Table(title="t", columns=("a" * 40, "b" * 38, "c"), rows=(("1", "2", "3"),))
    assert text([table]).splitlines()[1] == "a" * 40 + "  " + "b" * 38


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("nvjet_hsh_64x8", "nvjet_hsh_64x8"),
        (f"{NVJET} + {REDUCE}", f"{NVJET} + cublasLt::splitKreduce_kernel"),
        ("void cutlass::Kernel2<cutlass_80_tn_align1>(Params)", "cutlass::Kernel2<cutlass_80_tn_align1>"),
    ],
)
def test_kernels_names_are_shortened_to_what_tells_them_apart(name: str, short: str) -> None:
    assert short_kernel(name) == short


def test_one_gemm_needs_no_heavy_library() -> None:
    code = (
        "import sys; from orchestrator import cli; cli.main(sys.argv[1:]); "
        "print([name for name in ('numpy', 'pyarrow', 'ray', 'rich', 'torch') if name in sys.modules])"
    )
    command = [sys.executable, "-c", code, "explain", *GEMM]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
