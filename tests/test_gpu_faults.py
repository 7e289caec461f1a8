"""Real faults of a real GPU in one sweep: out of memory, a device-side assert, a kernel that outlives its deadline."""

import time
from collections import Counter
from pathlib import Path

import pytest
import torch

from orchestrator import cluster
from orchestrator.config import compose
from orchestrator.driver import sweep
from orchestrator.progress import Board, LogView
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tests.gpu_faults import ASSERTS, HANGS, HERE, TOO_LARGE

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]

GUILTY = {3: (ASSERTS, "illegal_access"), 7: (HANGS, "timeout"), 11: (TOO_LARGE, "oom")}
"""By the Family's number: n of its bad Gemm, and the status that it must end with."""
GOOD = (1024, 2048, 3072)
FAMILIES = 20


def bundle(number: int) -> Bundle:
    """One Family of three good Gemms, and a bad one where its number says so."""
    h = 1024 + 64 * number
    widths = sorted((*GOOD, *([GUILTY[number][0]] if number in GUILTY else [])))
    m = {n: 65536 if n == TOO_LARGE else 2048 for n in widths}
    gemms = {n: Gemm(kind="mm", b=1, m=m[n], n=n, k=h, dtype="fp16", layout="nt") for n in widths}
    candidates = tuple(Candidate(value=n, parts=(Part(name="up", gemm=gemms[n]),)) for n in widths)
    return Bundle(families=(Family(role="mlp_up", h=h, tp=1, batch=1, seq=2048, dtype="fp16", candidates=candidates),))


def used_bytes() -> int:
    """Bytes in use on the GPU, by NVML: torch would make a context of its own to tell."""
    import pynvml

    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).used)


def test_three_real_faults_cost_three_gemms_and_nothing_else(tmp_path: Path) -> None:
    before = used_bytes()
    config = compose(
        "auto",
        [
            "cluster.gpu=any",
            "cluster.max_gpus=1",
            "timing.max_seconds=0.2",
            "timing.soak_max_s=3",
            "timing.redo_throttled=0",
            "run.least_deadline_s=12",
        ],
    )
    work = [bundle(number) for number in range(FAMILIES)]
    store = RunStore.create(tmp_path, "run", {})
    with cluster.connect(config.cluster) as own_ray:
        result = sweep(
            config,
            work,
            store,
            progress=Board(work, LogView()),
            code_version="test",
            plan_hash="hash",
            open_device=f"{HERE}:open_device",
            own_ray=own_ray,
        )
    assert (result.bundles, result.unfinished, result.exit_code, result.problem) == (FAMILIES, 0, 1, "")
    expected = {(bundle(number).bundle_id, n, status) for number, (n, status) in GUILTY.items()}
    found = {
        (failure.bundle_id, int(failure.facts.gemm_id.split("x")[2]), failure.facts.status)
        for failure in result.failures
    }
    assert found == expected
    rows = store.reader().facts().table.to_pylist()
    assert Counter(row["status"] for row in rows) == {"ok": 3 * FAMILIES, "oom": 1, "timeout": 1, "illegal_access": 1}
    samples = store.reader().samples().table.to_pylist()
    visits = Counter((row["bundle_id"], row["gemm_id"], row["round"]) for row in samples)
    assert set(visits.values()) == {1}
    assert len({row["gemm_id"] for row in samples}) == 3 * FAMILIES
    assert Counter(row["status"] for row in rank(store).table.to_pylist()) == Counter(row["status"] for row in rows)
    until = time.monotonic() + 20
    while used_bytes() > before + 2**20 and time.monotonic() < until:
        time.sleep(0.2)
    assert used_bytes() <= before + 2**20
