"""What a process finds out about the node that it runs on: here, with made-up GPUs, and without any."""

import json
import os
import pickle
import platform
import subprocess
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tasks import inspection
from tasks.gpu_facts import COMPUTE_MODES, EVENT_REASONS, GpuProcess, read_nvml
from tasks.inspection import NodeFacts, inspect_node, unhidden
from tasks.probe import TorchDevice, TorchFacts, check_torch
from tests.fake_nvml import GIB, Answers, FakeNvml, NVMLError, h200, process

Install = Callable[..., FakeNvml]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    def put(gpus: Sequence[Answers | Exception] = (), **options: Any) -> FakeNvml:
        fake = FakeNvml(gpus, **options)
        monkeypatch.setitem(sys.modules, "pynvml", fake)
        return fake

    return put


def test_a_gpu_is_read_in_megahertz_watts_and_bytes(install: Install) -> None:
    fake = install([h200(0), h200(1, Temperature={0: 55})])
    node = read_nvml()
    assert (node.driver, node.cuda_driver, node.error, node.unreadable) == ("580.95.05", "13.0", None, ())
    first, second = node.gpus
    assert (first.uuid, first.name) == ("GPU-00000000-1111-2222-3333-444444444444", "NVIDIA H200")
    assert (first.pci_id, second.pci_id) == ("0000:1b:00", "0000:1c:00")
    assert (first.memory_bytes, first.free_bytes) == (140 * GIB, 139 * GIB)
    assert (first.clock_mhz, first.clock_max_mhz) == (345, 1980)
    assert (first.memory_clock_mhz, first.memory_clock_max_mhz) == (3201, 3201)
    assert (first.application_clock_mhz, first.application_clock_default_mhz) == (1980, 1980)
    assert (first.power_w, first.power_limit_w, first.power_limit_default_w) == (76.5, 700.0, 700.0)
    assert (first.temperature_c, second.temperature_c) == (31, 55)
    assert (first.persistence, first.compute_mode, first.display_active) == (True, "default", False)
    assert (first.ecc, first.ecc_volatile, first.ecc_aggregate) == (True, 0, 0)
    assert (first.remap_pending, first.remap_failed) == (False, False)
    assert (first.reasons, first.utilisation_pct, first.processes) == (("idle",), 0, ())
    assert (first.mig, first.devices) == (False, (first,))
    assert fake.opened == 0


def test_every_name_that_is_asked_for_is_one_of_the_librarys(install: Install) -> None:
    library = pytest.importorskip("pynvml")
    part = {"UUID": "MIG-1", "Name": "slice"}
    fake = install([h200(0, MigMode=(1, 1), slices=[part], ComputeRunningProcesses=[process(1)]), h200(1)])
    read_nvml()
    assert [name for name in sorted(fake.asked) if not hasattr(library, name)] == []
    assert {name: getattr(library, name) for name in fake.VALUES} == fake.VALUES


def test_modes_and_reasons_are_those_of_the_library() -> None:
    library = pytest.importorskip("pynvml")
    modes = ("DEFAULT", "EXCLUSIVE_THREAD", "PROHIBITED", "EXCLUSIVE_PROCESS")
    assert {getattr(library, f"NVML_COMPUTEMODE_{mode}"): mode.lower() for mode in modes} == COMPUTE_MODES
    assert EVENT_REASONS[library.nvmlClocksEventReasonGpuIdle] == "idle"
    assert EVENT_REASONS[library.nvmlClocksEventReasonApplicationsClocksSetting] == "application_clocks"
    assert EVENT_REASONS[library.nvmlClocksThrottleReasonHwThermalSlowdown] == "hw_thermal_slowdown"


def test_what_a_gpu_refuses_is_unknown(install: Install) -> None:
    install([{"UUID": "GPU-1", "MemoryInfo": NVMLError("Unknown Error")}])
    (gpu,) = read_nvml().gpus
    known = {name for name in gpu.__dataclass_fields__ if getattr(gpu, name) is not None}
    assert known == {"uuid", "slices"}


