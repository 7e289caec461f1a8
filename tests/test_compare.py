"""The verb ``compare``: numbers worked out by hand, an independent query, and what must not be compared."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from scipy import stats

from orchestrator import cli
from orchestrator.compare_portable import kendall, spearman
from orchestrator.store import RunStore, shard_table
from tasks.family import Family
from tasks.records import DeviceInfo
from tasks.settings import Timing
from tests.builders import DEVICE, Cost, as_bundle, measurement, mlp_family, per_flop, up_family
from tests.commands import called, document
from tests.test_imports import A100, H100, H200, VIDUR, table_of

EXAMPLE = Path(cli.__file__).parents[1] / "results" / "examples" / "h200-seed-and-mlp"
H100_DEVICE = replace(DEVICE, gpu="NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_bytes=80 << 30)


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return called(capsys, "compare", *words)


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return document(capsys, "compare", *words)


def run(
    path: Path,
    *families: Family,
    cost: Cost,
    device: DeviceInfo = DEVICE,
    timing: Timing | None = None,
    noise: float = 0.0,
) -> str:
    store = RunStore.create(path.parent, path.name, {})
    add(store, *families, cost=cost, device=device, timing=timing, noise=noise)
    return str(path)


def add(
    store: RunStore,
    *families: Family,
    cost: Cost,
    device: DeviceInfo = DEVICE,
    timing: Timing | None = None,
    noise: float = 0.0,
) -> None:
    for family in families:
        measured = measurement(family, cost, device=device, noise=noise)
        store.write_shard(
            shard_table(as_bundle(family), measured, timing or Timing(), attempt=1, code_version="1", plan_hash="p")
        )


def group(document: dict[str, Any], role: str, regime: str) -> dict[str, Any]:
    (one,) = (each for each in document["groups"] if (each["role"], each["regime"]) == (role, regime))
    result: dict[str, Any] = one
    return result


# Figures


def test_speed_ups_shares_and_energy_by_hand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = up_family([64, 128, 256])  # 2·32·64·d_ff FLOPs: 262,144 for 64
    old = run(tmp_path / "old", family, cost=lambda gemm, _: 4e-6)
    new = run(tmp_path / "new", family, cost=lambda gemm, _: {64: 4e-6, 128: 2e-6, 256: 1e-6}[gemm.n])
    document = found(capsys, old, new)
    assert document["common_shapes"] == 3
    one = group(document, "mlp_up", "memory")
    first, second = one["figures"]
    assert one["count"] == 3
    assert [first[name] for name in ("p10", "median", "p90")] == [1.0, 1.0, 1.0]
    # speed-ups 1, 2, 4: linear between the order statistics, 1 + 0.2 and 2 + 0.8·2
    assert [second[name] for name in ("p10", "median", "p90")] == pytest.approx([1.2, 2.0, 3.6])
    # d_ff 128: 524,288 FLOPs in 2 us are 0.262144 TFLOP/s of 989
    assert second["tflops"] == pytest.approx(0.262144)
    assert second["peak_share"] == pytest.approx(0.262144 / 989)
    assert second["joules_per_flop"] == pytest.approx(0.5 / 524_288)
    assert group(document, "all", "all")["count"] == 3


def test_parts_are_roles_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [run(tmp_path / name, mlp_family([64, 128]), cost=per_flop({})) for name in "ab"]
    roles = {each["role"]: each["count"] for each in found(capsys, *paths)["groups"] if each["regime"] == "memory"}
    assert roles == {"all": 4, "mlp.gate_up": 2, "mlp.down": 2}


def test_the_regime_is_that_on_every_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # n = k = 8192: intensity m·8192/(2·m + 8192); ridges 989/3.35 = 295 (H100) and 989/4.8 = 206 FLOP per byte (H200)
    shapes = [{"m": m, "n": 8192, "k": 8192, "latency": 1.0} for m in (64, 256, 1024)]  # 63, 241, 819 FLOP per byte
    h200 = table_of(tmp_path / "a.parquet", *shapes)
    h100 = table_of(tmp_path / "b.parquet", *({**each, "device": "NVIDIA H100 80GB HBM3"} for each in shapes))
    document = found(capsys, str(h200), str(h100))
    counts = {each["regime"]: each["count"] for each in document["groups"]}
    assert counts == {"all": 3, "memory": 1, "crosses": 1, "compute": 1}


def test_three_published_tables_give_what_an_independent_query_gives(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, *map(str, (A100, H100, H200)))
    tables = []
    for name, path in zip("abc", (A100, H100, H200), strict=True):
        table = pq.read_table(path)
        table = table.filter(pc.equal(table["gemm_dtype"], "bfloat16")).select(["m", "n", "k", "latency"])
        tables.append(table.rename_columns(["m", "n", "k", name]))
    joined = tables[0].join(tables[1], ["m", "n", "k"], join_type="inner")
    joined = joined.join(tables[2], ["m", "n", "k"], join_type="inner")

    def shape(m: int, n: int, k: int) -> pc.Expression:
        return (pc.field("m") == m) & (pc.field("n") == n) & (pc.field("k") == k)

    joined = joined.filter(~(shape(1, 3584, 256) | shape(512, 16384, 3072)))  # the spikes of the A100 and the H100
    own = group(document, "all", "all")
    assert own["dtype"] == "bf16"
    assert own["count"] == document["common_shapes"] == joined.num_rows
    for name, figures in zip("abc", own["figures"], strict=True):
        expected = pc.quantile(pc.divide(joined["a"], joined[name]), [0.1, 0.5, 0.9]).to_pylist()
        assert [figures[key] for key in ("p10", "median", "p90")] == pytest.approx(expected)
    flops = pc.multiply(pc.multiply(joined["m"], joined["n"]), pc.multiply(joined["k"], 2))
    rates = pc.divide(flops, pc.multiply(joined["b"], 1e9))
    assert own["figures"][1]["peak_share"] == pytest.approx(pc.quantile(rates, 0.5)[0].as_py() / 989)


def test_coverage_gaps_are_counted_with_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = run(tmp_path / "old", up_family([64, 128, 192]), cost=per_flop({}))
    new = run(tmp_path / "new", up_family([128, 192, 256, 320]), cost=per_flop({}))
    coverage = [side["coverage"] for side in found(capsys, old, new)["sides"]]
    assert coverage == [
        {"shapes": 3, "missing_elsewhere": 1, "examples": ["mm-1x32x64x64-fp16-nt"]},
        {"shapes": 4, "missing_elsewhere": 2, "examples": ["mm-1x32x256x64-fp16-nt", "mm-1x32x320x64-fp16-nt"]},
    ]


def test_a_table_stands_beside_a_run_whatever_the_layout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = up_family([4096], h=4096)
    dtyped = replace(family, dtype="bf16", candidates=tuple(as_bf16(each) for each in family.candidates))
    mine = run(tmp_path / "mine", dtyped, cost=lambda gemm, _: 2e-5)
    table = table_of(tmp_path / "x.parquet", {"m": 32, "latency": 0.04})
    document = found(capsys, mine, str(table))
    assert [side["imported"] for side in document["sides"]] == [False, True]
    assert group(document, "all", "all")["figures"][1]["median"] == pytest.approx(0.5)
    assert document["environment"][0] == {
        "name": "published by",
        "values": ["measured here", "aiconfigurator VLLM 0.14.0"],
    }
    out = call(capsys, mine, str(table))[1]
    assert "imported from aiconfigurator VLLM 0.14.0: 1 of 1 rows used" in " ".join(out.split())


def as_bf16(candidate: Any) -> Any:
    (part,) = candidate.parts
    return replace(candidate, parts=(replace(part, gemm=replace(part.gemm, dtype="bf16")),))


def test_vidurs_roles_are_known(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, str(VIDUR["a100"]), str(VIDUR["h100"]))
    assert document["common_shapes"] == 40  # 5 numbers of tokens, tp 1 and 8, 4 operators
    roles: dict[str, int] = {}
    for each in document["groups"]:
        roles[each["role"]] = roles.get(each["role"], 0) + each["count"]
    assert {role: roles[role] for role in roles if role != "all"} == dict.fromkeys(
        ("attn_out", "mlp_down", "mlp_gate_up", "qkv"), 10
    )


def test_what_differs_of_the_environment_is_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    newer = replace(DEVICE, driver="590.1", torch="2.13", power_limit_w=600.0)
    old = run(tmp_path / "old", up_family([64]), cost=per_flop({}))
    new = run(tmp_path / "new", up_family([64]), cost=per_flop({}), device=newer)
    assert found(capsys, old, new)["environment"] == [
        {"name": "driver", "values": ["580.159", "590.1"]},
        {"name": "torch", "values": ["2.11", "2.13"]},
        {"name": "power limit W", "values": ["700", "600"]},
    ]


def test_other_settings_of_timing_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [run(tmp_path / name, up_family([64]), cost=per_flop({})) for name in "ab"]
    for side, race_pct in zip(sides, (10.0, 1000.0), strict=True):
        RunStore.open(Path(side)).update_manifest(config={"timing": {"race_pct": race_pct, "l2": "rotate"}})
    assert found(capsys, *sides)["environment"] == [{"name": "timing.race_pct", "values": ["10.0", "1000.0"]}]


@pytest.mark.parametrize(("protocol", "listed"), [("interleaved", 0), ("sequential", 1)])
def test_a_warm_up_is_listed_where_it_has_a_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], protocol: str, listed: int
) -> None:
    sides = [run(tmp_path / name, up_family([64]), cost=per_flop({})) for name in "ab"]
    for side, warmup_s in zip(sides, (30.0, 0.0), strict=True):
        RunStore.open(Path(side)).update_manifest(config={"timing": {"protocol": protocol, "warmup_s": warmup_s}})
    assert [each["name"] for each in found(capsys, *sides)["environment"]] == ["timing.warmup_s"] * listed


def test_a_gpu_that_the_catalogue_has_not_has_no_regime(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = replace(DEVICE, kind="cpu", gpu="a CPU")
    paths = [run(tmp_path / name, up_family([64]), cost=per_flop({}), device=strange) for name in "ab"]
    one = group(found(capsys, *paths), "mlp_up", "unknown")
    assert one["figures"][0]["peak_share"] is None


def test_a_run_of_two_gpu_models_compares_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.create(tmp_path, "cluster", {})
    add(store, up_family([64, 128]), cost=lambda gemm, _: 1e-6)
    add(store, up_family([64, 128]), cost=lambda gemm, _: 2e-6, device=H100_DEVICE)
    document = found(capsys, str(store.path))
    assert [side["gpu"] for side in document["sides"]] == ["NVIDIA H100 80GB HBM3", "NVIDIA H200"]
    assert group(document, "all", "all")["figures"][1]["median"] == pytest.approx(2.0)


# Portable dimensions


def test_the_portable_value_has_the_least_worst_regret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    family = up_family([64, 128, 192, 256])
    one = run(tmp_path / "one", family, cost=per_flop({64: 1.0, 128: 1.02, 192: 1.1, 256: 1.3}))
    two = run(tmp_path / "two", family, cost=per_flop({64: 1.5, 128: 1.01, 192: 1.0, 256: 1.2}), device=H100_DEVICE)
    (portable,) = found(capsys, one, two)["portable"]
    assert (portable["family_id"], portable["axis"]) == ("mlp_up-h64-tp1-b4-s8-fp16", "d_ff")
    assert [(each["value"], round(each["worst"], 6)) for each in portable["choices"]] == [
        (128, 0.02),
        (192, 0.1),
        (256, 0.3),
        (64, 0.5),
    ]
    assert portable["choices"][0]["regrets"] == pytest.approx([0.02, 0.01])
    # of six pairs (64,128), (64,192), (64,256) and (128,192) turn round: (2 - 4) / 6; ranks 1 2 3 4 and 4 2 1 3
    assert portable["agreements"][0]["kendall"] == pytest.approx(-1 / 3)
    assert portable["agreements"][0]["spearman"] == pytest.approx(1 - 6 * (9 + 0 + 4 + 1) / (4 * 15))
    out = call(capsys, one, two)[1]
    assert "0 of 4 common values are within 1% of the best on all of them" in out


def test_rank_correlations_are_scipys() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        x, y = (random.integers(0, 6, size=12).astype(float) for _ in range(2))
        assert kendall(x, y) == pytest.approx(stats.kendalltau(x, y).statistic)
        assert spearman(x, y) == pytest.approx(stats.spearmanr(x, y).statistic)
    assert kendall(np.ones(4), np.arange(4.0)) is None
    assert spearman(np.ones(4), np.arange(4.0)) is None


# What must not be compared


def seed_run(path: Path, protocol: str = "seed") -> str:
    return run(path, up_family([64]), cost=per_flop({}), timing=Timing(protocol=protocol))


Words = Callable[[Path], Sequence[str]]
REFUSED: list[tuple[str, Words, str]] = [
    ("nothing", lambda path: [], "two runs or tables are needed"),
    ("one", lambda path: [normal(path / "a")], "is of one GPU model: compare A B"),
    ("twice", lambda path: [normal(path / "a"), f"{path}/./a"], "are the same"),
    ("protocols", lambda path: [normal(path / "a"), seed_run(path / "b")], "protocol interleaved and seed"),
    (
        "regimes",
        lambda path: [
            normal(path / "a"),
            run(path / "b", up_family([64]), cost=per_flop({}), timing=Timing(l2="hot", power="burst")),
        ],
        "l2 rotate and hot, power sustained and burst",
    ),
    (
        "no common shape",
        lambda path: [normal(path / "a"), run(path / "b", up_family([96]), cost=per_flop({}))],
        "there is no shape (b, m, n, k, dtype) that all have",
    ),
    ("no run", lambda path: [normal(path / "a"), str(path / "z")], "or the path of a published table"),
    ("unknown GPU", lambda path: [normal(path / "a"), str(table_of(path / "x.parquet", {"device": "X9"}))], "'X9'"),
    ("corrupt", lambda path: [normal(path / "a"), written(path / "x.parquet", b"PAR1")], "cannot be read"),
    ("empty run", lambda path: [normal(path / "a"), str(RunStore.create(path, "b", {}).path)], "nothing was measured"),
    (
        "gate with a table",
        lambda path: [str(A100), str(H100), "--fail-if-slower", "3%"],
        "--fail-if-slower needs two runs",
    ),
    (
        "gate with three",
        lambda path: [*(normal(path / name) for name in "abc"), "--fail-if-slower=3"],
        "--fail-if-slower needs two runs",
    ),
    (
        "gate of the seed's protocol",
        lambda path: [seed_run(path / "a"), seed_run(path / "b"), "--fail-if-slower=3"],
        "no interval",
    ),
    (
        "gate of shapes one after another",
        lambda path: [*(seed_run(path / name, "sequential") for name in "ab"), "--fail-if-slower=3"],
        "protocol sequential has no rounds, and so no interval",
    ),
    (
        "the seed and one after another",
        lambda path: [seed_run(path / "a"), seed_run(path / "b", "sequential")],
        "protocol seed and sequential",
    ),
    (
        "gate across GPUs",
        lambda path: [
            normal(path / "a"),
            run(path / "b", up_family([64]), cost=per_flop({}), device=H100_DEVICE),
            "--fail-if-slower=3",
        ],
        "no family on the same GPU model in common",
    ),
]


def normal(path: Path) -> str:
    return run(path, up_family([64]), cost=per_flop({}))


def written(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    return str(path)


@pytest.mark.parametrize(("words", "message"), [each[1:] for each in REFUSED], ids=[each[0] for each in REFUSED])
def test_what_cannot_be_compared_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: Words, message: str
) -> None:
    code, out, err = call(capsys, *words(tmp_path))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_all_that_cannot_be_opened_is_told_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # messages shorten long paths
    words = [normal(tmp_path / "a"), "./y", "no/mlp.csv", "./z"]
    code, out, err = call(capsys, *words)
    assert (code, out) == (2, "")
    for line, word in zip(err.splitlines(), words[1:], strict=True):
        assert word in line


def test_all_runs_of_nothing_are_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [str(RunStore.create(tmp_path, name, {}).path) for name in "ab"]
    code, out, err = call(capsys, normal(tmp_path / "c"), *paths)
    assert (code, out) == (2, "")
    assert err.splitlines() == [f"nothing was measured in {path}" for path in paths]


def test_a_corrupt_shard_may_be_why_no_shape_is_shared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = run(tmp_path / "b", up_family([64]), up_family([96], tp=2), cost=per_flop({}))
    (path,) = (shard for shard in RunStore.open(both).shard_paths() if "-tp1-" in shard.name)
    path.write_bytes(b"")
    code, _, err = call(capsys, normal(tmp_path / "a"), both)
    assert (code, "there is no shape" in err) == (2, True)
    assert err.splitlines()[-1].startswith(f"{path} is corrupt and was left out: ")


def test_a_run_with_several_protocols_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = RunStore.create(tmp_path, "mixed", {})
    add(store, up_family([64]), cost=per_flop({}))
    add(store, up_family([64], tp=2), cost=per_flop({}), timing=Timing(l2="hot"))
    code, _, err = call(capsys, str(store.path), normal(tmp_path / "a"))
    assert (code, "by several protocols" in err) == (2, True)


@pytest.mark.parametrize("text", ["fast", "-1%", "nan", "3%%", ""])
def test_a_floor_is_a_percentage(capsys: pytest.CaptureFixture[str], text: str) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["compare", "a", "b", f"--fail-if-slower={text}"])
    assert caught.value.code == 2
    assert "is not a percentage" in capsys.readouterr().err


def test_a_corrupt_shard_is_named_and_the_rest_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    families = [up_family([64, 96]), mlp_family([64, 96])]
    old, new = (run(tmp_path / name, *families, cost=per_flop({})) for name in "ab")
    RunStore.open(new).shard_paths()[0].write_bytes(b"PAR1")
    code, out, _ = call(capsys, old, new)
    assert code == 1
    assert "is corrupt and was left out" in " ".join(out.split())


@pytest.mark.parametrize("words", [(A100, H100, H200), (VIDUR["a100"], VIDUR["h100"])])
def test_it_fits_80_columns(capsys: pytest.CaptureFixture[str], words: Sequence[Path]) -> None:
    names = [str(word.relative_to(Path.cwd())) if word.is_relative_to(Path.cwd()) else str(word) for word in words]
    _, out, _ = call(capsys, *names)
    assert max(len(line) for line in out.splitlines() if " " in line) <= 80  # a path stays in one piece
    assert "pJ/FLOP" in out


def test_its_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\nfrom orchestrator import cli\ntry:\n cli.main(['compare', '--help'])\nexcept SystemExit:\n pass\n"
        "print([name for name in ('numpy', 'pyarrow', 'ray', 'rich', 'torch') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=EXAMPLE.parents[2], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert "--fail-if-slower" in done.stdout
