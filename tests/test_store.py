"""What is on disk: schemas, Shards that appear whole or not at all, and what a reader makes of damaged runs."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from orchestrator.atomic import sweep_temporaries
from orchestrator.cli import main
from orchestrator.columns import RANKING_SCHEMA, SHARD_SCHEMA
from orchestrator.errors import StoreError
from orchestrator.runs import find_run
from orchestrator.store import RunStore, safe_name, shard_table
from tasks.family import Bundle, Family
from tasks.records import DeviceInfo, GemmFacts, Telemetry
from tasks.settings import Timing
from tests.access import closed
from tests.builders import DEVICE, TELEMETRY, as_bundle, measurement, mlp_family, per_flop, read_ranking, up_family

COST = per_flop({128: 1.0, 256: 2.0})
SHARD_COLUMNS = """
record:string bundle_id:string attempt:int32 uuid:string gemm_id:string
round:int32 position:int32 calls:int32 lead_calls:int32 seconds:double slowdown:float
family_id:string role:string h:int64 tp:int32 batch:int64 seq:int64 dtype:string d_ff:int64 baseline:bool
mlp_params:int64 axis:string value:int64 params:int64 passes:string
a:int64 kv:int64 head_dim:int64 v:int64 experts:int64 topk:int64 ep:int64 layers:int64 local_dim:int64
part:string kind:string b:int64 m:int64 n:int64 k:int64 layout:string flops:int64 bytes:int64
align_m:int64 align_n:int64 align_k:int64 status:string message:string launch:string kernel:string energy_j:double
device_kind:string gpu:string host:string sm_count:int32 l2_bytes:int64 memory_bytes:int64 torch:string pci_id:string
driver:string runtime:string blas:string power_limit_w:double sm_clock_max_mhz:double
allow_fp16_reduced_precision_reduction:bool allow_bf16_reduced_precision_reduction:bool
sm_clock_mean_mhz:double sm_clock_min_mhz:double memory_clock_mean_mhz:double temperature_max_c:double
power_mean_w:double window_energy_j:double power_limited:bool throttled:bool reasons:list<string>
protocol:string protocol_version:int32 l2:string power:string allow_tf32:bool tie_pct:double confidence:double
looks:int32 random_seed:int64 started_utc:timestamp[us,UTC] prepare_s:double soak_s:double measuring_s:double
rounds:int32 resolved:bool stop_reason:string redone:int32 first_round:int32 canary:int32 notes:list<string>
code_version:string plan_hash:string
"""
RANKING_COLUMNS = """
gpu:string family_id:string role:string h:int64 tp:int32 batch:int64 seq:int64 dtype:string d_ff:int64 baseline:bool
mlp_params:int64 axis:string value:int64 params:int64 passes:string
a:int64 kv:int64 head_dim:int64 v:int64 experts:int64 topk:int64 ep:int64 layers:int64
rank:int32 tie_group:int32 seconds:double tflops:double
relative:double relative_low:double relative_high:double speedup:double speedup_low:double speedup_high:double
p5_s:double p25_s:double p75_s:double p95_s:double samples:int64 rounds:int32 cv:double align_local:int64
local_dim:int64
parts:list<struct<part:string,gemm_id:string,kind:string,b:int64,m:int64,n:int64,k:int64,seconds:double,tflops:double,share:double>>
sm_clock_mean_mhz:double sm_clock_min_mhz:double temperature_max_c:double power_mean_w:double energy_j:double
power_limited:bool throttled:bool resolved:bool stop_reason:string launch:string status:string message:string
protocol:string protocol_version:int32 l2:string power:string devices:list<string>
"""


def frozen(schema: pa.Schema) -> list[str]:
    """Names and types without Arrow's spacing and its names of list elements, which differ between versions."""
    types = [str(field.type).replace("item: ", "").replace("element: ", "").replace(" ", "") for field in schema]
    return [f"{field.name}:{text.replace('tz=', '')}" for field, text in zip(schema, types, strict=True)]


