"""Exports as the tools themselves read them; they have an environment of their own (``make test-external``)."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.export.writing import write
from tests.exports import EXAMPLE, NODE, SAMPLE, exported

pytestmark = pytest.mark.external
PYTHON = os.environ.get("EXTERNAL_PYTHON", "")
VLLM = {"framework": "vllm", "version": "0.24.0"}

AICONFIGURATOR = """
import json, sys
from pathlib import Path
import aiconfigurator_core
from aiconfigurator_core.sdk.common import GEMMQuantMode
from aiconfigurator_core.sdk.operations.gemm import GEMM
from aiconfigurator_core.sdk.perf_database import get_database

root, system = sys.argv[1:]
database = get_database(system, "vllm", "0.24.0", systems_paths=[root])
GEMM.load_data(database)
table = [
    (dtype.name, m, n, k, float(GEMM("it", 1.0, n, k, dtype)._engine_query(database, x=m)))
    for dtype, of_dtype in database._gemm_data.items()
    for m, of_m in of_dtype.items()
    for n, of_n in of_m.items()
    for k in of_n
]
print(json.dumps(table))
"""
SHIPPED = "import aiconfigurator_core as it, os; print(os.path.join(os.path.dirname(it.__file__), 'systems'))"

LLM_ANALYSIS = """
import json, sys
from llm_analysis.analysis import LLMAnalysis
from llm_analysis.config import ModelConfig, ParallelismConfig, get_dtype_config_by_name, read_configs

folder, flags = sys.argv[1:]
gpus = read_configs(folder, type="gpu")
line = [text for text in open(flags).read().splitlines() if text.startswith("--")][0].split()
told = dict(zip(line[::2], line[1::2]))
model = ModelConfig(name="it", num_layers=2, n_head=32, hidden_dim=4096, vocab_size=32000, max_seq_len=2048)
analysis = LLMAnalysis(
    model,
    gpus[told["--gpu_name"]],
    get_dtype_config_by_name(told["--dtype_name"]),
    ParallelismConfig(),
    achieved_tflops=float(told["--achieved_tflops"]),
)
print(json.dumps([analysis.get_TFLOPS_per_gpu(), analysis.get_gpu_hbm_bandwidth()]))
"""


@pytest.fixture(autouse=True)
def _an_environment() -> None:
    if not PYTHON:
        pytest.skip("EXTERNAL_PYTHON names no environment with the tools: make test-external")


def answer(code: str, *arguments: str) -> Any:
    """What the tool's last line says, as JSON."""
    done = subprocess.run([PYTHON, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def ours() -> dict[tuple[Any, ...], float]:
    measured, _ = exported("csv", SAMPLE, ("dtype=bf16,fp8",))
    names = {"bf16": "bfloat16", "fp8": "fp8"}
    return {
        (names[each.gemm.dtype], each.gemm.m, each.gemm.n, each.gemm.k): each.seconds * 1e3 for each in measured.entries
    }


def answers(rows: Sequence[Sequence[Any]]) -> dict[tuple[Any, ...], float]:
    return {tuple(row[:4]): row[4] for row in rows}


def test_aiconfigurator_has_every_key_and_answers_with_our_latencies(tmp_path: Path) -> None:
    _, found = exported("aiconfigurator", SAMPLE, NODE, VLLM)
    write(tmp_path, found.files)
    rows = answer(AICONFIGURATOR, str(tmp_path), "measured_h200")
    assert answers(rows) == pytest.approx(ours(), rel=1e-6)
    assert len(rows) == 200


def test_a_copy_of_a_shipped_system_answers_with_our_latencies(tmp_path: Path) -> None:
    done = subprocess.run([PYTHON, "-c", SHIPPED], capture_output=True, text=True, check=True)
    given = {**VLLM, "into": str(Path(done.stdout.strip()) / "h200_sxm"), "name": "h200_measured"}
    _, found = exported("aiconfigurator", SAMPLE, (), given)
    write(tmp_path, found.files)
    assert len(found.files) > 100
    assert answers(answer(AICONFIGURATOR, str(tmp_path), "h200_measured")) == pytest.approx(ours(), rel=1e-6)


def test_llm_analysis_computes_with_the_rate_that_was_achieved(tmp_path: Path) -> None:
    words = ("intra_node_gb_s=450", "p2p_latency_s=8e-6")
    _, found = exported("llm-analysis", EXAMPLE, words)
    write(tmp_path, found.files)
    rate, bandwidth = answer(LLM_ANALYSIS, str(tmp_path / "gpu_configs"), str(tmp_path / "flags.txt"))
    (line,) = (text for text in found.files["flags.txt"].decode().splitlines() if text.startswith("--"))
    assert rate == pytest.approx(float(line.split()[-1]))
    assert bandwidth == 4800