def test_faults_are_read(install: Install) -> None:
    faulty = {
        "EnforcedPowerLimit": 500_000,
        "EccMode": (0, 1),
        "TotalEccErrors": {(1, 0): 2, (1, 1): 5},
        "RemappedRows": (0, 1, 1, 1),
        "CurrentClocksEventReasons": 0x4 | 0x8 | 0x40,
        "ComputeMode": 3,
        "DisplayActive": 1,
        "UtilizationRates": SimpleNamespace(gpu=97, memory=40),
        "PersistenceMode": 0,
    }
    install([h200(0, **faulty)])
    (gpu,) = read_nvml().gpus
    assert (gpu.power_limit_w, gpu.power_limit_default_w) == (500.0, 700.0)
    assert (gpu.ecc, gpu.ecc_volatile, gpu.ecc_aggregate) == (False, 2, 5)
    assert (gpu.remap_pending, gpu.remap_failed) == (True, True)
    assert gpu.reasons == ("sw_power_cap", "hw_slowdown", "hw_thermal_slowdown")
    assert (gpu.compute_mode, gpu.display_active) == ("exclusive_process", True)
    assert (gpu.utilisation_pct, gpu.persistence) == (97, False)


@pytest.mark.parametrize(
    ("answers", "pending"),
    [
        ({"RetiredPagesPendingStatus": 1}, True),
        ({"RetiredPagesPendingStatus": 0}, False),
        ({"RemappedRows": (0, 0, 0, 0), "RetiredPagesPendingStatus": 1}, True),
        ({}, None),
    ],
)
def test_older_gpus_retire_pages_instead_of_rows(install: Install, answers: Answers, pending: bool | None) -> None:
    install([{"UUID": "GPU-1", **answers}])
    assert read_nvml().gpus[0].remap_pending is pending


def test_processes_are_named_and_those_that_only_draw_are_told_apart(install: Install) -> None:
    compute, graphics = [process(77, 2 * GIB), process(78)], [process(5, 4 << 20), process(78)]
    answers = h200(0, ComputeRunningProcesses=compute, GraphicsRunningProcesses=graphics)
    install([answers], processes={77: "/usr/bin/python3", 5: "Xorg"})
    (gpu,) = read_nvml().gpus
    assert gpu.processes is not None
    assert set(gpu.processes) == {
        GpuProcess(pid=77, name="/usr/bin/python3", memory_bytes=2 * GIB),
        GpuProcess(pid=78),
        GpuProcess(pid=5, name="Xorg", memory_bytes=4 << 20, graphics=True),
    }


def test_mig_slices_have_their_own_uuid_memory_and_processes(install: Install) -> None:
    def part(number: int, **more: Any) -> Answers:
        memory = SimpleNamespace(total=17 * GIB, free=16 * GIB, used=GIB)
        return {"UUID": f"MIG-{number}", "Name": "NVIDIA H200 MIG 1g.18gb", "MemoryInfo": memory, **more}

    parts = [part(0), part(1, ComputeRunningProcesses=[process(9)])]
    install([h200(0, MigMode=(1, 1), slices=parts), h200(1)])
    sliced, whole = read_nvml().gpus
    assert (sliced.mig, sliced.power_limit_w, whole.mig) == (True, 700.0, False)
    assert [device.uuid for device in sliced.devices] == ["MIG-0", "MIG-1"]
    assert [device.free_bytes for device in sliced.devices] == [16 * GIB] * 2
    assert [device.processes for device in sliced.devices] == [None, (GpuProcess(pid=9),)]


def test_a_gpu_that_is_lost_is_told_and_the_others_are_read(install: Install) -> None:
    install([h200(0), NVMLError("GPU is lost"), h200(2)])
    node = read_nvml()
    assert [gpu.uuid[:12] for gpu in node.gpus] == ["GPU-00000000", "GPU-00000002"]
    assert node.unreadable == ("NVML's GPU 1: GPU is lost",)


