"""Each target's files, against values worked out by hand and the rules of its own reader."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from orchestrator.errors import ExportError
from orchestrator.export import aiconfigurator, aiconfigurator_system, calculon, llm_analysis, vidur
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection, Spread, Use
from tasks.gemm import Gemm, kind_of
from tests.exports import EXAMPLE, MODEL, NODE, SAMPLE, calculon_system, exported, shipped_system

VLLM = {"framework": "vllm", "version": "0.24.0"}
SPREAD = Spread(least=1e-3, most=3e-3, mean=2e-3, std=1e-4, samples=20)


def entry(
    n: int, k: int, seconds: float, *, m: int = 1000, dtype: str = "bf16", part: str = "up", **point: Any
) -> Entry:
    gemm = Gemm(kind=kind_of(dtype), b=1, m=m, n=n, k=k, dtype=dtype, layout="nt")
    known = {"tie_group": 1, "role": part, "tp": 1, "h": k, "d_ff": n, "a": None, "kv": None, "v": None, **point}
    return Entry(gemm=gemm, seconds=seconds, spread=SPREAD, energy_j=None, uses=(Use(part=part, point=known),))


def selection(*entries: Entry) -> Selection:
    return Selection(
        run="r", gpu="A chip", spec=None, memory_bytes=None, regime={}, software=("torch 2",), entries=entries
    )


def test_the_table_of_aiconfigurator_is_what_its_reader_takes() -> None:
    measured, found = exported("aiconfigurator", SAMPLE, NODE, VLLM)
    folder = "data/measured_h200/gemm/vllm/0.24.0"
    assert list(found.files) == [f"{folder}/gemm_perf.parquet", f"{folder}/collection_meta.yaml", "measured_h200.yaml"]
    file = pq.ParquetFile(pa.BufferReader(found.files[f"{folder}/gemm_perf.parquet"]))
    texts = ("framework", "version", "device", "op_name", "kernel_source", "gemm_dtype")
    assert file.schema_arrow.equals(
        pa.schema(
            [(name, pa.string()) for name in texts]
            + [(name, pa.int64()) for name in ("m", "n", "k")]
            + [("latency", pa.float64())]
        ),
        check_metadata=False,
    )
    assert file.metadata.row_group(0).column(0).compression == "ZSTD"
    table = file.read()
    assert table["latency"].null_count == 0
    rows = table.to_pylist()
    keys = [(row["gemm_dtype"], row["m"], row["n"], row["k"]) for row in rows]
    assert len(set(keys)) == len(keys) == 200
    names = {"bf16": "bfloat16", "fp8": "fp8"}
    ours = {
        (names[each.gemm.dtype], each.gemm.m, each.gemm.n, each.gemm.k): each.seconds * 1e3
        for each in measured.entries
        if each.gemm.dtype in names
    }
    assert {key: row["latency"] for key, row in zip(keys, rows, strict=True)} == ours
    assert {(row["framework"], row["version"], row["device"], row["op_name"]) for row in rows} == {
        ("vllm", "0.24.0", "NVIDIA H200", "gemm")
    }
    assert found.left_out == {"Gemms in fp8_rowwise: it has no name for that": 100}
    assert yaml.safe_load(found.files[f"{folder}/collection_meta.yaml"]) == {
        "schema_version": 1,
        "runtime": {"framework": "vllm", "version": "0.24.0"},
        "tables": {"gemm_perf": {"status": "complete"}},
    }


def test_the_system_of_aiconfigurator_is_of_the_catalogue_the_device_and_the_users_words() -> None:
    _, found = exported("aiconfigurator", SAMPLE, NODE, VLLM)
    assert yaml.safe_load(found.files["measured_h200.yaml"]) == {
        "data_dir": "data/measured_h200",
        "gpu": {
            "mem_bw": 4800 * 10**9,
            "mem_bw_empirical_scaling_factor": 0.8,
            "mem_empirical_constant_latency": 3e-6,
            "mem_capacity": 150109880320,
            "bfloat16_tc_flops": 989 * 10**12,
            "fp8_tc_flops": 1979 * 10**12,
            "int8_tc_flops": 1979 * 10**12,
            "power": 700,
            "sm_version": 90,
        },
        "node": {
            "num_gpus_per_node": 8,
            "inter_node_bw": 50 * 10**9,
            "intra_node_bw": 450 * 10**9,
            "pcie_bw": 64 * 10**9,
            "p2p_latency": 1e-5,
        },
    }


def test_what_aiconfigurator_wants_to_know_is_asked_for_all_at_once() -> None:
    with pytest.raises(ExportError) as caught:
        exported("aiconfigurator", SAMPLE, NODE[2:], VLLM)
    keys = [line.split()[0] for line in str(caught.value).splitlines()[1:]]
    assert keys == ["mem_bw_scaling=", "sm_version="]
    with pytest.raises(ExportError, match=r"give --framework vllm\|sglang\|trtllm and --version"):
        exported("aiconfigurator", SAMPLE, NODE)


def test_aiconfigurator_has_no_name_for_fp16_and_no_table_for_batches() -> None:
    with pytest.raises(ExportError) as caught:
        exported("aiconfigurator", EXAMPLE, NODE, VLLM)
    assert str(caught.value) == (
        "nothing of this selection can be written for aiconfigurator: 360 batched Gemms (bmm): it has no table for "
        "them; 720 Gemms in fp16: it has no name for that"
    )


def test_a_weights_gradient_is_no_row_of_aiconfigurators_table() -> None:
    gradient = replace(entry(8, 16, 1e-3), gemm=Gemm(kind="mm", b=1, m=8, n=16, k=32, dtype="bf16", layout="tn"))
    request = Request(target="aiconfigurator", into=Path("none"), name="it")
    with pytest.raises(ExportError, match="1 Gemms of layout tn: its table is of"):
        aiconfigurator.export(selection(gradient), request)


@pytest.mark.parametrize("place", ["shipped_sxm", "shipped_sxm.yaml", "data/shipped_sxm"])
def test_a_shipped_system_is_copied_with_its_gemm_table_replaced(tmp_path: Path, place: str) -> None:
    shipped_system(tmp_path)
    _, found = exported("aiconfigurator", SAMPLE, (), {"into": str(tmp_path / place), "name": "ours"})
    gemm = "data/ours/gemm/vllm/0.24.0"
    attention = "data/ours/attention/vllm/0.24.0/context_attention_perf.parquet"
    table, meta = f"{gemm}/gemm_perf.parquet", f"{gemm}/collection_meta.yaml"
    assert sorted(found.files) == sorted(["ours.yaml", attention, table, meta])
    assert found.files["ours.yaml"].decode() == (
        "# its licence\ndata_dir: data/ours # relative to this\ngpu:\n  power: 700  # W\n"
    )
    assert found.files[attention] == b"attention"
    assert pq.read_table(pa.BufferReader(found.files[table])).num_rows == 200


def test_a_system_without_the_table_that_is_asked_for_lists_those_it_has(tmp_path: Path) -> None:
    into = str(shipped_system(tmp_path))
    with pytest.raises(ExportError, match=r"no such GEMM table; it has: --framework vllm --version 0.24.0$"):
        exported("aiconfigurator", SAMPLE, (), {"into": into, "name": "ours", "framework": "sglang"})
    other = tmp_path / "data" / "shipped_sxm" / "gemm" / "vllm" / "0.9"
    other.mkdir()
    (other / "gemm_perf.parquet").write_text("theirs")
    with pytest.raises(ExportError, match="several GEMM tables, choose one"):
        exported("aiconfigurator", SAMPLE, (), {"into": into, "name": "ours"})
    with pytest.raises(ExportError, match="give the copy a name by --as NAME"):
        exported("aiconfigurator", SAMPLE, (), {"into": into})
    for nothing in (str(tmp_path / "other"), ".", "/", "", "x" * 256):
        with pytest.raises(ExportError, match="no system; give ROOT/NAME"):
            aiconfigurator_system.shipped(Path(nothing), "gemm_perf.parquet")
    (tmp_path / "bad.yaml").write_text("data_dir: 2024-13-10")
    with pytest.raises(ExportError, match=r"bad\.yaml cannot be read"):
        aiconfigurator_system.shipped(tmp_path / "bad.yaml", "gemm_perf.parquet")


def calculons_efficiency(unit: dict[str, Any], gflop: float) -> float:
    """Its Processor's rules, from calculon/processor.py: assertions on reading, and the first threshold reached."""
    last = None
    for threshold, efficiency in unit["gflops_efficiency"]:
        assert 0 < efficiency <= 1
        assert last is None or threshold < last
        last = threshold
    return next(float(efficiency) for threshold, efficiency in unit["gflops_efficiency"] if gflop >= threshold)


