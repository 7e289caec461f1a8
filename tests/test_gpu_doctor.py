"""The inspection on a real NVIDIA GPU, against torch and nvidia-smi.

Runs where torch sees a GPU: ``python -m pytest -m gpu tests/test_gpu_doctor.py``. Nothing here opens a CUDA context in
the process of the tests: the inspection would find it on the GPU.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from orchestrator import cli
from orchestrator.health import examine
from orchestrator.health_records import Finding
from tasks.gpu_facts import GpuFacts, read_nvml
from tasks.inspection import NodeFacts, inspect_node
from tests.inspected import fleet, report

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available() or bool(torch.version.hip), reason="torch sees no NVIDIA GPU"),
]

ROOT = Path(cli.__file__).parents[1]
GIB = 2**30
HELD_GIB = 20

TORCH = """
import json, torch
free, total = torch.cuda.mem_get_info(0)
facts = torch.cuda.get_device_properties(0)
print(json.dumps({"uuid": f"GPU-{facts.uuid}", "name": facts.name, "total": total, "free": free}))
"""
HOLD = f"""
import sys, torch
held = torch.empty({HELD_GIB} << 30, dtype=torch.uint8, device="cuda:0").zero_()
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def by_torch() -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", TORCH], capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def node() -> NodeFacts:
    return inspect_node(("tasks.measure",), 120.0)


def of(found: tuple[GpuFacts, ...], uuid: str) -> GpuFacts:
    return next(gpu for gpu in found if gpu.uuid == uuid)


def test_name_uuid_and_memory_are_those_that_torch_tells(node: NodeFacts, by_torch: dict[str, Any]) -> None:
    gpu = of(node.gpus, by_torch["uuid"])
    assert gpu.name == by_torch["name"]
    assert gpu.memory_bytes == pytest.approx(by_torch["total"], rel=0.03)
    # torch's own context, some hundred MB, is open while it looks
    assert gpu.free_bytes == pytest.approx(by_torch["free"], abs=2 * GIB)


def test_torch_can_use_every_gpu_that_it_sees(node: NodeFacts, by_torch: dict[str, Any]) -> None:
    assert (node.torch.error, node.torch.modules) == (None, ())
    assert by_torch["uuid"] in {device.uuid for device in node.torch.devices}
    assert {device.error for device in node.torch.devices} == {None}
    assert {device.uuid for device in node.torch.devices} <= {gpu.uuid for gpu in node.gpus}


def test_the_clock_under_a_light_load_is_near_the_highest(node: NodeFacts) -> None:
    highest = {gpu.uuid: gpu.clock_max_mhz for gpu in node.gpus}
    for device in node.torch.devices:
        limit = highest[device.uuid]
        assert limit is not None
        assert device.busy_clock_mhz is not None
        assert 0.9 * limit <= device.busy_clock_mhz <= 1.02 * limit


@pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="there is no nvidia-smi")
def test_settings_are_those_that_nvidia_smi_tells(node: NodeFacts, by_torch: dict[str, Any]) -> None:
    fields = "driver_version,ecc.mode.current,power.limit,power.default_limit,clocks.max.sm,compute_mode"
    words = ["nvidia-smi", f"--id={by_torch['uuid']}", f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip().split(", ")
    gpu = of(node.gpus, by_torch["uuid"])
    assert node.driver == told[0]
    assert gpu.ecc == {"Enabled": True, "Disabled": False}.get(told[1])
    assert gpu.power_limit_w == pytest.approx(float(told[2]), abs=1)
    assert gpu.power_limit_default_w == pytest.approx(float(told[3]), abs=1)
    assert gpu.clock_max_mhz == float(told[4])
    assert (gpu.compute_mode or "").replace("_", "") == told[5].lower().replace("_", "")


def test_a_gpu_tells_its_memory_errors_and_its_reasons(node: NodeFacts, by_torch: dict[str, Any]) -> None:
    gpu = of(node.gpus, by_torch["uuid"])
    if gpu.ecc:
        assert (gpu.ecc_volatile, gpu.ecc_aggregate) >= (0, 0)
        assert gpu.remap_pending is not None
    assert gpu.reasons is not None
    assert gpu.temperature_c is not None
    assert 10 < gpu.temperature_c < 100


@contextmanager
def somebody() -> Iterator[int]:
    """Another process that holds memory of the GPU; yields its pid."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process.pid
        finally:
            process.communicate()


def findings(node: NodeFacts, uuid: str) -> dict[str, Finding]:
    found = examine(fleet(report("here", node, here=True), wanted="any"))
    return {finding.rule: finding for finding in found if finding.gpu == uuid}


def test_another_process_on_the_gpu_is_named(by_torch: dict[str, Any]) -> None:
    before = of(read_nvml().gpus, by_torch["uuid"])
    with somebody() as pid:
        node = inspect_node((), 120.0)
    gpu = of(node.gpus, by_torch["uuid"])
    assert before.free_bytes is not None
    assert gpu.free_bytes is not None
    assert before.free_bytes - gpu.free_bytes >= HELD_GIB * GIB
    found = findings(node, by_torch["uuid"])
    assert found["gpu_memory"].severity == "problem"
    known = {process.pid for process in before.processes or ()}  # other tests of this process may hold a context
    new = [process for process in gpu.processes or () if process.pid not in known]
    if not new:
        pytest.skip("NVML lists no processes in this container")
    (holder,) = new
    if holder.pid != pid:
        assert not Path(f"/proc/{holder.pid}").exists()  # a pid of the host, as NVML tells them in a container
    assert holder.memory_bytes is None or holder.memory_bytes >= HELD_GIB * GIB
    assert found["gpu_in_use"].severity == "problem"
    assert f"(pid {holder.pid}" in found["gpu_in_use"].message
    assert "clocks_low" not in found  # two processes share the clock's time


@pytest.mark.ray
def test_the_verb_sees_what_ray_nvml_and_torch_see(tmp_path: Path, by_torch: dict[str, Any]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "orchestrator", "doctor", "cluster.gpu=any", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.stderr == ""
    found = json.loads(done.stdout)
    (node,) = found["nodes"]
    assert done.returncode == int(not found["ok"])
    assert node["node"]["gpus"] == len(node["facts"]["torch"]["devices"])
    assert by_torch["uuid"] in {gpu["uuid"] for gpu in node["facts"]["gpus"]}
    rules = {finding["rule"] for finding in found["findings"] if finding["severity"] == "problem"}
    # what a shared machine may have; nothing else is wrong with it
    assert rules <= {"gpu_in_use", "gpu_memory", "power_limit", "ecc_errors"}, found["findings"]