def test_a_machine_without_the_library_or_the_driver_says_so(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(Init=NVMLError("Driver Not Loaded"))
    assert (read_nvml().error, read_nvml().gpus) == ("NVML does not start: Driver Not Loaded", ())
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_nvml().error == "nvidia-ml-py is not installed"


@pytest.fixture(scope="module")
def here() -> NodeFacts:
    return inspect_node(("tasks.measure", "no.such.module"))


def test_this_node_tells_its_versions_and_its_load(here: NodeFacts) -> None:
    assert (here.host, here.python) == (platform.node(), platform.python_version())
    for package in ("ray", "pyarrow", "numpy"):
        assert getattr(here, package) == version(package)
    assert here.torch.version == torch.__version__
    assert here.torch.cpu
    assert (here.cpus, here.usable_cpus) == (os.cpu_count(), len(os.sched_getaffinity(0)))
    assert here.load >= 0
    assert here.niceness == os.nice(0)
    # plain records: they cross to the driver, and to JSON
    assert pickle.loads(pickle.dumps(here)) == here


def test_modules_that_cannot_be_imported_are_named_with_the_reason(here: NodeFacts) -> None:
    assert here.torch.modules == (("no.such.module", "ModuleNotFoundError: No module named 'no'"),)


@pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")
def test_this_node_has_no_gpu_and_says_why(here: NodeFacts) -> None:
    assert (here.gpus, here.driver, here.torch.devices) == ((), None, ())
    assert here.nvml_error
    assert here.torch.error


def test_gpus_that_nvml_does_not_know_are_those_of_torch(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    device = TorchDevice(uuid="GPU-1", name="AMD Instinct MI300X", memory_bytes=5)
    monkeypatch.setattr(inspection, "check_torch", lambda *a: TorchFacts(runtime="ROCm 7", devices=(device,)))
    monkeypatch.setitem(sys.modules, "pynvml", None)
    (gpu,) = inspect_node().gpus
    assert (gpu.uuid, gpu.name, gpu.memory_bytes, gpu.free_bytes) == ("GPU-1", "AMD Instinct MI300X", 5, None)
    install([h200(0)])
    assert [found.uuid[:12] for found in inspect_node().gpus] == ["GPU-00000000"]


def test_torch_that_does_not_answer_is_told() -> None:
    assert check_torch((), dict(os.environ), 0.01).error == "torch gave no answer within 0.01 s"


def test_a_process_that_dies_of_torch_costs_only_its_answer(tmp_path: Path) -> None:
    (tmp_path / "killer.py").write_text("import os, sys; sys.stderr.write('boom'); sys.stderr.flush(); os.abort()")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        found = check_torch(("killer",), dict(os.environ), 60)
    assert found.version is None
    assert (found.error or "").startswith("the process that tries torch ended with -6: boom")


def test_torch_that_cannot_be_imported_is_told(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('libcudart.so: cannot open')")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(tmp_path))
        # the package's own directory comes first, so torch is shadowed only from there
        found = check_torch((), dict(os.environ), 60)
    assert found.error == "torch cannot be imported: OSError: libcudart.so: cannot open"


UNHIDDEN = """
import json, os
from tasks.inspection import VISIBLE, unhidden
os.environ["CUDA_VISIBLE_DEVICES"] = ""  # as Ray hides the GPUs of a task that asks for none
os.environ["HIP_VISIBLE_DEVICES"] = ""
os.environ["ADDED"] = "1"
environment = unhidden()
print(json.dumps({name: environment.get(name) for name in (*VISIBLE, "ADDED")}))
"""


def test_gpus_that_ray_hid_from_the_task_are_not_hidden_from_torch() -> None:
    environment = {name: value for name, value in os.environ.items() if name not in inspection.VISIBLE}
    done = subprocess.run(
        [sys.executable, "-c", UNHIDDEN],
        env={**environment, "CUDA_VISIBLE_DEVICES": "GPU-5,GPU-6", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {
        "CUDA_VISIBLE_DEVICES": "GPU-5,GPU-6",
        "HIP_VISIBLE_DEVICES": None,
        "ROCR_VISIBLE_DEVICES": None,
        "ADDED": "1",
    }
    assert unhidden()["PATH"] == os.environ["PATH"]