def test_calculon_gets_the_median_efficiency_of_each_power_of_two(tmp_path: Path) -> None:
    # 2·1000·n·k FLOPs: 4, 6, 7 and 2 GFLOP; 0.25, 0.5, 0.9 and 0.1 of 100 TFLOP/s
    sizes = ((2000, 25e12), (3000, 50e12), (3500, 90e12), (1000, 10e12))
    entries = [entry(1000, k, 2e6 * k / rate) for k, rate in sizes]
    base = calculon_system(tmp_path)
    request = Request(target="calculon", into=base, name="it", facts={"peak_bf16": 100.0})
    found = calculon.export(selection(*entries), request)
    system = json.loads(found.files["it.json"])
    unit = system["matrix"]["bfloat16"]
    assert unit["tflops"] == 100
    assert [pair[0] for pair in unit["gflops_efficiency"]] == [4, 0]
    assert [pair[1] for pair in unit["gflops_efficiency"]] == pytest.approx([0.5, 0.1])
    assert (calculons_efficiency(unit, 5), calculons_efficiency(unit, 0)) == pytest.approx((0.5, 0.1))
    theirs = json.loads(base.read_text())
    assert system["processing_mode"] == "roofline"
    assert {name: system[name] for name in calculon.NEEDED} == {name: theirs[name] for name in calculon.NEEDED}
    assert list(system["matrix"]) == ["bfloat16"]
    assert "no vector unit for bfloat16" in found.notes[-1]


