"""What a node needs: Ray, torch, pyarrow and numpy, with what these need themselves. The project's code is sent."""

import json
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires

WORKER = """
import importlib.abc, json, os, sys

absent = set(json.loads(sys.argv[1]))

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent:
            raise ModuleNotFoundError(f"No module named {name!r}: not on a node", name=name)

sys.meta_path.insert(0, Absent())

import orchestrator.worker, tasks.measure
from orchestrator.engine import Result
from orchestrator.queue import Assignment
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.settings import Timing

def candidate(d_ff):
    gemm = Gemm(kind="mm", b=1, m=16, n=d_ff, k=32, dtype="fp32")
    return Candidate(value=d_ff, parts=(Part(name="up", gemm=gemm),))

family = Family(
    role="mlp_up", h=32, tp=1, batch=1, seq=16, dtype="fp32", candidates=(candidate(32), candidate(64))
)
timing = Timing(soak_min_s=0, soak_max_s=0, max_seconds=0.1)
spec = orchestrator.worker.WorkerSpec(kind="cpu", timing=timing, code_version="1", plan_hash="x")
worker = orchestrator.worker.Worker(spec)
info = list(worker.open())[-1]
bundle = Bundle(families=(family,))
result = list(worker.measure([Assignment(bundle=bundle, attempt=1, worker="w", device=info.uuid)]))[-1][-1]
import pyarrow.parquet
rows = pyarrow.parquet.read_table(pyarrow.BufferReader(result.shard)).num_rows if isinstance(result, Result) else result
print(json.dumps({"kind": info.kind, "rows": rows}), flush=True)
os._exit(0)  # as Ray ends a worker: of an interpreter's own end torch's threads sometimes make an abort
"""


def closure(names: set[str]) -> set[str]:
    """Return the distributions that are installed with ``names``."""
    found: set[str] = set()
    while names:
        name = names.pop()
        try:
            wanted = requires(name) or []
        except PackageNotFoundError:
            continue  # for another platform
        found.add(name)
        plain = {normal(re.split(r"[^A-Za-z0-9._-]", text)[0]) for text in wanted if "extra ==" not in text}
        names |= plain - found
    return found


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def absent_on_a_node() -> list[str]:
    """Return the modules that are installed here and that a node does not need, by their first names."""
    on_a_node = closure({"ray", "torch", "pyarrow", "numpy"})
    project = {"orchestrator", "tasks"}
    others = {module for module, names in packages_distributions().items() if not set(map(normal, names)) & on_a_node}
    # Ray needs YAML; the worker must not.
    return sorted((others | {"yaml"}) - project - {"_distutils_hack", "setuptools"})


def test_a_worker_measures_with_what_a_node_has() -> None:
    absent = absent_on_a_node()
    assert {"omegaconf", "rich", "pynvml", "yaml", "conf"} <= set(absent)
    assert not {"ray", "torch", "pyarrow", "numpy"} & set(absent)
    done = subprocess.run(
        [sys.executable, "-c", WORKER, json.dumps(absent)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["kind"] == "cpu"
    # two Gemms' facts, and a sample of each in every round
    assert report["rows"] >= 2 + 2 * 2
