"""What an inspection says about a sweep: every rule, and that a healthy cluster is left in peace."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.cluster import ANY
from orchestrator.health import examine
from orchestrator.health_records import Disk, Finding, Fleet, counted
from orchestrator.kept_now import Kept
from tasks.gpu_facts import GpuFacts, GpuProcess
from tasks.probe import TorchDevice, TorchFacts
from tests.inspected import GIB, H100, facts, fleet, gpu, healthy, numbered, report, torch

Found = tuple[str, str, str | None]


def told(found: Fleet) -> list[Found]:
    """Severity, rule and node of every finding."""
    return [(finding.severity, finding.rule, finding.node) for finding in examine(found)]


def only(found: Fleet) -> Finding:
    (finding,) = examine(found)
    return finding


def with_gpu(**changes: Any) -> Fleet:
    """A healthy cluster, of which the second GPU of node ``two`` is changed."""
    gpus = (gpu(8), gpu(9, **changes))
    known = facts(gpus, torch=torch(numbered(8)))
    return replace(healthy(), reports=(*healthy().reports[:2], report("two", known, gpus=2)))


def with_node(*, gpus: int = 2, **changes: Any) -> Fleet:
    """A healthy cluster, of which node ``two`` is changed."""
    return replace(healthy(), reports=(*healthy().reports[:2], report("two", facts(numbered(8), **changes), gpus=gpus)))


def test_a_healthy_cluster_has_no_finding() -> None:
    assert examine(healthy()) == ()


def test_a_cpu_alone_has_no_finding() -> None:
    alone = report("head", facts(torch=TorchFacts(version="2.13.0+cpu", error="built for the CPU only")), here=True)
    assert examine(fleet(alone, wanted="cpu")) == ()
    assert examine(fleet(alone, wanted="auto", fallback=True)) == ()


def test_facts_that_nobody_knows_are_no_findings() -> None:
    unknown = {
        name: None
        for name in gpu().__dataclass_fields__
        if name not in ("uuid", "name", "memory_bytes", "slices")  # what the sweep chooses by
    }
    assert examine(with_gpu(**unknown)) == ()


P, W = "problem", "warning"
PYTHON = GpuProcess(pid=77, name="/usr/bin/python3", memory_bytes=2 * GIB)
XORG = GpuProcess(pid=5, name="Xorg", memory_bytes=4 << 20, graphics=True)

GPU_CASES: list[tuple[dict[str, Any], str, str, str, str]] = [
    (
        {"processes": (PYTHON,)},
        P,
        "gpu_in_use",
        "used by 1 other process: /usr/bin/python3 (pid 77, 2.0 GiB)",
        "CUDA_VISIBLE_DEVICES",
    ),
    (
        {"processes": (PYTHON, GpuProcess(pid=78))},
        P,
        "gpu_in_use",
        "used by 2 other processes: /usr/bin/python3 (pid 77, 2.0 GiB), unnamed (pid 78)",
        "end them",
    ),
    ({"utilisation_pct": 10}, W, "gpu_busy", "busy 10% of the time, by no process that can be seen", "container"),
    ({"free_bytes": 125 * GIB}, P, "gpu_memory", "only 125.0 of 140.0 GiB are free", "holds the memory"),
    ({"display_active": True}, W, "gpu_display", "draws a display", "desktop"),
    ({"processes": (XORG,)}, W, "gpu_display", "draws a display: Xorg (pid 5, 0.0 GiB)", "desktop"),
    ({"application_clock_mhz": 1200}, P, "clocks_low", "application clock is 1200 MHz, 1980 by default", "-rac"),
    ({"reasons": ("sw_thermal_slowdown",)}, P, "slowdown", "at 31 °C: thermal slowdown by the driver", "cooling"),
    (
        {"reasons": ("hw_slowdown", "hw_thermal_slowdown"), "temperature_c": None},
        P,
        "slowdown",
        "is slowed down now: hardware slowdown, thermal slowdown by the hardware",
        "power supply",
    ),
    ({"reasons": ("hw_power_brake",)}, P, "slowdown", "power brake", "power supply"),
    ({"ecc_volatile": 1, "ecc_aggregate": 3}, P, "ecc_errors", "1 uncorrected memory error since", "reset"),
    ({"ecc_aggregate": 3}, W, "ecc_history", "3 uncorrected memory errors in its life", "watch"),
    ({"remap_pending": True}, P, "remap_pending", "waits to be replaced", "nvidia-smi -r"),
    ({"remap_failed": True}, P, "remap_failed", "no spare memory is left", "replaced"),
    ({"compute_mode": "prohibited"}, P, "compute_mode", "prohibits every process", "-c DEFAULT"),
    ({"compute_mode": "exclusive_process"}, W, "compute_mode", "lets one process in", "-c DEFAULT"),
]


@pytest.mark.parametrize(
    ("changes", "severity", "rule", "message", "advice"),
    GPU_CASES,
    ids=[f"{rule}-{'-'.join(changes)}" for changes, _, rule, _, _ in GPU_CASES],
)
def test_what_is_wrong_with_a_gpu_is_named_with_what_to_do(
    changes: dict[str, Any], severity: str, rule: str, message: str, advice: str
) -> None:
    finding = only(with_gpu(**changes))
    assert (finding.severity, finding.rule) == (severity, rule)
    assert (finding.node, finding.gpu) == ("two", gpu(9).uuid)
    assert message in finding.message
    assert advice in finding.advice


def test_what_is_just_in_order_is_not_named() -> None:
    within = {"free_bytes": 126 * GIB, "utilisation_pct": 9, "reasons": ("idle", "sw_power_cap", "application_clocks")}
    assert examine(with_gpu(**within)) == ()


def test_a_power_limit_is_held_against_the_default_and_against_its_like() -> None:
    low, unlike = examine(with_gpu(power_limit_w=500.0))[::-1]
    assert (low.rule, low.gpu, low.message) == (
        "power_limit",
        gpu(9).uuid,
        "the power limit is 500 W, 700 W by default",
    )
    assert low.advice == f"nvidia-smi -i {gpu(9).uuid} -pl 700"
    assert (unlike.severity, unlike.rule, unlike.node) == (P, "power_limits_differ", None)
    assert "NVIDIA H200: power limits differ: 700 W: GPU-00000000 on one, GPU-00000001 on one, " in unlike.message
    assert unlike.message.endswith("; 500 W: GPU-00000009 on two")


def test_ecc_is_the_same_on_all_gpus_of_a_model() -> None:
    finding = only(with_gpu(ecc=False))
    assert (finding.severity, finding.rule) == (P, "ecc_differs")
    assert finding.message.endswith("; off: GPU-00000009 on two")


def test_gpus_of_two_models_need_not_be_alike() -> None:
    other = numbered(8, name=H100, memory_bytes=80 * GIB, free_bytes=79 * GIB, power_limit_default_w=650.0)
    other = tuple(replace(found, power_limit_w=650.0, ecc=False) for found in other)
    mixed = fleet(report("one", facts(numbered(0)), here=True), report("two", facts(other)), wanted="any")
    assert examine(mixed) == ()


def busy_at(mhz: float, **changes: Any) -> Fleet:
    devices = torch(numbered(8)).devices
    seen = (devices[0], replace(devices[1], busy_clock_mhz=mhz))
    known = facts((gpu(8), gpu(9, **changes)), torch=torch((), devices=seen))
    return replace(healthy(), reports=(*healthy().reports[:2], report("two", known)))


def test_clocks_that_stay_low_under_a_light_load_are_locked() -> None:
    finding = only(busy_at(1200.0))
    assert (finding.severity, finding.rule, finding.gpu) == (P, "clocks_low", gpu(9).uuid)
    assert finding.message == "runs at 1200 MHz under a light load, 1980 MHz can be reached"
    assert examine(busy_at(1800.0)) == ()


def test_the_boost_clock_counts_where_the_highest_clock_is_never_reached() -> None:
    card = {"name": "NVIDIA GeForce RTX 4090", "memory_bytes": 24 * GIB, "free_bytes": 24 * GIB, "clock_max_mhz": 3105}
    rules = {finding.rule for finding in examine(replace(busy_at(2500.0, **card), gpu="any"))}
    assert "clocks_low" not in rules
    assert "clocks_low" in {finding.rule for finding in examine(replace(busy_at(2200.0, **card), gpu="any"))}


def test_the_clock_of_a_gpu_that_is_shared_is_not_judged() -> None:
    assert [finding.rule for finding in examine(busy_at(900.0, processes=(PYTHON,)))] == ["gpu_in_use"]


def test_a_model_without_catalogue_entry_is_a_warning() -> None:
    unlisted = numbered(0, name="NVIDIA Z9000")
    findings = examine(fleet(report("one", facts(unlisted), here=True), wanted="any"))
    assert {(found.severity, found.rule, found.node) for found in findings} == {(W, "unlisted_model", "one")}
    assert "NVIDIA Z9000 is in no conf/gpu/*.yaml" in findings[0].message


def test_mig_slices_are_devices_of_their_own() -> None:
    slices = tuple(
        replace(
            gpu(number),
            uuid=f"MIG-{number}",
            name="NVIDIA H200 MIG 1g.18gb",
            memory_bytes=17 * GIB,
            free_bytes=17 * GIB,
        )
        for number in range(3)
    )
    used = replace(slices[1], processes=(PYTHON,))
    node = facts((gpu(0, mig=True, slices=(slices[0], used, slices[2])),), torch=torch((slices[0],)))
    found = examine(fleet(report("one", node, here=True, gpus=1), wanted="any"))
    assert [(finding.rule, finding.gpu) for finding in found] == [("gpu_in_use", "MIG-1"), ("gpu_count", None)]
    assert found[1].message == "Ray counts 1 GPUs, NVML sees 3: 2 take no part"
    assert told(fleet(report("one", node, here=True, gpus=3)))[0] == (P, "no_gpu", None)  # a slice is no H200


def test_mig_without_slices_is_a_problem() -> None:
    node = facts((gpu(0, mig=True), gpu(1)), torch=torch((gpu(1),)))
    assert told(fleet(report("one", node, here=True, gpus=1))) == [(P, "mig_empty", "one")]


NODE_CASES: list[tuple[dict[str, Any], str, str, str]] = [
    ({"load": 64.1}, W, "cpu_load", "the load is 64.1 on 64 CPUs"),
    ({"niceness": 15}, W, "niceness", "workers run at nice 15"),
    ({"gpus": 3}, P, "gpu_count", "Ray counts 3 GPUs, NVML sees 2"),
    ({"gpus": 1}, W, "gpu_count", "Ray counts 1 GPUs, NVML sees 2: 1 take no part"),
    ({"unreadable": ("NVML's GPU 2: GPU is lost",)}, P, "gpu_unreadable", "NVML's GPU 2: GPU is lost"),
    (
        {"torch": torch(numbered(8), modules=(("tasks.measure", "ModuleNotFoundError: No module named 'x'"),))},
        P,
        "cannot_import",
        "tasks.measure cannot be imported: ModuleNotFoundError: No module named 'x'",
    ),
    ({"torch": TorchFacts(error="torch cannot be imported: OSError")}, P, "no_torch", "torch cannot be imported"),
    (
        {"torch": torch((), error="RuntimeError: The NVIDIA driver on your system is too old")},
        P,
        "torch_cuda",
        "torch 2.13.0+cu130 cannot use the GPU: RuntimeError: The NVIDIA driver on your system is too old",
    ),
    ({"torch": torch(numbered(8, 3))}, P, "torch_stranger", "torch sees what NVML does not: GPU-0000000a-"),
    ({"torch": torch(numbered(8, 1))}, P, "torch_blind", "torch does not see GPU-00000009-"),
]


@pytest.mark.parametrize(
    ("changes", "severity", "rule", "message"),
    NODE_CASES,
    ids=[f"{rule}-{'-'.join(changes)}" for changes, _, rule, _ in NODE_CASES],
)
def test_what_is_wrong_with_a_node_is_named(changes: dict[str, Any], severity: str, rule: str, message: str) -> None:
    finding = only(with_node(**changes))
    assert (finding.severity, finding.rule, finding.node, finding.gpu) == (severity, rule, "two", None)
    assert message in finding.message
    assert finding.advice


def test_a_device_that_torch_cannot_use_is_named() -> None:
    broken = replace(torch(numbered(8)).devices[1], error="RuntimeError: CUDA error: busy", busy_clock_mhz=None)
    finding = only(with_node(torch=torch((), devices=(torch(numbered(8)).devices[0], broken))))
    assert (finding.rule, finding.node, finding.gpu) == ("torch_device", "two", gpu(9).uuid)
    assert finding.message == "torch cannot use it: RuntimeError: CUDA error: busy"


def test_a_node_with_a_driver_where_ray_counts_no_gpu_is_a_problem() -> None:
    alone = report("one", facts(numbered(0)), here=True, gpus=0)
    assert told(fleet(alone)) == [(P, "no_gpu", None), (W, "gpu_count", "one")]


def test_gpus_without_a_driver_are_no_gpus() -> None:
    node = facts(
        nvml_error="NVML does not start: Driver Not Loaded",
        torch=torch((), error="RuntimeError: no driver"),
        driver=None,
    )
    findings = examine(fleet(report("one", node, here=True, gpus=4), wanted="any"))
    assert [finding.rule for finding in findings] == ["no_gpu", "gpu_count", "torch_cuda"]
    assert findings[0].message == "the cluster has no GPU; there is: one: 4 x unknown GPU"
    assert "Ray counts 4 GPUs, torch sees 0 (NVML does not start: Driver Not Loaded" in findings[1].message


def test_gpus_of_which_only_torch_knows_are_in_order() -> None:
    amd = tuple(GpuFacts(uuid=f"GPU-{i}", name="AMD Instinct MI300X", memory_bytes=192 * 10**9) for i in range(2))
    node = facts(amd, nvml_error="nvidia-ml-py is not installed", driver=None)
    assert examine(fleet(report("one", node, here=True), wanted="mi300x")) == ()


def test_gpus_that_were_hidden_from_ray_do_not_spoil_a_sweep() -> None:
    gpus = (gpu(0), gpu(1, processes=(PYTHON,)))
    hidden = facts(gpus, torch=torch(gpus[:1]), visible_devices="0")
    assert told(fleet(report("one", hidden, here=True, gpus=1))) == [(W, "gpu_in_use", "one")]
    none = facts(gpus, torch=torch((), error="RuntimeError: No CUDA GPUs are available"), visible_devices="")
    assert told(fleet(report("one", none, here=True, gpus=0), wanted="auto", fallback=True)) == [
        (W, "gpu_in_use", "one")
    ]


LEFT_AT = datetime(2026, 11, 29, 10, 0, 0, tzinfo=UTC)
KEPT = Kept(
    pid=4711,
    since=LEFT_AT,
    until=LEFT_AT + timedelta(seconds=300),
    devices={gpu(0).uuid: "NVIDIA H200"},
    taken=True,
)
"""What an earlier run has left for the next one: the first of the GPUs of ``keeping``."""


def keeping(kept: Kept, *others: GpuProcess, **changes: Any) -> list[tuple[str, str, str | None]]:
    """What is told of a node here whose first GPU a kept worker holds; others: processes beside it."""
    worker = GpuProcess(pid=4712, name="ray::Actor", memory_bytes=GIB)
    node = report("one", facts((gpu(0, processes=(worker, *others)), gpu(1))), here=True)
    found = examine(fleet(node, kept=kept, **changes))
    return [(finding.severity, finding.rule, finding.gpu) for finding in found]


def test_a_kept_ray_is_named_with_its_time_and_what_frees_it() -> None:
    assert keeping(KEPT) == [(W, "kept_ray", None)]
    (finding,) = examine(fleet(report("one", facts(numbered(0)), here=True), kept=KEPT))
    assert finding.node == "one"
    assert "holds 1 x NVIDIA H200 since 2026-11-29 10:00:00+00:00, until 2026-11-29 10:05:00+00:00" in finding.message
    assert finding.advice == "the next run goes on with it; python -m orchestrator release frees what it holds"


def test_whoever_else_is_on_a_kept_gpu_is_in_the_way() -> None:
    assert keeping(KEPT, PYTHON) == [(P, "gpu_in_use", gpu(0).uuid), (W, "kept_ray", None)]


def test_a_sweep_on_another_ray_finds_the_gpu_of_a_kept_one_in_use() -> None:
    elsewhere = replace(KEPT, taken=False)
    assert keeping(elsewhere) == [(P, "gpu_in_use", gpu(0).uuid), (W, "kept_ray", None)]
    node = report("one", facts((gpu(0, processes=(PYTHON,)),)), here=True)
    in_use, kept = examine(fleet(node, kept=elsewhere))
    assert in_use.advice.startswith("python -m orchestrator release ends the kept Ray's worker on it")
    assert "does not use it" in kept.advice


def test_a_kept_ray_that_a_command_uses_is_a_problem_where_the_sweep_would_run() -> None:
    used = replace(KEPT, until=None, devices={})
    assert keeping(used)[:2] == [(P, "kept_ray", None), (P, "gpu_in_use", gpu(0).uuid)]
    here, there = report("head", facts(), here=True), report("one", facts(numbered(0)))
    assert told(fleet(here, there, kept=used)) == [(W, "kept_ray", "head")]
    cpu = report("head", facts(), here=True)
    (finding,) = examine(fleet(cpu, wanted="cpu", kept=used))
    assert finding.message.startswith("process 4711 of yours has used the kept Ray of this command since 2026-11-29")


def test_what_the_sweep_does_not_use_cannot_spoil_it() -> None:
    other = numbered(4, name=H100, memory_bytes=80 * GIB, free_bytes=10 * GIB, power_limit_w=300.0)
    node = facts(other, driver="535.1", torch=torch(other, version="2.9.0"), load=500.0)
    mixed = fleet(report("one", facts(numbered(0)), here=True), report("old", node, label="H100"))
    assert {(severity, node) for severity, _, node in told(mixed)} == {(W, "old")}
    for every in ANY:
        assert P in {severity for severity, _, _ in told(replace(mixed, gpu=every))}
    assert told(replace(mixed, gpu="cpu"))[0][0] == W


def test_a_missing_model_is_named_with_what_there_is() -> None:
    finding = only(replace(healthy(), gpu="a100"))
    assert (finding.severity, finding.rule) == (P, "no_gpu")
    assert finding.message == (
        "the cluster has no GPU that is 'a100'; there is: head: no GPU; one: 2 x NVIDIA H200; two: 2 x NVIDIA H200"
    )
    assert "cluster.gpu=any" in finding.advice


def test_no_gpu_at_all_is_a_problem_unless_the_cpu_is_swept_instead() -> None:
    alone = report("head", facts(), here=True)
    assert told(fleet(alone, wanted="auto")) == [(P, "no_gpu", None)]
    assert "conf=cpu" in only(fleet(alone, wanted="auto")).advice
    assert examine(fleet(alone, wanted="auto", fallback=True)) == ()


def test_a_node_that_gives_no_answer_is_a_problem_where_it_may_be_needed() -> None:
    silent = report("two", None, gpus=8, label="H200", error="gave no answer within 60 s")
    finding = only(replace(healthy(), reports=(*healthy().reports[:2], silent)))
    assert (finding.severity, finding.rule, finding.node) == (P, "no_answer", "two")
    assert finding.message == "gave no answer within 60 s"
    other = replace(silent, node=replace(silent.node, label="A100"))
    assert only(replace(healthy(), reports=(*healthy().reports[:2], other))).severity == W
    head = replace(silent, node=replace(silent.node, gpus=0), here=True)
    assert only(fleet(head, report("one", facts(numbered(0))))).severity == P


@pytest.mark.parametrize(
    ("changes", "name", "version"),
    [
        ({"python": "3.11.9"}, "Python", "3.11"),
        ({"ray": "2.59.1"}, "ray", "2.59.1"),
        ({"pyarrow": "20.0.0"}, "pyarrow", "20.0.0"),
        ({"torch": torch(numbered(8), version="2.9.0+cu128")}, "torch", "2.9.0+cu128"),
        ({"torch": torch(numbered(8), runtime="CUDA 12.8")}, "torch's runtime", "CUDA 12.8"),
        ({"driver": "535.104.05"}, "GPU driver", "535.104.05"),
    ],
)
def test_version_skew_names_who_has_what(changes: dict[str, Any], name: str, version: str) -> None:
    finding = only(with_node(**changes))
    assert (finding.severity, finding.rule, finding.node) == (P, "version_skew", None)
    assert finding.message.startswith(f"{name} differs between nodes: ")
    assert f"{version} on two" in finding.message
    others = "head, one" if name in ("Python", "ray", "pyarrow") else "one"
    assert f" on {others};" in finding.message


def test_a_patch_level_of_python_is_no_skew_and_numpy_is_a_warning() -> None:
    assert examine(with_node(python="3.12.9")) == ()
    assert only(with_node(numpy="1.26.4")).severity == W


def test_one_message_for_each_package_that_is_skewed() -> None:
    many = fleet(
        *(
            report(f"n{i}", facts(numbered(2 * i), pyarrow=f"2{i % 3}.0.0", ray=f"2.{i}.0"), here=not i)
            for i in range(9)
        )
    )
    messages = [finding.message for finding in examine(many)]
    assert len(messages) == 2
    assert "20.0.0 on n0, n3, n6; 21.0.0 on n1, n4, n7; 22.0.0 on n2, n5, n8" in messages[1]


def test_drivers_of_different_models_may_differ() -> None:
    other = numbered(8, name=H100, memory_bytes=80 * GIB, free_bytes=79 * GIB)
    mixed = fleet(
        report("one", facts(numbered(0)), here=True), report("two", facts(other, driver="535.1")), wanted="any"
    )
    assert told(mixed) == [(W, "version_skew", None)]


@pytest.mark.parametrize(
    ("disk", "rule"),
    [
        (Disk(path="out", free_bytes=GIB - 1, total_bytes=9 * GIB, writable=True), "results_disk"),
        (Disk(path="out", free_bytes=9 * GIB, total_bytes=9 * GIB, writable=False), "results_directory"),
    ],
)
def test_a_place_that_takes_no_results_is_a_problem(disk: Disk, rule: str) -> None:
    finding = only(replace(healthy(), disk=disk))
    assert (finding.severity, finding.rule) == (P, rule)
    assert "out" in finding.message
    assert examine(replace(healthy(), disk=None)) == ()


def test_a_loaded_cpu_is_a_problem_for_a_sweep_on_the_cpu() -> None:
    alone = report("head", facts(load=65.0), here=True)
    assert told(fleet(alone, wanted="cpu")) == [(P, "cpu_load", "head")]


def test_problems_come_first() -> None:
    found = examine(with_gpu(display_active=True, ecc_volatile=2))
    assert [finding.severity for finding in found] == [P, W]


def test_many_names_are_cut_short() -> None:
    assert counted(f"n{i}" for i in range(9)) == "n0, n1, n2, n3, n4, n5 and 3 more"


def test_a_device_that_ray_may_not_see_is_told_by_uuid() -> None:
    assert not report("one", facts(numbered(0))).hides(gpu(0))
    seen = TorchDevice(uuid=gpu(1).uuid, name="NVIDIA H200", memory_bytes=1)
    node = report("one", facts(numbered(0), visible_devices="1", torch=torch((), devices=(seen,))))
    assert [node.hides(device) for device in node.devices] == [True, False]
