"""Published tables: what is read of them, and that no defect passes silently; samples of real ones, broken copies."""

import csv
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator import cli
from orchestrator.errors import InvalidValueError, OrchestratorError, StoreError
from orchestrator.imports import SOURCES, TimingTable, is_table, read_table
from orchestrator.imports.spikes import spikes
from orchestrator.imports.table import TimingRow

DATA = Path(__file__).parent / "data"
SYSTEMS = DATA / "aiconfigurator" / "systems" / "data"
A100 = SYSTEMS / "a100_sxm" / "gemm" / "vllm" / "0.14.0" / "gemm_perf.parquet"
H100 = SYSTEMS / "h100_sxm" / "gemm" / "vllm" / "0.14.0" / "gemm_perf.parquet"
H200 = SYSTEMS / "h200_sxm" / "gemm" / "sglang" / "0.5.6.post2" / "gemm_perf.parquet"
VIDUR = {gpu: DATA / "vidur" / gpu / "Llama-2-7b-hf" / "mlp.csv" for gpu in ("a100", "h100")}

ROW = {
    "framework": "VLLM",
    "version": "0.14.0",
    "device": "NVIDIA H200",
    "op_name": "gemm",
    "kernel_source": "vllm_default",
    "gemm_dtype": "bfloat16",
    "m": 1024,
    "n": 4096,
    "k": 4096,
    "latency": 0.05,  # 34.4 GFLOP: 687 TFLOP/s
}


def table_of(path: Path, *changes: dict[str, Any], without: str = "") -> Path:
    """A file of aiconfigurator's with a row per argument: ROW with these changes."""
    rows = [{key: value for key, value in {**ROW, **change}.items() if key != without} for change in changes]
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def counts(table: TimingTable) -> dict[str, int]:
    return {defect.kind: defect.count for defect in table.defects}


def set_aside(table: TimingTable) -> int:
    return sum(defect.count for defect in table.defects if not defect.kept)


# The samples, against independent queries


@pytest.mark.parametrize(
    ("path", "gpu", "source"),
    [
        (A100, "a100-sxm-80", "aiconfigurator VLLM 0.14.0"),
        (H100, "h100-sxm", "aiconfigurator VLLM 0.14.0"),
        (H200, "h200", "aiconfigurator SGLang 0.5.6.post2"),
        (VIDUR["a100"], "a100-sxm-80", "vidur Llama-2-7b-hf"),
        (VIDUR["h100"], "h100-sxm", "vidur Llama-2-7b-hf"),
    ],
)
def test_a_table_says_its_gpu_and_source_and_every_row_is_used_or_counted(path: Path, gpu: str, source: str) -> None:
    found = read_table(str(path))
    assert (found.gpu.key, found.source) == (gpu, source)
    assert found.read == len(found.rows) + set_aside(found)
    assert read_table(str(path.parent)) == found


@pytest.mark.parametrize("path", [A100, H100, H200])
def test_the_defects_of_a_sample_are_those_that_a_query_finds(path: Path) -> None:
    table = pq.read_table(path)
    unknown = pc.sum(pc.is_in(table["gemm_dtype"], pa.array(["bfloat16", "fp8"]))).as_py()
    expected = Counter({"unknown dtype": table.num_rows - unknown, "spike": len(isolated(table))})
    if path == H100:  # 33.5 and 33.8 MB in 9.0 and 8.1 us, in 50 MB of L2: more than memory's 3350 GB/s
        expected["from cache"] = 2
    assert counts(read_table(str(path))) == dict(+expected)


def isolated(table: pa.Table) -> list[tuple[Any, ...]]:
    """Shapes whose time is off by a factor of 2 from the power law through both neighbours, on every axis."""
    times = {(r["gemm_dtype"], r["m"], r["n"], r["k"]): r["latency"] for r in table.to_pylist()}
    found = []
    for key, time in times.items():
        ratios = []
        for axis in (1, 2, 3):
            line = sorted(o for o in times if all(o[i] == key[i] for i in range(4) if i != axis))
            at = line.index(key)
            if 0 < at < len(line) - 1:
                (x0, y0), (x1, y1) = ((line[i][axis], times[line[i]]) for i in (at - 1, at + 1))
                ratios.append(time / (y0 ** pc_weight(key[axis], x0, x1) * y1 ** (1 - pc_weight(key[axis], x0, x1))))
        if key[0] != "fp8_block" and len(ratios) > 1 and (min(ratios) > 2 or max(ratios) < 0.5):
            found.append(key)
    return found


