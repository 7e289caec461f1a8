"""A ranking in batches is the ranking: the same rows in the same order, to the bit, whatever a run holds."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import at_once, large_ranking, ranking, ranking_stream
from orchestrator.canary import canary_bundle
from orchestrator.cli import main
from orchestrator.columns import RANKING_SCHEMA
from orchestrator.compaction import compact
from orchestrator.ranking import Ranking, rank
from orchestrator.ranking_stream import DamagedError, RankingStream
from orchestrator.store import RunStore, shard_table
from orchestrator.timed import Families, timed
from tasks.family import Bundle, Family
from tasks.gemm import Gemm
from tasks.measure import measure_bundle
from tasks.settings import Timing
from tests.builders import DEVICE, Cost, as_bundle, measurement, mlp_family, per_flop, up_family
from tests.scripted import ScriptedDevice

EXAMPLES = sorted(
    path for path in (Path(__file__).parents[1] / "results" / "examples").iterdir() if (path / "shards").is_dir()
)


def keep(store: RunStore, family: Family | Bundle, cost: Cost, **more: Any) -> Path:
    shard = {name: more.pop(name) for name in ("attempt", "canary") if name in more}
    timing, device = more.pop("timing", Timing()), more.pop("uuid", "GPU-0")
    measured = measurement(family, cost, device=replace(DEVICE, uuid=device), **more)
    table = shard_table(
        as_bundle(family), measured, timing, code_version="1", plan_hash="abc", **{"attempt": 1, **shard}
    )
    return store.write_shard(table)


def streamed(store: RunStore, **options: Any) -> tuple[pa.Table, RankingStream]:
    stream = RankingStream(store.reader(), **options)
    return pa.concat_tables([RANKING_SCHEMA.empty_table(), *stream.batches()]), stream


def ranked(store: RunStore, at_once: float, **options: Any) -> Ranking:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ranking, "AT_ONCE", at_once)
        return rank(store, **options)


def one_by_one(store: RunStore, **options: Any) -> Ranking:
    return ranked(store, math.inf, **options)


def assert_same(store: RunStore, **options: Any) -> pa.Table:
    """Rank Families one by one, at once, and in batches."""
    expected, (found, stream) = one_by_one(store, **options), streamed(store, **options)
    assert ranked(store, 1, **options) == expected
    assert found.schema.equals(expected.table.schema, check_metadata=True)
    assert found.to_pylist() == expected.table.to_pylist()
    assert (stream.notes, stream.problems) == (expected.notes, expected.problems)
    return found


@pytest.fixture
def store(tmp_path: Path) -> RunStore:
    return RunStore.create(tmp_path, "run", {"status": "interrupted"})


def test_where_the_device_is_slow_a_visit_counts_as_it_would_have_been_otherwise(tmp_path: Path) -> None:
    families = (up_family([128, 256, 384]), mlp_family([128, 256], h=32))
    tables = []
    for unsteady in (0.0, 0.1):
        store = RunStore.create(tmp_path, f"{unsteady}", {"status": "finished"})
        for family in families:
            keep(store, family, per_flop({128: 1.0, 256: 1.02, 384: 1.04}), noise=1e-3, unsteady=unsteady)
        tables.append(assert_same(store).to_pylist())
    for one, other in zip(*tables, strict=True):
        for name in ("seconds", "p5_s", "p95_s", "cv", "relative", "relative_high"):
            assert one[name] == pytest.approx(other[name], rel=1e-9), name
        assert [part["seconds"] for part in one["parts"]] == pytest.approx([p["seconds"] for p in other["parts"]])
    assert [row["tie_group"] for row in tables[1]] == [1, 2, 1, 2, 3]


COSTS = per_flop({128: 1.0, 256: 1.002, 384: 1.3, 512: 1.0})


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    families=st.lists(
        st.tuples(
            st.sampled_from([64, 1024, 128]),  # 1024 is before 128 among the files, and after it in the ranking
            st.sampled_from(["up", "mlp"]),
            st.sampled_from([1, 3, 5, 8, 24, 30]),
            st.sampled_from(["whole", "races", "races", "mixed", "fails", "again", "elsewhere", "backwards"]),
            st.sampled_from([2, 4]),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda each: each[:2],
    ),
    compacted=st.booleans(),
    batch=st.sampled_from([1, 200, 10_000]),
    seed=st.integers(0, 1000),
)
def test_it_has_the_rows_of_the_ranking(
    tmp_path_factory: pytest.TempPathFactory,
    families: list[tuple[int, str, int, str, int]],
    compacted: bool,
    batch: int,
    seed: int,
) -> None:
    store = RunStore.create(tmp_path_factory.mktemp("law"), "run", {})
    for h, kind, rounds, how, candidates in families:
        values = [128, 256, 384, 512][:candidates][:: -1 if how == "backwards" else 1]
        family = (up_family if kind == "up" else mlp_family)(values, h=h, baseline=256)
        timing = Timing(protocol={1: "seed", 30: "sequential"}.get(rounds, "interleaved"))

        def races(gemm: Gemm, number: int) -> float:
            return float("nan") if 384 in (gemm.n, gemm.k) and number > 2 else COSTS(gemm, number)

        def mixed(gemm: Gemm, number: int) -> float:
            """One part of a Candidate leaves: another one's Family may still ask for its other part."""
            return float("nan") if gemm.k == 256 and number > 3 else races(gemm, number)

        gone = {family.gemms[0].gemm_id: ("oom", "too large")} if how == "fails" else None
        cost = {"races": races, "mixed": mixed}.get(how, COSTS)
        keep(store, family, cost, rounds=rounds, noise=0.002, random_seed=seed, timing=timing, status=gone)
        if how == "again":
            keep(store, family, COSTS, rounds=rounds, noise=0.002, attempt=2, timing=timing)
        if how == "elsewhere":
            keep(store, family, COSTS, rounds=rounds, noise=0.002, uuid="GPU-1", timing=timing)
    if compacted:
        compact(store)
    with pytest.MonkeyPatch.context() as patched:
        for module in (ranking_stream, at_once):
            patched.setattr(module, "BATCH", batch)
        assert_same(store)


