"""What holds for a run after whatever has happened to it: nothing that was measured is lost, and nothing is twice."""

import os
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tests.builders import read_ranking

ENDS = ("finished", "unfinished", "interrupted", "failed")


def check(
    run: Path,
    *,
    status: str | None = None,
    again: Collection[str] = (),
    corrupt: int = 0,
    ended: Iterable[dict[str, Any]] | None = None,
    lost: int = 0,
) -> None:
    """Fail unless the run keeps the promise.

    status: what its manifest says; None: any, and "running" only where its driver was killed. again: ids of Bundles
    that the test had measured again although they had samples. corrupt: Shards that the test has spoilt.
    ended: the measurements that workers have ended, as their journal notes them; all but ``lost`` of them are on disk.
    """
    store = RunStore.open(run)
    reader = store.reader()
    samples, facts = reader.samples().table.to_pylist(), reader.facts().table.to_pylist()
    assert len(reader.problems) == corrupt, reader.problems
    _nothing_twice(samples, facts, again)
    _whole(samples, facts)
    _consistent(store, facts, status, corrupt)
    if ended is not None and not corrupt:
        measured = Counter((event["bundle"], event["samples"]) for event in ended)
        counts = Counter((row["bundle_id"], row["uuid"], row["attempt"]) for row in samples)
        on_disk = Counter((bundle_id, count) for (bundle_id, _, _), count in counts.items())
        assert (on_disk - measured).total() == 0
        assert (measured - on_disk).total() <= lost, measured - on_disk


def _nothing_twice(samples: list[dict[str, Any]], facts: list[dict[str, Any]], again: Collection[str]) -> None:
    visits = Counter(
        tuple(row[name] for name in ("uuid", "bundle_id", "attempt", "gemm_id", "round")) for row in samples
    )
    assert set(visits.values()) <= {1}
    places = Counter(
        tuple(row[name] for name in ("uuid", "bundle_id", "attempt", "round", "position")) for row in samples
    )
    assert set(places.values()) <= {1}
    attempts: dict[tuple[str, str], set[int]] = defaultdict(set)
    for row in samples:
        attempts[row["bundle_id"], row["gemm_id"]].add(row["attempt"])
    twice = {bundle for (bundle, _), numbers in attempts.items() if len(numbers) > 1}
    # An interrupt may leave too few rounds to rank: those are kept, and the Family is measured again.
    short = {row["bundle_id"] for row in facts if row["stop_reason"] == "interrupted"}
    assert twice <= {*again, *short}


def _whole(samples: list[dict[str, Any]], facts: list[dict[str, Any]]) -> None:
    """Each Shard has all the rounds that it says it has, and samples of each Gemm that it says was measured."""
    rounds: dict[tuple[Any, ...], set[int]] = defaultdict(set)
    gemms: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row in samples:
        key = row["uuid"], row["bundle_id"], row["attempt"]
        rounds[key].add(row["round"])
        gemms[key].add(row["gemm_id"])
    for row in facts:
        key = row["uuid"], row["bundle_id"], row["attempt"]
        first = row["first_round"] or 0
        assert {number for number in rounds[key] if number >= first} == set(range(first, first + row["rounds"]))
        assert (row["gemm_id"] in gemms[key]) == (row["status"] == "ok")


def _consistent(store: RunStore, facts: list[dict[str, Any]], status: str | None, corrupt: int) -> None:
    manifest = store.manifest()
    assert status is None or manifest["status"] == status
    if manifest["status"] == "running":
        assert not Path(f"/proc/{manifest['pid']}").exists() or manifest["pid"] == os.getpid()
    else:
        assert manifest["status"] in ENDS
        assert not [path for path in store.path.rglob(".*") if path.name != ".lock"]
    if manifest["status"] == "finished":
        bundles = {row["bundle_id"] for row in facts}
        assert (manifest["bundles_ended"], manifest["bundles_unfinished"]) == (manifest["bundles"], 0)
        assert manifest["bundles"] - corrupt <= len(bundles) <= manifest["bundles"]
        assert read_ranking(store).equals(rank(store).table)