def pc_weight(x: int, below: int, above: int) -> float:
    """How much of the neighbour below there is in the value at x, by logarithms."""
    logs = [pc.ln(pa.scalar(float(value))).as_py() for value in (x, below, above)]
    return float((logs[2] - logs[0]) / (logs[2] - logs[1]))


def test_the_spikes_are_named_with_how_far_they_are_off() -> None:
    (spike,) = (defect for defect in read_table(str(H100)).defects if defect.kind == "spike")
    assert "m=512 n=16384 k=3072 bfloat16, 311 us, 4.50 times what its neighbours give" in spike.example
    (spike,) = read_table(str(A100)).defects
    assert "m=1 n=3584 k=256 bfloat16, 8.51 us, 2.03 times" in spike.example


@pytest.mark.parametrize("gpu", ["a100", "h100"])
def test_vidurs_repeated_rows_are_counted_and_the_first_is_used(gpu: str) -> None:
    with VIDUR[gpu].open() as file:
        rows = list(csv.DictReader(file))
    seen: dict[tuple[str, str], dict[str, str]] = {}
    again = [r for r in rows if seen.setdefault((r["num_tokens"], r["num_tensor_parallel_workers"]), r) is not r]
    found = read_table(str(VIDUR[gpu]))
    assert counts(found) == {"duplicate": 4 * len(again)}
    first = float(seen["4096", "8"]["time_stats.mlp_down_proj.median"]) / 1e3
    (down,) = (row for row in found.rows if row.role == "mlp_down" and (row.m, row.k) == (4096, 1376))
    assert down.seconds == first


def test_vidurs_layers_are_shapes_of_one_rank() -> None:
    rows = [row for row in read_table(str(VIDUR["h100"])).rows if row.m == 128]
    # h 4096, 32 heads of 128 and as many kv heads, d_ff 11008, gated; tp 1 and 8
    assert sorted((row.role or "", row.n, row.k) for row in rows) == [
        ("attn_out", 4096, 512),
        ("attn_out", 4096, 4096),
        ("mlp_down", 4096, 1376),
        ("mlp_down", 4096, 11008),
        ("mlp_gate_up", 2752, 4096),
        ("mlp_gate_up", 22016, 4096),
        ("qkv", 1536, 4096),
        ("qkv", 12288, 4096),
    ]
    assert {(row.kind, row.b, row.dtype) for row in rows} == {("mm", 1, "fp16")}


def test_a_cache_of_60_mb_holds_binary_ones(tmp_path: Path) -> None:
    # 1 x 16384 x 8192 of bf16: 268,484,608 bytes; without 60 · 2^20 4798 GB/s in 42.84 us, without 60 · 10^6 4867 GB/s
    row = {"m": 1, "n": 16384, "k": 8192, "latency": 0.04284}
    found = read_table(str(table_of(tmp_path / "gemm_perf.parquet", row)))
    assert counts(found) == {"from cache": 1}


def test_the_last_level_cache_counts_beside_l2(tmp_path: Path) -> None:
    # 1 x 16384 x 8192 of bf16 in 20 us are 13,424 GB/s of 5300: all of it may be in the 256 MB behind 32 MB of L2
    row = {"device": "AMD Instinct MI300X", "m": 1, "n": 16384, "k": 8192, "latency": 0.02}
    assert counts(read_table(str(table_of(tmp_path / "gemm_perf.parquet", row)))) == {"from cache": 1}


def test_dimensions_that_no_whole_number_of_a_device_holds_are_a_defect(tmp_path: Path) -> None:
    path = table_of(tmp_path / "gemm_perf.parquet", {"m": 1024.0}, {"m": 1e300, "n": 10**18})
    (defect,) = read_table(str(path)).defects
    assert (defect.kind, len(defect.example) < 200) == ("dimension above 2147483647", True)


@pytest.mark.parametrize("name", ["x" * 256, "\0"])
def test_a_name_that_no_file_can_have_is_no_table(name: str) -> None:
    assert not is_table(name)
    with pytest.raises(StoreError, match="there is no"):
        read_table(name)


# Each defect alone