def table_of(family: Family | Bundle, *, attempt: int = 0, **changes: object) -> pa.Table:
    bundle = as_bundle(family)
    measured = replace(measurement(bundle, COST, rounds=3), **changes)  # type: ignore[arg-type]
    return shard_table(bundle, measured, Timing(), attempt=attempt, code_version="1.0", plan_hash="abc")


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {"plan_hash": "abc"})


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A read-only directory, and a user whom that stops: root is let through everywhere."""
    root = Path(tempfile.mkdtemp())
    with closed(root, 0o555):
        yield root
    shutil.rmtree(root)


# Schemas


def test_the_shard_schema_changes_only_with_its_version() -> None:
    assert frozen(SHARD_SCHEMA) == SHARD_COLUMNS.split()
    assert SHARD_SCHEMA.metadata == {b"schema_version": b"3"}


def test_the_ranking_schema_changes_only_with_its_version() -> None:
    assert frozen(RANKING_SCHEMA) == RANKING_COLUMNS.split()
    assert RANKING_SCHEMA.metadata == {b"schema_version": b"3"}


# Building a Shard


def test_facts_have_one_row_per_family_candidate_and_part_with_hand_worked_values() -> None:
    family = mlp_family([128, 256], baseline=256, h=64, tp=2)
    facts = table_of(family).to_pylist()[:4]
    assert [(row["d_ff"], row["part"]) for row in facts] == [
        (128, "gate_up"),
        (128, "down"),
        (256, "gate_up"),
        (256, "down"),
    ]
    down = facts[3]
    expected = {
        "record": "facts",
        "family_id": "mlp-h64-tp2-b4-s8-fp16",
        "bundle_id": "mlp-h64-tp2-b4-s8-fp16",
        "baseline": True,
        "mlp_params": 3 * 64 * 256,
        "gemm_id": "mm-1x32x64x128-fp16-nt",
        "m": 32,
        "n": 64,
        "k": 128,  # 256 / tp
        "flops": 2 * 32 * 64 * 128,
        "bytes": 2 * (32 * 128 + 128 * 64 + 32 * 64),
        "align_m": 32,
        "align_n": 64,
        "align_k": 128,
        "allow_tf32": False,
        "launch": "graph",
        "protocol": "interleaved",
        "protocol_version": 5,
        "stop_reason": "resolved",
        "round": None,
        "seconds": None,
    }
    assert {name: down[name] for name in expected} == expected
    assert down["started_utc"].isoformat() == "2026-11-29T10:00:00+00:00"


def test_every_fact_of_the_device_and_its_telemetry_is_kept() -> None:
    row = table_of(up_family([128])).to_pylist()[0]
    renamed = {"kind": "device_kind"}
    assert {f.name: row[renamed.get(f.name, f.name)] for f in fields(DeviceInfo)} == {
        f.name: getattr(DEVICE, f.name) for f in fields(DeviceInfo)
    }
    assert row["window_energy_j"] == TELEMETRY.energy_j
    assert row["energy_j"] == 0.5  # of one call
    others = [f.name for f in fields(Telemetry) if f.name not in ("energy_j", "reasons")]
    assert {name: row[name] for name in others} == {name: getattr(TELEMETRY, name) for name in others}
    assert row["reasons"] == ["sw_power_cap"]


def test_samples_come_back_as_they_were_measured() -> None:
    family = up_family([128, 256])
    measured = measurement(family, COST, rounds=3)
    rows = [row for row in table_of(family).to_pylist() if row["record"] == "sample"]
    names = ("gemm_id", "round", "position", "calls", "lead_calls", "seconds")
    assert [tuple(row[name] for name in names) for row in rows] == [
        tuple(getattr(sample, name) for name in names) for sample in measured.samples
    ]
    assert {(row["uuid"], row["bundle_id"], row["attempt"]) for row in rows} == {("GPU-0", family.family_id, 0)}


def test_a_gemm_that_was_never_reported_is_not_passed_off_as_measured() -> None:
    family = up_family([128, 256])
    first = family.gemms[0].gemm_id
    rows = table_of(family, samples=(), facts=(GemmFacts(gemm_id=first),)).to_pylist()
    assert [(row["status"], row["message"]) for row in rows] == [("ok", ""), ("skipped", "not measured")]


def test_a_bundle_of_two_families_has_facts_of_both_and_each_sample_once() -> None:
    bundle = Bundle(families=(up_family([128, 256]), replace(up_family([128]), role="mlp_down")))
    rows = table_of(bundle).to_pylist()
    assert [row["family_id"] for row in rows if row["record"] == "facts"] == [
        "mlp_up-h64-tp1-b4-s8-fp16",
        "mlp_up-h64-tp1-b4-s8-fp16",
        "mlp_down-h64-tp1-b4-s8-fp16",
    ]
    assert sum(row["record"] == "sample" for row in rows) == 2 * 3


# Writing a Shard


def test_a_shard_is_one_zstd_file_with_two_row_groups_under_gpu_and_device(store: RunStore) -> None:
    path = store.write_shard(table_of(up_family([128, 256]), attempt=2))
    place = "shards/gpu=nvidia-h200/device=GPU-0/mlp_up-h64-tp1-b4-s8-fp16.2.parquet"
    assert path == store.path / place
    metadata = pq.ParquetFile(path).metadata
    assert [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)] == [2, 6]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_what_is_read_equals_what_was_written(store: RunStore) -> None:
    table = table_of(mlp_family([128, 256]))
    store.write_shard(table)
    facts, samples = store.reader().facts(), store.reader().samples()
    assert pa.concat_tables([facts.table, samples.table]).equals(table)
    assert facts.problems == samples.problems == ()


def test_a_shard_without_samples_is_kept(store: RunStore) -> None:
    family = up_family([128])
    died = (GemmFacts(gemm_id=family.gemms[0].gemm_id, status="worker_died", message="signal 9"),)
    store.write_shard(table_of(family, samples=(), facts=died))
    assert store.reader().facts().table["status"].to_pylist() == ["worker_died"]
    assert store.reader().samples().table.num_rows == 0


def test_a_shard_is_never_overwritten(store: RunStore) -> None:
    table = table_of(up_family([128]))
    before = store.write_shard(table).read_bytes()
    with pytest.raises(StoreError, match=r"\.0\.parquet exists already: a shard is never overwritten"):
        store.write_shard(table)
    assert store.shard_paths()[0].read_bytes() == before


@pytest.mark.parametrize("uuid", ["MIG-GPU-1/2/3", "../../../escape", ".hidden", "a b\n"])
def test_a_hostile_uuid_stays_inside_the_run_and_is_read_back(store: RunStore, uuid: str) -> None:
    path = store.write_shard(table_of(up_family([128]), device=replace(DEVICE, uuid=uuid)))
    assert path.resolve().is_relative_to(store.path.resolve() / "shards")
    assert store.reader().facts().table["uuid"].to_pylist() == [uuid]


@pytest.mark.parametrize(
    ("name", "directory"),
    [("NVIDIA H200", "nvidia-h200"), ("AMD Instinct MI300X/OAM", "amd-instinct-mi300x-oam"), ("../..", "unknown")],
)
def test_a_gpu_name_becomes_a_safe_directory_name(name: str, directory: str) -> None:
    assert safe_name(name) == directory


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failing_disk_leaves_no_file_and_names_path_and_reason(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, function, fail)
    with pytest.raises(StoreError, match=r"cannot write .*/mlp_up-\S+\.parquet: No space left on device"):
        store.write_shard(table_of(up_family([128])))
    assert [path for path in (store.path / "shards").rglob("*") if path.is_file()] == []


def test_a_file_size_limit_is_an_error_and_leaves_nothing(store: RunStore) -> None:
    program = """