def test_regular_families_are_ranked_at_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def raced(gemm: Gemm, number: int) -> float:
        return float("nan") if 384 in (gemm.n // 2, gemm.k) and number > 1 else COSTS(gemm, number)

    for h in (64, 128, 256):
        keep(store, up_family([128, 256, 384], h=h, baseline=128), COSTS, rounds=12, noise=0.01, random_seed=h)
        keep(store, mlp_family([128, 256], h=h), COSTS, rounds=1, timing=Timing(protocol="seed"))
        keep(store, mlp_family([128, 256, 384], h=h), raced, rounds=h // 16, noise=0.01, uuid="GPU-1")
    expected = one_by_one(store).table
    for module in (ranking, ranking_stream):
        monkeypatch.setattr(module, "rank_family", None)  # whoever is ranked one by one would fail
    assert streamed(store)[0].equals(expected)
    assert ranked(store, 1).table.equals(expected)


def test_what_a_race_measures_is_ranked_at_once(store: RunStore, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(1)
    behind = {128: 1.0, 136: 2.0, 144: 1.02, 152: 1.003, 160: 1.1}

    def cost(gemm: Gemm) -> float:
        slower = behind.get(gemm.n) or behind.get(gemm.n // 2) or behind[gemm.k]
        return gemm.flops * 1e-9 * slower * float(np.exp(0.004 * random.standard_normal()))

    for h in (64, 72):
        for family in (up_family(list(behind), h=h, baseline=144), mlp_family(list(behind), h=h)):
            bundle = as_bundle(family)
            found = measure_bundle(ScriptedDevice(cost), bundle, Timing(soak_min_s=0))
            store.write_shard(shard_table(bundle, found, Timing(), attempt=1, code_version="1", plan_hash="abc"))
    expected = assert_same(store)
    assert len(set(expected["rounds"].to_pylist())) > 3
    monkeypatch.setattr(ranking_stream, "rank_family", None)
    assert streamed(store)[0].equals(expected)


def test_a_bundle_of_several_families_is_ranked_from_the_same_samples(store: RunStore) -> None:
    wide, narrow = up_family([128, 256, 512]), replace(up_family([256, 512]), role="mlp_down")
    keep(store, Bundle(families=(wide, narrow)), COSTS, noise=0.01)
    assert assert_same(store).num_rows == 5


def test_rounds_that_were_throttled_are_left_out(store: RunStore) -> None:
    keep(store, up_family([128, 256]), COSTS, rounds=20, noise=0.01, first_round=6)
    assert assert_same(store)["rounds"].to_pylist() == [14, 14]


def test_a_rounds_number_that_is_missing_makes_no_whole_family(store: RunStore) -> None:
    family = up_family([128, 256])
    path = keep(store, family, COSTS, rounds=12, noise=0.01)
    table = pq.read_table(path, partitioning=None)
    rounds = [None if number is None else number + (number > 5) for number in table["round"].to_pylist()]
    place = table.schema.get_field_index("round")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array(rounds, pa.int32())), path)
    assert assert_same(store)["rounds"].to_pylist() == [12, 12]


@pytest.mark.parametrize("include_suspects", [False, True])
def test_suspect_devices_are_left_out_and_named_alike(store: RunStore, *, include_suspects: bool) -> None:
    canary = canary_bundle("fp16")
    for number, uuid in enumerate(("GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4")):
        slow = 1.2 if uuid == "GPU-4" else 1.0
        shapes = {part.gemm.n: slow for candidate in canary.families[0].candidates for part in candidate.parts}
        for reading in (1, 2):
            keep(store, canary, per_flop(shapes), attempt=reading, uuid=uuid)
        for h in (64, 128 * (number + 1)):
            keep(store, up_family([128, 256], h=h), COSTS, noise=0.01, uuid=uuid, canary=1)
    found = assert_same(store, include_suspects=include_suspects)
    assert ("suspect" in found["status"].to_pylist()) != include_suspects


def test_a_run_of_version_1_is_ranked_alike(store: RunStore) -> None:
    path = keep(store, up_family([128, 256]), COSTS)
    table = pq.read_table(path, partitioning=None).drop_columns(["axis", "value", "params", "passes", "local_dim"])
    pq.write_table(table.replace_schema_metadata({"schema_version": "1"}), path)
    assert assert_same(store)["axis"].to_pylist() == ["d_ff", "d_ff"]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_measured_runs_are_ranked_alike(example: Path) -> None:
    assert assert_same(RunStore.open(example)).num_rows


def test_a_run_without_shards_has_no_rows(store: RunStore) -> None:
    assert assert_same(store).num_rows == 0


@pytest.mark.parametrize("column", ["seconds", "gemm_id", "flops", "family_id"])
def test_a_damaged_file_is_named_and_left_out_when_it_is_begun_anew(store: RunStore, column: str) -> None:
    keep(store, mlp_family([128, 256]), COSTS)
    bad = keep(store, up_family([128, 256]), COSTS, noise=0.01)
    metadata = pq.ParquetFile(bad).metadata
    place = metadata.row_group(int(column == "seconds")).column(metadata.schema.names.index(column))
    content = bytearray(bad.read_bytes())
    content[(place.dictionary_page_offset or place.data_page_offset) + place.total_compressed_size - 1] ^= 1
    bad.write_bytes(content)
    stream = RankingStream(store.reader())
    with pytest.raises(DamagedError):
        list(stream.batches())
    found = pa.concat_tables(stream.batches())
    bad.unlink()
    assert found.equals(rank(store).table)
    assert [problem.partition(": ")[0] for problem in stream.problems] == [f"{bad} is corrupt and was left out"]


def test_a_table_with_impossible_rows_is_no_ranking(store: RunStore) -> None:
    bad = keep(store, up_family([128, 256]), COSTS)
    table = pq.read_table(bad, partitioning=None)
    place = table.schema.get_field_index("tie_pct")
    worse = pa.array([None if value is None else -1.0 for value in table["tie_pct"].to_pylist()], pa.float64())
    pq.write_table(table.set_column(place, table.schema.field(place), worse), bad)
    stream = RankingStream(store.reader())
    with pytest.raises(DamagedError):
        list(stream.batches())
    assert stream.problems[0].endswith("rows without a value, or with an impossible one, in: tie_pct")


def test_only_families_that_nobody_joined_later_are_regular() -> None:
    """By hand: one that is whole, that ``d`` left, that ``f`` joined, without the last round, and one with a level."""
    facts = pa.table(
        {
            "gemm_id": list("abcdefghjk"),
            "status": ["ok"] * 10,
            "axis": ["d_ff"] * 10,
            "first_round": [0, 0, None, None, 0] * 2,
            "flops": [1] * 10,
            "baseline": [False] * 10,
            "protocol": ["interleaved"] * 10,
            "value": [1, 2] * 5,
            "part": ["up"] * 10,
            "tie_pct": [0.5] * 10,
            "confidence": [0.95] * 10,
            "looks": [1] * 10,
            "rounds": [2] * 8 + [1] * 2,
        }
    )
    # i is of another Family of the same Bundle
    visits = ["b0 a0 a1 b1", "c0 d0 c1", "e0 e1 f1", "g0 h0 i0 i1", "j0 k0 j1 k1"]
    samples = [(visit[0], int(visit[1:])) for shard in visits for visit in shard.split()]
    found = timed(
        Families(
            facts=facts,
            samples=pa.table(
                {
                    "gemm_id": [gemm for gemm, _ in samples],
                    "round": [number for _, number in samples],
                    "seconds": np.arange(len(samples)) + 1.0,
                    "slowdown": [1.0] * len(samples),
                }
            ),
            number=np.arange(5),
            start=np.arange(0, 10, 2),
            rows=np.full(5, 2),
            sample_start=np.array([0, 4, 7, 10, 14]),
            sample_rows=np.array([4, 3, 3, 4, 4]),
        )
    )
    forms = [found.forms[number] if number >= 0 else None for number in found.form.tolist()]
    assert [form and (form.rounds, form.raced) for form in forms] == [(2, False), (2, True), None, None, None]
    taken = [found.seconds[first : first + rounds] for first, rounds in zip(found.first, found.rounds, strict=True)]
    assert [each.tolist() for each in taken[:4]] == [[2.0, 3.0], [1.0, 4.0], [5.0, 7.0], [6.0]]


def test_a_large_run_is_ranked_in_batches_and_its_first_families_are_shown(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for h in (64, 128, 256):
        keep(store, up_family([128, 256], h=h), COSTS, rounds=12, noise=0.01)
    expected = rank(store).table
    assert main(["rank", str(store.path)]) == 0
    usual = capsys.readouterr().out
    monkeypatch.setattr(large_ranking, "LARGE", 70)
    monkeypatch.setattr(ranking_stream, "BATCH", 60)
    assert main(["rank", str(store.path)]) == 0
    assert capsys.readouterr().out == usual
    assert pq.read_table(store.ranking_path, partitioning=None).equals(expected)
    monkeypatch.setattr(large_ranking, "SHOWN", 3)
    assert main(["rank", str(store.path)]) == 0
    shown = capsys.readouterr().out
    assert "only the first 2 of 6 candidates are shown: all are in ranking.parquet" in shown
    assert "6 ok" in shown
    assert ("h=64" in shown, "h=128" in shown) == (True, False)
    assert "only the first 2 of 6" in store.markdown_path.read_text()
    assert pq.read_table(store.ranking_path, partitioning=None).equals(expected)


def test_a_large_run_with_a_damaged_file_is_ranked_without_it(
    store: RunStore, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(store, mlp_family([128, 256]), COSTS)
    bad = keep(store, up_family([128, 256]), COSTS, noise=0.01)
    metadata = pq.ParquetFile(bad).metadata
    place = metadata.row_group(0).column(metadata.schema.names.index("flops"))
    content = bytearray(bad.read_bytes())
    content[place.dictionary_page_offset + place.total_compressed_size - 1] ^= 1
    bad.write_bytes(content)
    monkeypatch.setattr(large_ranking, "LARGE", 1)
    assert main(["rank", str(store.path)]) == 1
    assert f"{bad} is corrupt and was left out" in " ".join(capsys.readouterr().out.split())
    assert pq.read_table(store.ranking_path, partitioning=None).equals(rank(store).table)
    assert not list(store.path.rglob(".*.tmp"))
