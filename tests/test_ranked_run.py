"""The end of a run is the same whether its ranking is made in memory or in batches."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from orchestrator import large_ranking, ranked_run, ranking
from orchestrator.canary import canary_bundle
from orchestrator.cli import main
from orchestrator.config import compose, to_dict
from orchestrator.driver import SweepResult
from orchestrator.engine import Spent
from orchestrator.errors import StoreError
from orchestrator.forms import JSON, TABLES
from orchestrator.interrupts import Interrupts
from orchestrator.laps import Laps
from orchestrator.ledger import GemmFailure
from orchestrator.ranking import rank
from orchestrator.schema import Config, Rank
from orchestrator.space import expand_space, plan_hash
from orchestrator.store import RunStore, shard_table
from orchestrator.verbs.run import _conclude, broken_off
from tasks.family import Bundle, Family
from tasks.records import GemmFacts
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, per_flop, read_ranking, up_family

COSTS = per_flop({128: 1.0, 256: 1.002, 384: 1.3})
WORDS = ("space.h=64", "space.tp=1", "space.roles=mlp_up", "space.seq=16", "space.d_ff=[128,160]")
WHOLE = SweepResult(bundles=3, unfinished=0, failures=(), skipped=(), devices=(DEVICE,), interrupted=False)
FAILED = GemmFailure(bundle_id="x", facts=GemmFacts(gemm_id="y", status="oom", message="too large"))


@pytest.fixture(params=["in memory", "in batches"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    return _set(monkeypatch, large=request.param == "in batches")


def _set(monkeypatch: pytest.MonkeyPatch, *, large: bool) -> bool:
    """Let a run of any size be a large one, and fail where it is ranked in memory all the same."""
    if large:
        monkeypatch.setattr(large_ranking, "LARGE", -1)
        for module in (ranking, ranked_run):
            monkeypatch.setattr(module, "rank", None)
    return large


SHARD = ("attempt", "canary", "plan_hash")


def keep(store: RunStore, family: Family | Bundle, **more: Any) -> None:
    named = {"attempt": 1, "plan_hash": "p", **{name: more.pop(name) for name in SHARD if name in more}}
    cost, device = more.pop("cost", COSTS), replace(DEVICE, uuid=more.pop("uuid", "GPU-0"))
    measured = measurement(family, cost, noise=0.01, rounds=12, device=device, **more)
    store.write_shard(shard_table(as_bundle(family), measured, Timing(), code_version="1", **named))


def begun(folder: Path, status: str = "running") -> RunStore:
    return RunStore.create(folder, "it", {"status": status, "bundles": 3})


def conclude(store: RunStore, result: SweepResult, form: str = TABLES, *, pressed: bool = False) -> int:
    laps, interrupts = Laps(iter(range(100)).__next__), Interrupts()
    interrupts.count = int(pressed)
    laps.measured(None, Spent())
    return _conclude(compose("cpu"), store, result, interrupts, form, laps)


def ended(store: RunStore) -> dict[str, Any]:
    """All that a run leaves behind but the time of day."""
    manifest = {name: value for name, value in store.manifest().items() if name != "ended_utc"}
    return {"manifest": manifest, "rows": read_ranking(store).to_pylist(), "text": store.markdown_path.read_text()}


def both(tmp_path: Path, fill: Any, result: SweepResult, **options: Any) -> Iterator[tuple[int, RunStore]]:
    """Yield the exit code and the run: ranked in memory, then in batches."""
    for large in (False, True):
        with pytest.MonkeyPatch.context() as patched:
            store = begun(tmp_path / f"{large}")
            fill(store)
            _set(patched, large=large)
            yield conclude(store, result, **options), store


def all_well(store: RunStore) -> None:
    for h in (64, 128, 256):
        keep(store, up_family([128, 256, 384], h=h, baseline=128))


def one_failed(store: RunStore) -> None:
    all_well(store)
    family = up_family([128, 256], h=512)
    keep(store, family, status={gemm.gemm_id: ("oom", "too large") for gemm in family.gemms})


def none_went_well(store: RunStore) -> None:
    family = up_family([128, 256])
    keep(store, family, status={gemm.gemm_id: ("skipped", "too large") for gemm in family.gemms})


def one_suspect(store: RunStore) -> None:
    """Five devices, one of which is slow, and measured a Family that no other has."""
    canary = canary_bundle("fp16")
    for number, uuid in enumerate(("GPU-0", "GPU-1", "GPU-2", "GPU-3", "GPU-4")):
        slow = 1.2 if uuid == "GPU-4" else 1.0
        shapes = {part.gemm.n: slow for candidate in canary.families[0].candidates for part in candidate.parts}
        for reading in (1, 2):
            keep(store, canary, cost=per_flop(shapes), attempt=reading, uuid=uuid)
        keep(store, up_family([128, 256], h=64 * (number + 1)), uuid=uuid, canary=1)


def one_damaged(store: RunStore) -> None:
    all_well(store)
    path = store.shard_paths()[0]
    metadata = pq.ParquetFile(path).metadata
    place = metadata.row_group(0).column(metadata.schema.names.index("flops"))
    content = bytearray(path.read_bytes())
    content[place.dictionary_page_offset + place.total_compressed_size - 1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("fill", "changes", "pressed", "code", "status"),
    [
        (all_well, {}, False, 0, "finished"),
        (one_failed, {"failures": (FAILED,)}, False, 1, "finished"),
        (none_went_well, {"skipped": (FAILED,)}, False, 1, "finished"),
        (one_damaged, {}, False, 1, "finished"),
        (all_well, {"unfinished": 2, "problem": "no worker lives"}, False, 1, "unfinished"),
        (all_well, {"unfinished": 2, "interrupted": True}, True, 130, "interrupted"),
        (all_well, {}, True, 130, "finished"),  # pressed while it was ranked
    ],
)
def test_a_sweep_ends_alike(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    fill: Any,
    changes: Mapping[str, Any],
    pressed: bool,
    code: int,
    status: str,
) -> None:
    found = []
    for returned, store in both(tmp_path, fill, replace(WHOLE, **changes), pressed=pressed):
        printed = [text.replace(str(store.path), "RUN") for text in capsys.readouterr()]
        assert (returned, store.manifest()["status"]) == (code, status)
        found.append((ended(store), printed))
    assert found[0] == found[1]
    assert found[0][0]["rows"] == rank(store).table.to_pylist()
    problems = [
        text for text in (changes.get("problem"), "not all: 2 bundles" * bool(changes.get("unfinished"))) if text
    ]
    assert [problem in found[1][1][0] for problem in problems] == [True] * len(problems)
    damaged = "is corrupt and was left out"
    assert [damaged in text for text in (found[1][1][0], found[1][0]["text"])] == [fill is one_damaged] * 2
    assert found[1][1][1].startswith("3.0 s: ")  # a second each: device, other, rank


def test_what_a_suspect_device_measured_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes, rows, notes = [], [], []
    for code, store in both(tmp_path, one_suspect, WHOLE):
        codes.append(code)
        rows.append(read_ranking(store).to_pylist())
        notes.append("suspect: GPU-4" in " ".join(capsys.readouterr().out.split()))
    assert (codes, notes) == ([1, 1], [True, True])
    assert rows[0] == rows[1]
    assert [row["status"] for row in rows[0]].count("suspect") == 2


def test_a_program_gets_all_rows_of_a_large_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = begun(tmp_path)
    all_well(store)
    monkeypatch.setattr(large_ranking, "LARGE", -1)
    monkeypatch.setattr(large_ranking, "SHOWN", 3)
    assert conclude(store, WHOLE, JSON) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 9


def test_an_interrupted_run_in_which_nothing_was_measured_is_not_kept(tmp_path: Path, large: bool) -> None:
    store = begun(tmp_path)
    assert conclude(store, replace(WHOLE, interrupted=True), pressed=True) == 130
    assert not store.path.exists()


def test_where_the_ranking_cannot_be_written_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], large: bool
) -> None:
    store = begun(tmp_path)
    all_well(store)
    store.ranking_path.mkdir()  # no file takes its place
    monkeypatch.setattr(large_ranking, "SHOWN", 3)
    with pytest.raises(StoreError, match="cannot write"), broken_off(compose("cpu"), store):
        conclude(store, WHOLE)
    out = capsys.readouterr().out
    assert store.manifest()["status"] == "failed"
    assert ("mlp_up h=64" in out, "mlp_up h=128" in out) == (True, not large)
    shown = "only the first 3 of 9 candidates are shown: `rank` writes all to ranking.parquet"
    assert (shown in " ".join(out.split())) == large


# A resume with nothing to do


def measured(folder: Path, status: str) -> RunStore:
    """A run of WORDS, all of which is measured."""
    config: Config = compose("cpu", WORDS)
    expansion = expand_space(config)
    plan = plan_hash(config, expansion)
    facts = {"conf": "cpu", "config": to_dict(config), "plan_hash": plan, "status": status}
    store = RunStore.create(folder, "it", facts)
    for bundle in expansion.bundles:
        keep(store, bundle, plan_hash=plan)
    return store


@pytest.mark.parametrize("status", ["interrupted", "finished"])
def test_a_resume_with_nothing_to_do_ends_alike(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    found = []
    for large in (False, True):
        _set(monkeypatch, large=large)
        store = measured(tmp_path / f"{large}", status)
        assert main([f"resume={store.path}", f"run.dir={store.path.parent}", "resume_anyway=true"]) == 0
        found.append([text.replace(str(store.path), "RUN") for text in capsys.readouterr()])
        assert store.ranking_path.exists() == (status != "finished")  # one that is concluded is left as it is
        assert store.manifest()["status"] == "finished"
        if status != "finished":
            assert read_ranking(store).equals(rank(store).table)
    assert found[0] == found[1]
    assert "RUN: nothing to do" in found[1][1]
    assert "mlp_up h=64" in found[1][0]


# The committed examples

EXAMPLES = Path(__file__).parents[1] / "results" / "examples"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in EXAMPLES.glob("*/manifest.json")))
def test_an_examples_ranking_is_what_its_shards_say(name: str, tmp_path: Path) -> None:
    # else `rank`, `report` and the README would show another ranking than the one that is committed
    store = RunStore.open(shutil.copytree(EXAMPLES / name, tmp_path / name))
    committed, text = read_ranking(store), (store.path / "ranking.md").read_text("utf-8")
    ranked_run.rank_run(store, Rank().top).write()
    order = ["gpu", "family_id", "value", "rank", "tie_group", "status"]
    assert committed.select(order).equals(read_ranking(store).select(order))
    assert (store.path / "ranking.md").read_text("utf-8") == text