import resource, sys
from orchestrator.errors import StoreError
from orchestrator.store import RunStore
from tests.builders import up_family
from tests.test_store import table_of
table = table_of(up_family([128, 256]))
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
try:
    RunStore.open(sys.argv[1]).write_shard(table)
except StoreError as error:
    sys.exit(str(error))
"""
    command = [sys.executable, "-c", program, str(store.path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parents[1], check=False)
    assert done.returncode == 1, done.stderr
    assert "cannot write" in done.stderr
    assert "File too large" in done.stderr
    assert [path for path in (store.path / "shards").rglob("*") if path.is_file()] == []


def test_a_sweep_takes_torn_files_and_nothing_else(store: RunStore) -> None:
    whole = store.write_shard(table_of(up_family([128])))
    torn = whole.with_name(f".{whole.name}.4711.tmp")
    foreign = whole.with_name(".notes.tmp")
    for path in (torn, foreign):
        path.write_bytes(b"half")
    RunStore.open(store.path)
    assert torn.exists()
    assert store.reader().facts().problems == ()
    sweep_temporaries(store.path)
    assert sorted(path.name for path in whole.parent.iterdir()) == sorted([whole.name, foreign.name])


# Reading damaged runs


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def flip_a_bit_in_the_first_page(path: Path) -> None:
    column = pq.ParquetFile(path).metadata.row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


def make_foreign(path: Path) -> None:
    pq.write_table(pa.table({"a": [1]}), path)


@pytest.mark.parametrize("damage", [truncate, empty, flip_a_bit_in_the_first_page, make_foreign])
def test_a_corrupt_shard_is_named_and_the_rest_is_read(store: RunStore, damage: Callable[[Path], None]) -> None:
    bad = store.write_shard(table_of(up_family([128])))
    store.write_shard(table_of(mlp_family([128])))
    damage(bad)
    read = store.reader().facts()
    assert read.table["role"].to_pylist() == ["mlp", "mlp"]
    assert len(read.problems) == 1
    assert read.problems[0].startswith(f"{bad} is corrupt and was left out: ")
    assert "\n" not in read.problems[0]


def test_a_flipped_bit_in_a_measured_number_is_found(store: RunStore) -> None:
    # Random doubles are stored as they are: only the page's checksum can tell that one has changed.
    family = up_family(range(64, 1024, 64))
    bad = store.write_shard(table_of(family, samples=measurement(family, COST, rounds=20, noise=0.1).samples))
    metadata = pq.ParquetFile(bad).metadata
    column = metadata.row_group(1).column(metadata.schema.names.index("seconds"))
    content = bytearray(bad.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size // 2] ^= 1
    bad.write_bytes(content)
    read = store.reader().samples()
    assert read.table.num_rows == 0
    assert [str(bad) in problem for problem in read.problems] == [True]


def test_no_flipped_bit_in_what_tells_facts_from_samples_loses_either(store: RunStore) -> None:
    # The footer has their names too, as statistics by which a reader skips rows, and no checksum.
    table = table_of(up_family([128, 256]))
    path = store.write_shard(table)
    good = path.read_bytes()
    found = [place.start() for name in (b"facts", b"sample") for place in re.finditer(name, good)]
    assert len(found) > 4
    for at in (place + letter for place in found for letter in range(5)):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        reader = store.reader()
        read = pa.concat_tables([reader.facts().table, reader.samples().table])
        assert reader.problems or read.equals(table)


def rewrite(path: Path, record: str, column: str, value: object) -> None:
    """Give the column this value in all rows of a record; ``...``: leave the column out."""
    table = pq.read_table(path, partitioning=None)
    if value is ...:
        pq.write_table(table.drop_columns([column]), path)
        return
    field = SHARD_SCHEMA.field(column)
    values = pc.if_else(pc.equal(table["record"], record), pa.scalar(value, field.type), table[column])
    pq.write_table(table.set_column(table.schema.get_field_index(column), field, values), path)


FACTS_FAULTS: list[tuple[str, object]] = [
    *((name, None) for name in ("looks", "flops", "tie_pct", "confidence", "gpu", "host", "tp", "value", "status")),
    *((name, ...) for name in ("looks", "flops", "uuid", "record", "protocol", "memory_bytes", "plan_hash")),
    *(("looks", 0), ("flops", 0), ("tp", 0), ("tie_pct", -100.0), ("confidence", 1.0), ("record", "x")),
    *(("kind", "int_mm"), ("dtype", None), ("layout", ...)),
    *(("started_utc", moment) for moment in (None, -(2**62), 2**62)),  # Python has no such dates
]


@pytest.mark.parametrize(("column", "value"), FACTS_FAULTS)
def test_a_shard_without_what_a_ranking_needs_is_set_aside(
    store: RunStore, capsys: pytest.CaptureFixture[str], column: str, value: object
) -> None:
    bad = store.write_shard(table_of(up_family([128, 256])))
    store.write_shard(table_of(mlp_family([128, 256])))
    rewrite(bad, "facts", column, value)
    read = store.reader().facts(("role",))
    assert read.table["role"].to_pylist() == ["mlp"] * 4
    line = f"{bad} is corrupt and was left out: rows without a value, or with an impossible one, in: {column}"
    assert [problem.startswith(line) for problem in read.problems] == [True]
    for verb in ("rank", "status"):
        assert main([verb, str(store.path)]) == 1
        assert line in " ".join(capsys.readouterr().out.split())  # a terminal wraps it


UNKNOWN_NAMES = [
    ("kind", "grouped_mm", "mm, bmm, scaled_mm, int_mm"),
    ("dtype", "fp4", "fp16, bf16, fp32, tf32, fp8, fp8_rowwise, int8"),
    ("layout", "tt", "nn, nt, tn"),
]
READERS = (
    *("rank {run}", "rank {run} --json", "status {run}", "report {run} --out {here}/page.html"),
    *("export {run} --to csv --out {here}/csv", "compare {run} {sound}", "compact {run}"),
)


@pytest.mark.parametrize(
    ("line", "column", "value", "known"),
    [*(("explain {run}", *each) for each in UNKNOWN_NAMES), *((line, *UNKNOWN_NAMES[1]) for line in READERS)],
)
def test_a_shard_with_a_name_that_nobody_knows_is_named_with_those_that_are_known(
    store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, column: str, value: str, known: str
) -> None:
    sound = RunStore.create(tmp_path, "sound", {})
    bad = store.write_shard(table_of(up_family([128, 256])))
    for each in (store, sound):
        each.write_shard(table_of(mlp_family([128, 256])))
    rewrite(bad, "facts", column, value)
    assert main(line.format(run=store.path, sound=sound.path, here=tmp_path).split()) == 1
    told = f"in: {column} ('{value}', of a later version or damaged; known are {known})"
    found = " ".join("".join(capsys.readouterr()).split())
    assert f"{bad} is corrupt and was left out: rows without a value, or with an impossible one, {told}" in found


@pytest.mark.parametrize("line", ["rank", "status", "explain", "export --to csv --out {here}/csv"])
@pytest.mark.parametrize("column", ["gpu", "host", "part", "power"])
def test_a_name_in_a_shard_commands_no_terminal(
    store: RunStore, tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, column: str
) -> None:
    rewrite(store.write_shard(table_of(mlp_family([128, 256]))), "facts", column, "\x1b]0;title\x07\x1b[2J\x1b[8m")
    verb, *more = line.format(here=tmp_path).split()
    main([verb, str(store.path), *more])
    out = capsys.readouterr().out
    assert out
    assert not {"\x1b", "\x07"} & set(out)


def test_a_large_run_names_what_nobody_knows_too(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    bad = store.write_shard(table_of(up_family([128, 256])))
    store.write_shard(table_of(mlp_family([128, 256])))
    rewrite(bad, "facts", "dtype", "fp4")
    monkeypatch.setattr("orchestrator.large_ranking.LARGE", 1)
    assert main(["rank", str(store.path)]) == 1
    assert read_ranking(store)["role"].unique().to_pylist() == ["mlp"]


@pytest.mark.parametrize(("column", "value"), [("m", 31), ("k", 2**62), ("b", 7), ("flops", 12345)])
def test_a_shard_whose_flops_are_not_those_of_its_gemms_is_set_aside(store: RunStore, column: str, value: int) -> None:
    bad = store.write_shard(table_of(up_family([128, 256])))
    rewrite(bad, "facts", column, value)
    (problem,) = store.reader().facts(("role",)).problems
    assert problem.startswith(
        f"{bad} is corrupt and was left out: rows without a value, or with an impossible one, in: "
    )
    assert problem.endswith("flops")


@pytest.mark.parametrize(("column", "value"), [("seconds", None), ("seconds", 0.0), ("round", None), ("gemm_id", None)])
def test_a_shard_with_impossible_samples_is_set_aside_by_all_alike(
    store: RunStore, capsys: pytest.CaptureFixture[str], column: str, value: object
) -> None:
    bad = store.write_shard(table_of(up_family([128, 256])))
    store.write_shard(table_of(mlp_family([128, 256])))
    rewrite(bad, "sample", column, value)
    for verb in ("rank", "status"):
        assert main([verb, str(store.path)]) == 1
        assert f"{bad} is corrupt and was left out: rows without" in " ".join(capsys.readouterr().out.split())


def test_the_status_tells_of_a_flipped_bit_among_the_samples(
    store: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = store.write_shard(table_of(up_family([128, 256])))
    store.write_shard(table_of(mlp_family([128])))
    metadata = pq.ParquetFile(bad).metadata
    column = metadata.row_group(1).column(metadata.schema.names.index("seconds"))
    content = bytearray(bad.read_bytes())
    content[column.dictionary_page_offset + column.total_compressed_size - 1] ^= 1
    bad.write_bytes(content)
    assert main(["status", str(store.path)]) == 1
    assert f"{bad} is corrupt and was left out" in " ".join(capsys.readouterr().out.split())


def test_a_schema_version_without_an_end_is_none(store: RunStore) -> None:
    bad = store.write_shard(table_of(up_family([128])))
    pq.write_table(pq.read_table(bad, partitioning=None).replace_schema_metadata({"schema_version": "9" * 5000}), bad)
    assert store.reader().problems == (
        f"{bad} is corrupt and was left out: it has no schema_version: this program did not write it",
    )


@pytest.mark.parametrize("what", ["shard", "manifest"])
def test_a_newer_schema_version_is_refused(store: RunStore, what: str) -> None:
    newer = {"schema_version": "4"}
    if what == "shard":
        store.write_shard(table_of(up_family([128])).replace_schema_metadata(newer))
    else:
        store.manifest_path.write_text('{"schema_version": 4}')
    with pytest.raises(StoreError, match=r"has schema_version 4, newer than 3, .* update the orchestrator"):
        RunStore.open(store.path).reader()


def test_a_directory_that_is_called_tilde_is_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = RunStore.create("~", "run", {})
    shard = store.write_shard(table_of(up_family([4])))
    assert str(shard).startswith("~/run/shards")
    reader = RunStore.open("~/run").reader()
    assert (reader.facts().table.num_rows, reader.problems) == (1, ())


def test_a_run_without_shards_is_empty(store: RunStore) -> None:
    read = RunStore.open(store.path).reader().facts()
    assert (read.table.num_rows, read.problems) == (0, ())
    assert read.table.schema.equals(SHARD_SCHEMA)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"schema_version": "1"}'])
def test_a_broken_manifest_is_named(store: RunStore, content: str) -> None:
    store.manifest_path.write_text(content)
    with pytest.raises(StoreError, match=r"manifest\.json"):
        RunStore.open(store.path)


# Runs


def test_a_pipe_in_the_place_of_a_manifest_is_named_and_holds_up_no_verb(store: RunStore) -> None:
    """To open it would wait for ever, and ``latest`` looks at the manifests of all runs."""
    store.write_shard(table_of(up_family([128])))
    store.manifest_path.unlink()
    os.mkfifo(store.manifest_path)
    with pytest.raises(StoreError, match=f"cannot read {store.manifest_path}: it is no regular file"):
        RunStore.open(store.path)
    sound = RunStore.create(store.path.parent, "sound", {})
    assert find_run("sound", store.path.parent) == sound


def test_a_file_in_the_place_of_the_shards_is_named_before_anything_is_measured(store: RunStore) -> None:
    (store.path / "shards").write_text("")
    with pytest.raises(StoreError, match=f"{store.path / 'shards'} is no directory"):
        RunStore.open(store.path)


def test_nothing_is_written_where_a_run_that_was_moved_has_lain(store: RunStore) -> None:
    store.write_shard(table_of(up_family([128])))
    moved = store.path.rename(store.path.with_name("moved"))
    writes: list[Callable[[], object]] = [
        lambda: store.write_shard(table_of(mlp_family([128]))),
        lambda: store.update_manifest(status="finished"),
        lambda: store.write_ranking(RANKING_SCHEMA.empty_table(), ""),
        lambda: store.write_ranking_batches([], str),
    ]
    for write in writes:
        with pytest.raises(StoreError, match=f"the run {store.path} is no longer there: it was moved or removed"):
            write()
    assert not store.path.exists()
    assert len(RunStore.open(moved).shard_paths()) == 1


def test_a_new_run_has_its_manifest(store: RunStore) -> None:
    assert json.loads(store.manifest_path.read_text()) == {"schema_version": 3, "run": "run", "plan_hash": "abc"}
    store.update_manifest(status="done", plan_hash="def")
    assert store.manifest() == {"schema_version": 3, "run": "run", "plan_hash": "def", "status": "done"}


@pytest.mark.parametrize("name", ["a/b", "..", ".hidden", "", "-x", "a b", "/tmp/x"])
def test_a_name_that_is_no_plain_directory_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match="run name"):
        RunStore.create(tmp_path, name, {})
    assert list(tmp_path.iterdir()) == []


def test_a_run_is_never_created_twice(store: RunStore) -> None:
    with pytest.raises(StoreError, match=r"exists already: choose another run\.name"):
        RunStore.create(store.path.parent, "run", {})


@pytest.mark.parametrize(("depth", "mode"), [(0, 0), (1, 0), (2, 0), (2, 0o444), (1, 0o444)])
def test_shards_that_may_not_be_looked_at_are_told_and_not_taken_for_none(depth: int, mode: int) -> None:
    run = Path(tempfile.mkdtemp())  # which any user may enter
    run.chmod(0o755)
    store = RunStore(run)
    shard = store.write_shard(table_of(up_family([4])))
    place = [run / "shards", shard.parent.parent, shard.parent][depth]
    with closed(place, mode):
        with pytest.raises(StoreError, match=rf"cannot look (into|at) {place}.*: Permission denied"):
            store.reader().files()
        with pytest.raises(StoreError, match="Permission denied"):
            store.write_shard(table_of(up_family([4])))
    assert store.shard_paths() == (shard,)
    shutil.rmtree(run)


def test_a_read_only_directory_is_named(unprivileged: Path) -> None:
    with pytest.raises(StoreError, match=rf"cannot create the run {unprivileged}/run: Permission denied"):
        RunStore.create(unprivileged, "run", {})


def test_results_that_are_a_file_are_named(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("")
    with pytest.raises(StoreError, match="cannot create the run"):
        RunStore.create(tmp_path / "results", "run", {})


def test_a_directory_that_is_no_run_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is not a run: expected a directory with manifest\.json or shards/ in it"):
        RunStore.open(tmp_path)
