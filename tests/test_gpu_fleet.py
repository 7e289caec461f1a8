"""Two real GPUs: a table of both, and one that another process slows in the middle of a sweep."""

import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator.ranking import rank
from orchestrator.store import RunStore

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="torch sees fewer than two GPUs"),
]

SPACE = ("space.roles=mlp_up", "space.tp=1", "space.d_ff={ratio: 8/3, distance: 64, step: 32}", "timing.soak_max_s=6")
COMPETITOR = """
import sys, time, pathlib, torch
a = torch.randn(8192, 8192, device="cuda:1", dtype=torch.half)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
end = time.monotonic() + 120
while time.monotonic() < end:
    for _ in range(20):
        a @ a
    torch.cuda.synchronize()
"""


def command(path: Path, *words: str) -> list[str]:
    words = ("conf=auto", *SPACE, *words, f"run.dir={path}", "run.name=it")
    return [sys.executable, "-m", "orchestrator", *words]


def facts(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = RunStore.open(path / "it").reader().facts().table.to_pylist()
    return rows


def test_replicated_families_are_measured_by_both_and_compared_in_a_table(tmp_path: Path) -> None:
    words = ("space.h=[2048,3072,4096]", "cluster.placement=replicate", "timing.max_seconds=0.5")
    done = subprocess.run(command(tmp_path, *words), capture_output=True, text=True, check=False, timeout=150)
    sys.stdout.write(done.stdout[-3000:])
    assert done.returncode == 0, done.stderr
    by_family = defaultdict(set)
    for row in facts(tmp_path):
        by_family[row["bundle_id"]].add(row["uuid"])
    assert {len(uuids) for uuids in by_family.values()} == {2}
    for uuid in by_family.popitem()[1]:
        assert uuid.removeprefix("GPU-")[:8] in done.stdout


@contextmanager
def competitor(start: Path) -> Iterator[None]:
    """Load the second GPU from the moment on that the file ``start`` is there."""
    process = subprocess.Popen([sys.executable, "-c", COMPETITOR, str(start)])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_gpu_that_another_process_slows_is_named_and_its_families_are_measured_again(tmp_path: Path) -> None:
    start, out, log = tmp_path / "start", tmp_path / "out.txt", tmp_path / "log.txt"
    words = ("space.h={start: 2048, stop: 6144, step: 128}", "cluster.canary_every=3", "timing.max_seconds=0.8")
    with competitor(start), out.open("w") as stdout, log.open("w") as stderr:
        sweep = subprocess.Popen(command(tmp_path, *words), stdout=stdout, stderr=stderr)
        until = time.monotonic() + 90
        while len(list(tmp_path.rglob("mlp_up*.parquet"))) < 8 and time.monotonic() < until and sweep.poll() is None:
            time.sleep(0.05)
        start.touch()
        code = sweep.wait(150)
    sys.stdout.write(log.read_text()[-3000:] + out.read_text()[-3000:])
    assert code == 0
    slow = f"GPU-{torch.cuda.get_device_properties(1).uuid}"
    assert slow in re.findall(r"suspect: .*?(GPU-[0-9a-f-]+)", log.read_text())
    by_family = defaultdict(set)
    for row in facts(tmp_path):
        if not row["bundle_id"].startswith("canary"):
            by_family[row["bundle_id"]].add(row["uuid"])
    again = {bundle_id for bundle_id, uuids in by_family.items() if len(uuids) == 2}
    ranking = rank(RunStore.open(tmp_path / "it"))
    rows = ranking.table.to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    # The other one may be doubted for a moment on the way; once all canaries are in, the slow one alone is named.
    assert {uuid for note in ranking.notes for uuid in re.findall(r"GPU-[0-9a-f-]+", note)} == {slow}
    left_out = {row["family_id"] for row in rows if row["family_id"] in again and slow not in row["devices"]}
    assert 1 <= len(left_out) <= len(again) <= 12
