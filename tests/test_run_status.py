"""How far a run is, for reading: what is shown of it, within the terminal."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.run_status import document, lines, run_status
from orchestrator.store import RunStore, shard_table
from tasks.settings import Timing
from tests.builders import DEVICE, as_bundle, measurement, mlp_family, per_flop

MANIFEST = {
    "conf": "h200",
    "overrides": ["space.d_ff={start: 1024, stop: 4096, step: 1024}"],
    "bundles": 3,
    "status": "unfinished",
    "started_utc": "2026-11-30T00:42:15+00:00",
    "seconds": {"plan": 0.25, "ray": 2.0, "measure": 3.5, "end": 0.3},
}


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    """Two devices have measured the same Bundle; on one of them the first Gemm did not fit, at the second attempt."""
    store, bundle = RunStore.create(tmp_path, "it", MANIFEST), as_bundle(mlp_family([128, 256]))
    failed = {bundle.gemms[0].gemm_id: ("oom", "out of memory: " + "123456789 " * 12)}
    for attempt, status, uuid in ((0, None, "GPU-a"), (1, failed, "GPU-a"), (0, None, "GPU-b")):
        measured = measurement(bundle, per_flop({}), status=status, device=replace(DEVICE, uuid=uuid))
        store.write_shard(shard_table(bundle, measured, Timing(), attempt=attempt, code_version="1", plan_hash="a"))
    return store


def test_the_last_attempt_of_each_device_counts(run: RunStore) -> None:
    found = run_status(run)
    assert found.counts == {"ok": 7, "oom": 1}  # 2 devices, 2 values, 2 parts
    assert found.failed
    assert document(found)["bundles"] == {"measured": 1, "all": 3}
    assert document(found)["seconds"] == MANIFEST["seconds"]
    assert [device["uuid"] for device in document(found)["devices"]] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize("width", [80, 60])
def test_the_lines_fit_and_keep_words_whole(run: RunStore, width: int) -> None:
    shown = list(lines(run_status(run), width))
    assert max(len(line) for line in shown if str(run.path) not in line) <= width
    text = " ".join(" ".join(shown).split())
    assert "conf h200 space.d_ff={start: 1024, stop: 4096, step: 1024}" in text
    assert "state unfinished, started 2026-11-30T00:42:15+00:00, ended -" in text
    assert "bundles 1 of 3 have a shard" in text
    assert "time 6.0 s: plan 0.2, Ray 2.0, measure 3.5, end 0.3" in text
    assert "gemms 7 ok, 1 oom" in text
    assert text.count("123456789") == 12
    assert shown[0] == f"run       {run.path}"
    assert shown[-1] == f"next: python -m orchestrator resume={run.path}"
