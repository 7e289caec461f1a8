"""Sweeps on a local Ray with made-up GPUs."""

import gc
import logging
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver import Accepts, RayEngine, SweepResult, sweep
from orchestrator.errors import ClusterError
from orchestrator.local_ray import lean, reserved_port
from orchestrator.progress import Board, LogView
from orchestrator.queue import Assignment
from orchestrator.resume import Former
from orchestrator.schema import Cluster, Config, Run, Space
from orchestrator.store import RunStore
from tasks.family import Bundle
from tasks.settings import Timing
from tests import fakes
from tests.fakes import bundle, device_info
from tests.test_progress import Silent

pytestmark = [
    pytest.mark.ray,
    # Ray leaves its log files and process handles to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

GPUS = 4
SPACE = Space(roles=["mlp_up"], h=1, tp=1, batch=1, seq=32, dtype=["fp16"], d_ff=[64])


@pytest.fixture(scope="module")
def ray_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start one Ray with four GPUs for the module; return where its fake devices leave their marks."""
    marks = tmp_path_factory.mktemp("marks")
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings(), reserved_port() as port:
        warnings.simplefilter("ignore", ResourceWarning)
        patch.setenv("FAKE_MARKER", str(marks / "died"))
        import ray

        with lean(port):
            ray.init(
                address="local",
                num_gpus=GPUS,
                num_cpus=4,
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
            )
        yield marks
        ray.shutdown()
        gc.collect()  # Ray's process handles, while their warnings are ignored


def run(
    path: Path, work: list[Bundle], gpu: str = "any", *, opener: str = "open_device", **options: Any
) -> SweepResult:
    cluster = Cluster(gpu=gpu, **{"start_timeout_s": 30.0, "canary_every": 0, **options})
    timing = Timing(soak_min_s=0.0, soak_max_s=0.0, redo_throttled=0)
    config = Config(space=SPACE, timing=timing, cluster=cluster, run=Run(least_deadline_s=2.0))
    return sweep(
        config,
        work,
        RunStore.create(path, "run", {}),
        progress=Board(work, LogView()),
        code_version="test",
        plan_hash="hash",
        open_device=f"{fakes.HERE}:{opener}",
        measure=f"{fakes.HERE}:measure",
    )


def facts(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = RunStore.open(path / "run").reader().facts().table.to_pylist()
    return rows


def gpus_are_free() -> bool:
    import ray

    until = time.monotonic() + 10
    while time.monotonic() < until:
        if ray.available_resources().get("GPU") == GPUS:
            return True
        time.sleep(0.05)
    return False


def test_measures_every_bundle_once_on_several_gpus(ray_cluster: Path, tmp_path: Path) -> None:
    work = [bundle(h) for h in range(201, 213)]
    result = run(tmp_path, work, max_gpus=3)
    assert (result.bundles, result.unfinished, result.failures, result.exit_code) == (12, 0, (), 0)
    rows = facts(tmp_path)
    assert sorted(row["bundle_id"] for row in rows) == sorted([item.bundle_id for item in work] * 2)
    # A slow machine may be done before the third has opened, or when it has.
    assert 2 <= len({row["uuid"] for row in rows}) <= len(result.devices) <= 3
    assert {row["uuid"] for row in rows} <= {device.uuid for device in result.devices}
    assert {(row["status"], row["attempt"], row["plan_hash"]) for row in rows} == {("ok", 1, "hash")}
    assert RunStore.open(tmp_path / "run").reader().samples().table.num_rows == 12 * 2 * 2
    assert gpus_are_free()


def test_devices_are_chosen_by_what_they_report(ray_cluster: Path, tmp_path: Path) -> None:
    result = run(tmp_path, [bundle(h) for h in range(101, 105)], "l40s", opener="open_model_per_gpu", max_gpus=2)
    assert result.exit_code == 0
    assert {row["gpu"] for row in facts(tmp_path)} == {"NVIDIA L40S"}
    assert all(int(device.uuid.rpartition("-")[2]) % 2 for device in result.devices)


def test_a_model_that_the_cluster_lacks_ends_at_once(ray_cluster: Path, tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(ClusterError) as caught:
        run(tmp_path, [bundle(101)], "a100")
    assert "found 4 x NVIDIA H200" in str(caught.value)
    assert "4 x unnamed GPU" in str(caught.value)
    assert "cluster.gpu=any" in str(caught.value)
    assert time.monotonic() - began < 25
    assert gpus_are_free()


def test_short_bundles_go_several_a_call_and_a_death_among_them_costs_no_other(
    ray_cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[int | None]] = []
    submit = RayEngine.submit

    def noted(engine: RayEngine, assignments: Sequence[Assignment]) -> None:
        calls.append([each.bundle.families[0].h for each in assignments])
        submit(engine, assignments)

    monkeypatch.setattr(RayEngine, "submit", noted)
    work = [bundle(h) for h in range(1, 61) if h not in (17, 19, 23, 29, 31)]
    result = run(tmp_path, work, max_gpus=1)
    assert (result.bundles, result.unfinished) == (len(work), 0)
    assert {(item.bundle_id, item.facts.status) for item in result.failures} == {(bundle(13).bundle_id, "worker_died")}
    assert max(map(len, calls)) > 2
    together = next(call for call in calls if 13 in call)
    rows = facts(tmp_path)
    assert sorted(row["gemm_id"] for row in rows) == sorted(gemm.gemm_id for item in work for gemm in item.gemms)
    assert {row["h"] for row in rows if row["attempt"] > 1} <= set(together)
    assert {row["h"] for row in rows if row["status"] != "ok"} == {13}


def test_faults_are_told_apart_and_cost_nobody_else(ray_cluster: Path, tmp_path: Path) -> None:
    work = [bundle(h) for h in (13, 17, 19, 29, 101, 102, 103)]
    result = run(tmp_path, work, max_gpus=2)
    assert (result.bundles, result.unfinished, result.exit_code) == (7, 0, 1)
    failed = {(item.bundle_id, item.facts.status) for item in result.failures}
    assert failed == {
        (bundle(13).bundle_id, "worker_died"),
        (bundle(19).bundle_id, "worker_died"),
        (bundle(29).bundle_id, "oom"),
    }
    assert {item.facts.message for item in result.failures} >= {"ValueError: nineteen", "too large"}
    rows = {row["bundle_id"]: row for row in facts(tmp_path)}
    assert [rows[bundle(h).bundle_id]["attempt"] for h in (13, 17, 19, 101)] == [2, 2, 2, 1]
    assert rows[bundle(17).bundle_id]["status"] == "ok"
    assert RunStore.open(tmp_path / "run").reader().samples().table.num_rows == 4 * 4 + 2


def test_devices_that_do_not_open_are_reported(ray_cluster: Path, tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"start_timeout_s=6: no device could be opened\n(.|\n)*no cuda device"):
        run(tmp_path, [bundle(101)], opener="open_broken", start_timeout_s=6.0)


def test_gpus_busy_elsewhere_do_not_hang_the_sweep(
    ray_cluster: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    import ray

    class Holder:
        def ready(self) -> None:
            pass

    decorate: Any = ray.remote(num_gpus=GPUS, num_cpus=0)
    holder = decorate(Holder).remote()
    ray.get(holder.ready.remote())
    with pytest.raises(ClusterError, match="1 GPU stayed busy elsewhere"):
        run(tmp_path, [bundle(101)], start_timeout_s=2.0)
    ray.kill(holder)
    assert gpus_are_free()


def test_the_cpu_is_one_worker_with_all_cores(ray_cluster: Path, tmp_path: Path) -> None:
    result = run(tmp_path, [bundle(101), bundle(102)], "cpu")
    assert result.exit_code == 0
    assert [device.kind for device in result.devices] == ["cpu"]


@pytest.mark.parametrize(("presses", "at_most_s"), [(1, 8.0), (2, 3.0)])
def test_an_interrupt_returns_what_is_done(ray_cluster: Path, tmp_path: Path, presses: int, at_most_s: float) -> None:
    pressed: list[float] = []

    def press() -> None:
        until = time.monotonic() + 20
        while len(list(tmp_path.rglob("*.parquet"))) < 2 and time.monotonic() < until:
            time.sleep(0.02)
        pressed.append(time.monotonic())
        for _ in range(presses):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.7)

    before = signal.getsignal(signal.SIGINT)
    thread = threading.Thread(target=press)
    thread.start()
    result = run(tmp_path, [bundle(h, (8,)) for h in (23, 1, 2)], max_gpus=2)
    took = time.monotonic() - pressed[0]
    thread.join()
    assert (result.interrupted, result.exit_code, result.bundles, result.unfinished) == (True, 130, 2, 1)
    assert took < at_most_s
    assert signal.getsignal(signal.SIGINT) is before
    assert len(facts(tmp_path)) == 2
    assert gpus_are_free()


def test_an_interrupt_keeps_what_is_measured_of_the_bundle_in_flight(ray_cluster: Path, tmp_path: Path) -> None:
    def press() -> None:
        until = time.monotonic() + 20
        while not list(tmp_path.rglob("*.parquet")) and time.monotonic() < until:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    result = run(tmp_path, [bundle(h, (8,)) for h in (31, 1)], max_gpus=2)
    thread.join()
    assert (result.interrupted, result.bundles, result.unfinished) == (True, 2, 0)
    assert {row["stop_reason"] for row in facts(tmp_path)} == {"resolved", "interrupted"}
    assert gpus_are_free()


def test_a_sweep_measures_one_model_and_says_which_it_leaves_out() -> None:
    view = Silent()
    accepts = Accepts("any", Board([bundle(1)], view), Former())
    devices = [device_info(0), device_info(1, "NVIDIA H100 80GB HBM3"), device_info(2), device_info(3, "NVIDIA L4")]
    assert [accepts(device) for device in devices] == [True, False, True, False]
    assert accepts(devices[1]) is False
    assert view.notes == [
        "this sweep measures NVIDIA H200; NVIDIA H100 80GB HBM3 is left out: cluster.gpu=all measures every model",
        "this sweep measures NVIDIA H200; NVIDIA L4 is left out: cluster.gpu=all measures every model",
    ]
    h100 = Accepts("h100", Board([bundle(1)], Silent()), Former())
    assert [h100(device) for device in devices] == [False, True, False, False]


@pytest.mark.parametrize(
    ("h", "status", "message"),
    [
        (1013, "worker_died", "ActorDiedError"),
        (1019, "illegal_access", "RuntimeError: CUDA error: device-side assert triggered"),
        (1023, "timeout", "not done after 6 s"),  # ten times what the Bundle is estimated to take on such a device
        (1029, "oom", "too large"),
    ],
)
def test_one_gemm_that_takes_its_worker_down_costs_nobody_else(
    ray_cluster: Path, tmp_path: Path, h: int, status: str, message: str
) -> None:
    work = [bundle(h, (64, 128, 192)), *(bundle(other) for other in range(101, 105))]
    result = run(tmp_path, work, max_gpus=2)
    assert (result.bundles, result.unfinished, result.exit_code) == (5, 0, 1)
    (failed,) = result.failures
    assert failed.facts.gemm_id == f"mm-1x32x128x{h}-fp16-nn"
    assert (failed.facts.status, failed.facts.message[: len(message)]) == (status, message)
    samples = RunStore.open(tmp_path / "run").reader().samples().table.to_pylist()
    visits = Counter((row["gemm_id"], row["round"]) for row in samples)
    assert set(visits.values()) == {1}
    assert {row["status"] for row in facts(tmp_path) if row["gemm_id"] != failed.facts.gemm_id} == {"ok"}
    assert len({row["gemm_id"] for row in samples}) == 2 + 8
    assert gpus_are_free()