@pytest.mark.parametrize("peak", [20.0, 1e-320, 1e308])
def test_calculon_is_given_no_efficiency_that_it_refuses(tmp_path: Path, peak: float) -> None:
    request = Request(target="calculon", into=calculon_system(tmp_path), name="it", facts={"peak_bf16": peak})
    slowest = entry(1000, 2000, 4e9 / 1e-16) if peak > 1e300 else entry(1000, 2000, 4e9 / 25e12)
    with pytest.raises(ExportError, match=r"is no efficiency to calculon; give the peak as peak_bf16="):
        calculon.export(selection(slowest), request)


def test_calculon_reads_what_was_measured(tmp_path: Path) -> None:
    given = {"into": str(calculon_system(tmp_path)), "name": "it"}
    units = {
        **json.loads(exported("calculon", EXAMPLE, (), given)[1].files["it.json"])["matrix"],
        **json.loads(exported("calculon", SAMPLE, ("candidates=all",), given)[1].files["it.json"])["matrix"],
    }
    assert {name: unit["tflops"] for name, unit in units.items()} == {"float16": 989, "bfloat16": 989, "float8": 1979}
    for unit in units.values():
        assert unit["gflops_efficiency"][-1][0] == 0
        assert 0.3 < calculons_efficiency(unit, 0) < 1


def test_calculon_needs_a_system_to_copy_and_a_peak(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=r"also say vector, mem1, mem2, networks, .* --into systems/"):
        exported("calculon", EXAMPLE)
    with pytest.raises(ExportError, match=r"--into /dev/zero has more than 64 MiB"):
        exported("calculon", EXAMPLE, (), {"into": "/dev/zero", "name": "it"})
    (tmp_path / "no.json").write_text('{"matrix": {}, "vector": {}}')
    with pytest.raises(ExportError, match="is no system of calculon: it has no mem1, mem2, networks"):
        exported("calculon", EXAMPLE, (), {"into": str(tmp_path / "no.json"), "name": "it"})
    for text, message in (
        ("[" * 100_000, "is nested too deeply"),
        ('{"vector": 1, "mem1": {}, "mem2": {}, "networks": {}}', "vector is no object, networks is no list"),
    ):
        (tmp_path / "no.json").write_text(text)
        with pytest.raises(ExportError, match=message):
            calculon.export(
                selection(entry(8, 8, 1.0)), Request(target="calculon", into=tmp_path / "no.json", name="i")
            )
    request = Request(target="calculon", into=calculon_system(tmp_path), name="it")
    with pytest.raises(ExportError, match=r"give:\n  peak_bf16=  dense peak in bf16"):
        calculon.export(selection(entry(8, 8, 1.0)), request)


