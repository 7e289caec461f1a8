"""A search over shapes from its Shards on: everything that reads a run names h, d_ff and a."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.compaction import compact
from orchestrator.config import compose
from orchestrator.ranking import rank
from orchestrator.report.family import families
from orchestrator.report.markdown import markdown
from orchestrator.report.page import html
from orchestrator.report.picture import picture
from orchestrator.report.source import open_runs
from orchestrator.shape_code import code
from orchestrator.space import expand_space
from orchestrator.store import RunStore, shard_table
from orchestrator.tables import FamilyTable, family_tables
from tasks.cpu import CpuDevice
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.measure import measure_bundle
from tasks.settings import Timing
from tests.builders import DEVICE, Cost, measurement
from tests.test_ranking_stream import assert_same

MODEL = "h: 96\nlayers: 2\na: 6\nd_ff: 256\nv: 512\nsources: [a test]\n"
"""Its own shape has 319,968 parameters: 2·512·96 + 2·(4·96² + 3·96·256 + 2·96) + 96."""
WORDS = (
    "space.params_budget=320K±6%",
    "space.head_dim={values: [16, 32], baseline: 16}",
    "space.h={start: 64, stop: 128, step: 32, baseline: 96}",
    "space.d_ff={start: 64, stop: 640, step: 32, baseline: 256}",
)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "own.yaml"
    path.write_text(MODEL)
    return f"model={path}"


def bundles(model: str, *words: str) -> list[Bundle]:
    return list(expand_space(compose("cpu", (model, *WORDS, *words))).bundles)


def slow_heads(gemm: Gemm, number: int) -> float:
    """10^12 FLOP/s, but small heads at half of it: a head is attention's k, or n."""
    return gemm.flops * 1e-12 * (2 if gemm.kind == "bmm" and 16 in (gemm.n, gemm.k) else 1)


def kept(path: Path, model: str, cost: Cost = slow_heads, *words: str, gpu: str = "NVIDIA H200") -> RunStore:
    store = RunStore.create(path.parent, path.name, {})
    for bundle in bundles(model, "space.tp=1,2", *words):
        measured = measurement(bundle, cost, device=replace(DEVICE, gpu=gpu), noise=0.001)
        store.write_shard(shard_table(bundle, measured, Timing(), attempt=1, code_version="1", plan_hash="abc"))
    return store


def tables_of(store: RunStore) -> list[FamilyTable]:
    return list(family_tables(rank(store).table, top=20))


def test_a_cpu_ranks_the_shapes_of_a_tiny_model_by_name(tmp_path: Path, model: str) -> None:
    timing = Timing(min_rounds=3, max_rounds=3, soak_min_s=0, soak_max_s=0, visit_us=20.0)
    (bundle,) = bundles(model, "space.tp=1", "space.batch=1", "space.seq=16")
    store = RunStore.create(tmp_path, "tiny", {})
    measured = measure_bundle(CpuDevice(), bundle, timing)
    store.write_shard(shard_table(bundle, measured, timing, attempt=1, code_version="1", plan_hash="abc"))
    rows = rank(store).table.to_pylist()
    shapes = {(row["h"], row["d_ff"], row["a"]) for row in rows}
    assert {row["status"] for row in rows} == {"ok"}
    assert {h for h, _, _ in shapes} == {64, 96, 128}
    assert len(shapes) == len(rows) > 6
    (table,) = tables_of(store)
    assert {line[0] for line in table.rows} == {f"{h}/{d_ff}/{a}" for h, d_ff, a in shapes}
    for row in rows:
        h, d_ff, kv = row["h"], row["d_ff"], row["kv"]
        layer = 4 * h * h + 3 * h * d_ff + 2 * h
        assert row["params"] == 2 * 512 * h + 2 * layer + h
        assert 300_800 <= row["params"] <= 339_200
        assert (row["layers"], row["v"], kv) == (2, 512, row["a"])


def test_one_ranking_has_all_shapes_and_a_table_says_what_they_cost(tmp_path: Path, model: str) -> None:
    first, second = tables_of(kept(tmp_path / "run", model))
    assert first.title == ("layer v=512 layers=2 tp=1 batch=2 seq=64 fp32, NVIDIA H200, 20 rounds")
    assert "tp=2" in second.title
    assert first.columns[:2] == ("h/d_ff/a", "TFLOP/s")
    assert first.columns[-3:] == ("layers, ms", "params", "align")
    own = first.rows[0]
    assert own[0] == "96/256/6"
    assert own[-2:] == ("319,968", "16")  # of 96, 256 and 16
    tokens = 2 * 64
    linear = 2 * tokens * (4 * 96 * 96 + 3 * 96 * 256)
    attention = 2 * 2 * 2 * 6 * 64 * 64 * 16
    assert float(own[-3]) == pytest.approx(2 * (linear + 2 * attention) * 1e-12 * 1e3, rel=2e-3)


