"""Kernels' names on a real GPU: ``python -m pytest -m gpu tests/test_gpu_kernels.py``."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from orchestrator.store import shard_table
from tasks.device import Device, open_device
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.kernels import JOIN, kernel_names, measure_bundle
from tasks.settings import Timing

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU"),
    pytest.mark.skipif(bool(torch.version.hip), reason="names are known of NVIDIA's graphs"),
]

ROOT = Path(__file__).parents[1]
TIMING = Timing(min_rounds=2, max_rounds=2, race_pct=1e6, soak_min_s=0.0, soak_max_s=0.0)
GEMM_KERNEL = re.compile(r"nvjet|gemm|cutlass|gemv", re.IGNORECASE)


def mm(m: int, n: int, k: int) -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype="fp16", layout="nt")


SHORT = mm(256, 1376, 4096)
"""Replayed from a graph."""
LONG = Gemm(kind="bmm", b=4, m=8192, n=8192, k=8192, dtype="fp16")
"""One call a visit, launched on the stream."""
DEEP = (mm(128, 128, 65536), mm(64, 64, 32768), mm(256, 256, 131072))
"""Few tiles, long sums: libraries split k."""


@pytest.fixture
def device() -> Iterator[Device]:
    opened = open_device("cuda")
    yield opened
    opened.close()


def bundle(*gemms: Gemm) -> Bundle:
    candidates = tuple(Candidate(value=i + 1, parts=(Part(name="up", gemm=g),)) for i, g in enumerate(gemms))
    family = Family(role="mlp_up", h=1, tp=1, batch=1, seq=1, dtype="fp16", candidates=candidates)
    return Bundle(families=(family,))


@pytest.mark.parametrize("gemm", [SHORT, LONG], ids=lambda gemm: gemm.gemm_id)
def test_the_kernel_of_a_measured_gemm_is_in_its_shard(device: Device, gemm: Gemm) -> None:
    work = bundle(gemm)
    found = measure_bundle(device, work, TIMING)
    table = shard_table(work, found, TIMING, attempt=1, code_version="1", plan_hash="p")
    (row,) = (row for row in table.to_pylist() if row["record"] == "facts")
    assert row["status"] == "ok"
    assert row["kernel"] is not None
    assert GEMM_KERNEL.search(row["kernel"])


def test_split_k_runs_two_kernels(device: Device) -> None:
    names = kernel_names(device, DEEP)
    assert len(names) == len(DEEP)
    two = [name.split(JOIN) for name in names.values() if JOIN in name]
    assert two
    for first, second in two:
        assert GEMM_KERNEL.search(first)
        assert "reduce" in second.lower()


PROFILED = """
import re
import torch
from torch.profiler import ProfilerActivity, profile
from tasks.device import open_device
from tasks.kernels import kernel_names
from tests.test_gpu_kernels import DEEP, LONG, SHORT

device = open_device("cuda")
gemms = (SHORT, LONG, *DEEP)
names = kernel_names(device, gemms)
with device.session():
    for gemm in gemms:
        call = device.one_call(gemm)
        call()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as prof:
            call()
            torch.cuda.synchronize()
        events = [event for event in prof.events() if event.device_type.name == "CUDA"]
        events.sort(key=lambda event: event.time_range.start)
        ran = [event.name for event in events if not re.match("mem(set|cpy)", event.name, re.IGNORECASE)]
        assert names[gemm.gemm_id] == " + ".join(ran), (gemm.gemm_id, names[gemm.gemm_id], ran)
"""


@pytest.mark.slow
def test_the_profiler_sees_the_same_kernels_when_they_are_launched() -> None:
    """In a process of its own: where a profiler was, CUPTI stays."""
    done = subprocess.run([sys.executable, "-c", PROFILED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