def rows_of(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


def layer(**point: Any) -> tuple[Entry, ...]:
    """The four operators of one layer with h = 64, 96 wide qkv, and d_ff = 256."""
    heads = {"a": 4, "kv": 1, "h": 64, "d_ff": None, **point}
    mlp = {"h": 64, "d_ff": 256, **point}
    return (
        entry(96, 64, 1e-3, part="qkv", **heads),
        entry(64, 64, 2e-3, part="out", **{**heads, "kv": None}),
        entry(512, 64, 4e-3, part="gate_up", **mlp),
        entry(64, 256, 3e-3, part="down", **mlp),
    )


def test_vidurs_row_is_one_layer_in_milliseconds() -> None:
    found = vidur.export(selection(*layer()), Request(target="vidur", facts={"v": 1000}))
    (row,) = rows_of(found.files["mlp.csv"])
    assert {name: row[name] for name in vidur.KEYS} == {
        "n_head": "4",
        "n_kv_head": "1",
        "n_embd": "64",
        "n_expanded_embd": "256",
        "vocab_size": "1000",
        "use_gated_mlp": "True",
        "num_tokens": "1000",
        "num_tensor_parallel_workers": "1",
    }
    medians = [float(row[f"time_stats.{name}.median"]) for name in vidur.OPERATORS]
    assert medians == pytest.approx([1, 2, 4, 3])
    stats = [float(row[f"time_stats.mlp_up_proj.{name}"]) for name in ("min", "max", "mean", "std")]
    assert stats == pytest.approx([1, 3, 2, 0.1])
    assert (found.gemms, found.left_out) == (4, {})


def test_a_layer_that_lacks_an_operator_is_no_row() -> None:
    other = entry(512, 64, 4e-3, m=2000, part="gate_up", h=64, d_ff=256)
    found = vidur.export(selection(*layer(), other), Request(target="vidur", facts={"v": 1000}))
    assert len(rows_of(found.files["mlp.csv"])) == 1
    assert found.left_out == {"layers without attn_pre_proj, attn_post_proj, mlp_down_proj, which others have": 1}


def test_heads_of_another_model_are_not_joined() -> None:
    entries = [*layer(), *layer(a=8, kv=8)[:1]]
    found = vidur.export(selection(*entries), Request(target="vidur", facts={"v": 1000}))
    assert [(row["n_head"], row["n_kv_head"]) for row in rows_of(found.files["mlp.csv"])] == [("4", "1")]


def test_vidur_is_told_what_the_role_does_not_say() -> None:
    with pytest.raises(ExportError) as caught:
        exported("vidur", EXAMPLE, ("h=4096",))
    assert [line.split()[0] for line in str(caught.value).splitlines()[1:]] == ["a=", "kv=", "v="]
    with pytest.raises(ExportError, match=r"a=, kv=, v= are of one model, .* choose one by h=4096\|8192"):
        exported("vidur", EXAMPLE, MODEL[1:])
    with pytest.raises(ExportError, match=r"choose one by dtype=bf16\|fp8\|fp8_rowwise"):
        exported("vidur", SAMPLE, MODEL)
    _, found = exported("vidur", EXAMPLE, (*MODEL, "tp=8"))
    rows = rows_of(found.files["mlp.csv"])
    assert {(row["n_head"], row["num_tokens"], row["num_tensor_parallel_workers"]) for row in rows} == {
        ("32", "8192", "8")
    }
    assert {"10920", "11008"} & {row["n_expanded_embd"] for row in rows}
    assert "no attn_pre_proj, attn_post_proj: vidur cannot be trained without" in found.notes[-1]


def test_llm_analysis_gets_all_that_its_gpu_needs_and_the_achieved_rate() -> None:
    words = {"memory_gb": 80.0, "bandwidth_gb_s": 3000.0, "intra_node_gb_s": 400.0, "p2p_latency_s": 1e-5}
    facts = {**words, "peak_fp16": 100.0}
    # 4 and 6 GFLOP in 0.1 ms and 0.3 ms: 10 GFLOP in 0.4 ms are 25 TFLOP/s
    entries = [entry(1000, 2000, 1e-4), entry(1000, 3000, 3e-4)]
    found = llm_analysis.export(selection(*entries), Request(target="llm-analysis", facts=facts))
    assert json.loads(found.files["gpu_configs/measured-a-chip.json"]) == {
        "name": "measured-a-chip",
        "mem_per_GPU_in_GB": 80,
        "hbm_bandwidth_in_GB_per_sec": 3000,
        "intra_node_bandwidth_in_GB_per_sec": 400,
        "intra_node_min_message_latency": 1e-5,
        "peak_fp16_TFLOPS": 100,
    }
    *comments, line = found.files["flags.txt"].decode().splitlines()
    assert all(comment.startswith("#") for comment in comments)
    words_of = line.split()
    assert words_of[:5] == ["--gpu_name", "measured-a-chip", "--dtype_name", "w16a16e16", "--achieved_tflops"]
    assert float(words_of[5]) == pytest.approx(25)


def test_csv_has_a_row_for_each_gemm() -> None:
    measured, found = exported("csv", SAMPLE, ("dtype=fp8",))
    rows = rows_of(found.files["gemms.csv"])
    assert len(rows) == 100
    for row, each in zip(rows, measured.entries, strict=True):
        assert row["gemm_id"] == each.gemm.gemm_id
        assert float(row["seconds"]) == each.seconds
        assert float(row["tflops"]) == pytest.approx(int(row["flops"]) / float(row["seconds"]) / 1e12)
        # n = 2·d_ff/tp, with d_ff from 10240 to 11776
        (tp,) = (tp for tp in (1, 2, 4, 8) if 20480 <= tp * each.gemm.n <= 23552)
        assert (row["roles"], row["tp"], row["gpu"]) == ("mlp_gate_up", str(tp), "NVIDIA H200")