@pytest.mark.parametrize(
    ("change", "kind", "example"),
    [
        ({"m": 0}, "zero or negative dimension", "row 2: m=0 n=4096 k=4096 bfloat16, 50 us"),
        ({"n": -64}, "zero or negative dimension", "n=-64"),
        ({"n": 2**31}, "dimension above 2147483647", "row 2: m=1024 n=2147483648 k=4096"),
        ({"latency": 0.0}, "no time", "row 2"),
        ({"latency": -1.0}, "no time", "row 2"),
        ({"latency": float("nan")}, "no time", "row 2"),
        ({"latency": float("inf")}, "no time", "row 2"),
        ({"latency": None}, "missing value", "no time"),
        ({"k": None}, "missing value", "k=None"),
        ({"gemm_dtype": None}, "missing value", "row 2"),
        ({"gemm_dtype": "int4_wo"}, "unknown dtype", "int4_wo"),
        ({"gemm_dtype": "\x1b[31m"}, "unknown dtype", r"\x1b[31m"),
        ({"device": "NVIDIA H100 80GB HBM3"}, "another GPU", "NVIDIA H100 80GB HBM3"),
        ({"device": "a toaster"}, "another GPU", "a toaster"),
        ({"n": 8192, "latency": 0.068}, "faster than peak", "1011 TFLOP/s, the peak is 989"),  # 68.7 GFLOP
        # 1 x 32768 x 8192 of bf16: 537 MB, of which 62.9 may be in L2; 474 MB in 90 us are 5267 GB/s
        ({"m": 1, "n": 32768, "k": 8192, "latency": 0.09}, "faster than memory", "memory has 4800"),
        ({"latency": 0.055}, "duplicate", "row 2: m=1024 n=4096 k=4096 bfloat16, 55 us, 1.100 times row 1, which is"),
    ],
)
def test_a_defect_is_counted_with_an_example_and_its_row_set_aside(
    tmp_path: Path, change: dict[str, Any], kind: str, example: str
) -> None:
    found = read_table(str(table_of(tmp_path / "gemm_perf.parquet", {}, change, {"m": 2048, "latency": 0.1})))
    (defect,) = found.defects
    assert (defect.kind, defect.count, defect.kept) == (kind, 1, False)
    assert example in defect.example
    assert [(row.m, row.seconds) for row in found.rows] == [(1024, 5e-5), (2048, 1e-4)]


def test_a_row_that_a_warm_cache_explains_is_used_and_counted(tmp_path: Path) -> None:
    # 1 x 4096 x 4096 of bf16: 33.6 MB, within 60 MB of L2; in 5 us that is 6715 GB/s
    path = table_of(tmp_path / "x.parquet", {"m": 1, "latency": 0.005})
    found = read_table(str(path))
    assert [(d.kind, d.count, d.kept) for d in found.defects] == [("from cache", 1, True)]
    assert len(found.rows) == 1


def test_of_equal_shapes_the_furthest_apart_is_the_example(tmp_path: Path) -> None:
    path = table_of(tmp_path / "x.parquet", {}, {"latency": 0.051}, {"latency": 0.04}, {"latency": 0.05})
    (defect,) = read_table(str(path)).defects
    assert (defect.kind, defect.count) == ("duplicate", 3)
    assert "row 3" in defect.example
    assert "0.800 times row 1" in defect.example


def grid(changed: dict[tuple[int, int], float], sizes: tuple[int, ...] = (64, 128, 256, 512)) -> list[TimingRow]:
    """Times that are as the product of m and n, for one k, with some of them multiplied."""
    return [TimingRow.of(m, n, 64, "bf16", 1e-9 * m * n * changed.get((m, n), 1.0)) for m in sizes for n in sizes]


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({(128, 256): 2.1}, {(128, 256): 2.1}),
        ({(128, 256): 0.45}, {(128, 256): 0.45}),
        ({(128, 256): 1.9}, {}),
        ({(64, 256): 9.0}, {}),  # on the edge of m: n alone cannot tell
        ({(64, 64): 9.0}, {}),  # a corner, beside which two would be fast by one axis each
        ({(128, n): 3.0 for n in (64, 128, 256, 512)}, {}),  # a line of them: a kernel, not a hiccup
    ],
)
def test_a_spike_is_off_on_every_axis_along_which_it_lies_between_two(
    changed: dict[tuple[int, int], float], expected: dict[tuple[int, int], float]
) -> None:
    rows = grid(changed)
    found = {(rows[i].m, rows[i].n): round(factor, 6) for i, factor in spikes(rows).items()}
    assert found == expected