def test_what_takes_the_least_time_is_named_where_another_is_the_best_per_flop(tmp_path: Path, model: str) -> None:
    def flat(gemm: Gemm, number: int) -> float:
        """FLOPs of attention cost twice as much: the best per FLOP is who has few of them, as does much else."""
        return gemm.flops * 1e-12 * (2 if gemm.kind == "bmm" else 1)

    (table, _) = tables_of(kept(tmp_path / "run", model, flat))
    (note,) = (note for note in table.notes if "least time" in note)
    rows = [row for row in rank(RunStore.open(tmp_path / "run")).table.to_pylist() if row["tp"] == 1]
    true = {
        f"{row['h']}/{row['d_ff']}/{row['a']}": (
            sum(
                part["b"] * part["m"] * part["n"] * part["k"] * (2 if part["kind"] == "bmm" else 1)
                for part in row["parts"]
            ),
            sum(part["b"] * part["m"] * part["n"] * part["k"] for part in row["parts"]),
        )
        for row in rows
    }
    named, percent = re.fullmatch(
        r"all layers take the least time as (\S+): (\S+)% less than the best per FLOP, with .*", note
    ).groups()  # type: ignore[union-attr]
    best = min(true, key=lambda shape: true[shape][0] / true[shape][1])
    assert true[named][0] == min(time for time, _ in true.values())
    assert float(percent) == pytest.approx((1 - true[named][0] / true[best][0]) * 100, abs=0.3)
    assert named != best


def test_in_batches_and_compacted_the_ranking_is_the_same(tmp_path: Path, model: str) -> None:
    store = kept(tmp_path / "run", model)
    before = assert_same(store)
    compact(store)
    assert assert_same(store).equals(before)
    assert before.num_rows == len(
        set(zip(*(before[name].to_pylist() for name in ("tp", "h", "d_ff", "a")), strict=True))
    )


def test_every_verb_names_shapes(tmp_path: Path, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(kept(tmp_path / "run", model).path)
    kept(tmp_path / "other", model, gpu="NVIDIA H100 80GB HBM3")
    kept(tmp_path / "fewer", model, slow_heads, "space.head_dim=16")

    def said(*words: str, code: int = 0) -> str:
        assert cli.main([*words]) == code
        return capsys.readouterr().out

    rows = json.loads(said("rank", path, "--json"))["rows"]
    assert {"h", "d_ff", "a", "layers", "params"} <= rows[0].keys()
    line = next(csv.DictReader(io.StringIO(said("rank", path, "--csv"))))
    assert int(line["value"]) == code_of(line)
    assert "h/d_ff/a=96/256/6, qkv:" in said("explain", path, "shape=96/256/6")
    assert "96/256/6*" in said("explain", path)
    assert "portable h/d_ff/a, layer-l2-v512-tp1" in said("compare", path, str(tmp_path / "other"))
    gone = " ".join(said("compare", path, str(tmp_path / "fewer"), "--fail-if-slower", "5").split())
    assert "by-shape h/d_ff/a=96/256/3: it is not in the second run" in gone
    assert cli.main(["explain", path, "shape=96/256/5"]) == 2
    near = "96/224/3, 96/224/6, 96/256/3, 96/256/6"
    assert f"no shape=96/256/5 was measured; the nearest are {near}" in capsys.readouterr().err
    assert cli.main(["explain", path, "shape=96"]) == 2
    assert "shape: '96' is no shape; write h/d_ff/a" in capsys.readouterr().err


def code_of(row: dict[str, str]) -> int:
    return int(code(*(int(row[name]) for name in ("h", "d_ff", "a"))))


def test_a_report_names_shapes(tmp_path: Path, model: str) -> None:
    kept(tmp_path / "run", model)
    runs = open_runs(["run"], str(tmp_path))
    sentence = families(runs)[0].series[0].verdict.sentence
    assert sentence.startswith("h/d_ff/a ")
    assert "over the baseline 96/256/6" in sentence
    assert "h/d_ff/a" in markdown(runs)
    assert b"h/d_ff/a" in html(runs)
    assert picture(runs, "png", "family").startswith(b"\x89PNG")
    assert b"d_ff" in picture(runs, "svg", "family")