def test_what_is_slow_for_not_being_aligned_is_no_spike() -> None:
    rows = [TimingRow.of(64, n, 64, "bf16", 1e-6 * (2.5 if n % 8 else 1.0)) for n in (1000, 1004, 1008, 1012, 1016)]
    assert spikes(rows) == {}


# Which GPU, which file


def test_a_gpu_can_be_named_and_rows_of_others_are_set_aside(tmp_path: Path) -> None:
    path = table_of(tmp_path / "x.parquet", {}, {"device": "NVIDIA H100 80GB HBM3", "m": 2048, "latency": 0.1})
    assert read_table(str(path)).gpu.key == "h200"  # of as many rows the first
    found = read_table(f"h100-sxm={path}")
    assert (found.gpu.key, [row.m for row in found.rows]) == ("h100-sxm", [2048])
    assert counts(found) == {"another GPU": 1}


def test_rows_of_another_gpu_than_the_folders_are_told(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "h100_sxm" / "gemm" / "vllm" / "1"
    table_of(folder / "gemm_perf.parquet", {}, {"device": "NVIDIA H100 80GB HBM3", "m": 2048, "latency": 0.1}, {})
    found = read_table(str(tmp_path))
    assert (found.gpu.key, counts(found)) == ("h100-sxm", {"another GPU": 2})


WRONG: list[tuple[str, Callable[[Path], object], str]] = [
    ("x.parquet", lambda path: path.write_bytes(b"PAR1 and no more"), "cannot be read"),
    ("x.parquet", lambda path: path.write_bytes(b""), "cannot be read"),
    ("x.parquet", lambda path: table_of(path, {}, without="latency"), "has no column latency"),
    ("x.parquet", lambda path: table_of(path, {"m": 0}), "no row can be used: 1 zero or negative dimension (row 1"),
    ("x.parquet", lambda path: table_of(path, {"m": "many"}), "no row can be used: 1 missing value"),
    (
        "x.parquet",
        lambda path: table_of(path, {"device": "a toaster"}),
        "name 'a toaster', which the catalogue has not",
    ),
    (
        "data/h100_sxm/gemm/vllm/1/gemm_perf.parquet",
        lambda path: table_of(path, {}),
        "lies under h100, but its rows name 'NVIDIA H200': another GPU",
    ),
    ("mlp.csv", lambda path: path.write_text(""), "is no mlp.csv of vidur: it has no column n_head"),
    ("mlp.csv", lambda path: path.write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    ("mlp.csv", lambda path: path.write_bytes(VIDUR["a100"].read_bytes()), "name a GPU; say which it is: GPU="),
    ("x.txt", lambda path: path.write_text("hello"), "aiconfigurator's gemm_perf.parquet and vidur's mlp.csv"),
]


@pytest.mark.parametrize(("name", "write", "message"), WRONG)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    tmp_path: Path, name: str, write: Callable[[Path], object], message: str
) -> None:
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path)
    with pytest.raises(OrchestratorError) as caught:
        read_table(str(path))
    assert isinstance(caught.value, StoreError | InvalidValueError)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_folder_with_several_tables_asks_for_one(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="several tables, name one"):
        read_table(str(SYSTEMS))
    with pytest.raises(StoreError, match="there is no table"):
        read_table(str(tmp_path))


def test_a_run_is_no_table(tmp_path: Path) -> None:
    table_of(tmp_path / "gemm_perf.parquet", {})
    assert is_table(str(tmp_path))
    assert is_table(f"h200={tmp_path}")
    (tmp_path / "manifest.json").write_text("{}")
    assert not is_table(str(tmp_path))
    assert not is_table("latest")


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: str(source.__name__))
def test_every_source_keeps_the_contract(source: Any) -> None:
    path = {"gemm_perf.parquet": H100, "mlp.csv": VIDUR["h100"]}[source.FILE]
    found = source.read(path)
    assert source.FILE.endswith(source.SUFFIX)
    assert found.path == path
    assert [row.number for row in found.rows] == sorted(row.number for row in found.rows)
    assert {row.dtype for row in found.rows} & set(dict(found.dtypes))


def test_the_counts_are_in_the_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["compare", str(A100), str(H100), "--json"]) == 0
    sides = json.loads(capsys.readouterr().out)["sides"]
    assert [side["rows_read"] for side in sides] == [65, 80]
    assert [(d["kind"], d["count"], d["kept"]) for d in sides[1]["defects"]] == [
        ("unknown dtype", 3, False),
        ("spike", 1, False),
        ("from cache", 2, True),
    ]
