"""A real Ray cluster of several raylets on this host with made-up GPUs, and sweeps on it."""

import gc
import logging
import os
import signal
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from orchestrator.driver import SweepResult, sweep
from orchestrator.progress import Board
from orchestrator.resume import Former
from orchestrator.schema import Cluster, Config, Run, Space
from orchestrator.store import RunStore
from tasks.family import Bundle
from tasks.settings import Timing
from tests import faulty
from tests.faulty import Plan
from tests.test_progress import Silent

SPACE = Space(roles=["mlp_up"], h=1, tp=1, batch=1, seq=32, dtype=["fp16"], d_ff=[64])
TIMING = Timing(soak_min_s=0.0, soak_max_s=0.0, redo_throttled=0)

HEALTH_CHECKS = {"initial_delay_ms": 500, "period_ms": 300, "timeout_ms": 1000, "failure_threshold": 3}
"""So that the cluster notices a dead node in a second or two, and not in fifteen."""

LEAN = {"include_log_monitor": False, "no_monitor": True}
"""What Ray starts on every node and no test looks at: it reads all log files ten times a second, and scales nothing."""


class Fleet:
    """The cluster; the driver is on its first node, ``head``. notes: what the last sweep said."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.folder = folder
        self.notes: list[str] = []
        self.hosts: dict[str, Any] = {"head": cluster.head_node}
        self._cluster = cluster

    def add(self, host: str, gpus: int, **environment: str) -> None:
        """Start a raylet as node ``host``."""
        self.hosts[host] = self._cluster.add_node(
            num_gpus=gpus, num_cpus=2, env_vars={faulty.HOST: host, **environment}, **LEAN
        )

    def remove(self, host: str) -> None:
        """End a node at once."""
        self._cluster.remove_node(self.hosts.pop(host), allow_graceful=False)

    def kill(self, host: str) -> None:
        """Kill the raylet of a node, and nothing else."""
        raylet = self.hosts[host].all_processes["raylet"][0].process
        os.kill(raylet.pid, signal.SIGKILL)
        raylet.wait()  # its workers look whether it lives, and take a zombie for alive

    def only_head(self) -> None:
        """End all other nodes, wait until the cluster knows, and forget plan and marks."""
        import ray

        for host in set(self.hosts) - {"head"}:
            with suppress(Exception):  # of a node whose raylet was killed there is little left to end
                self.remove(host)
            self.hosts.pop(host, None)
        wait_for(lambda: sum(node["Alive"] for node in ray.nodes()) == 1, 20)
        for mark in [path for path in self.folder.rglob("*") if path.is_file()]:
            mark.unlink()
        Plan().write(self.folder)

    def running(self, h: int) -> tuple[int, str] | None:
        """Return the process that measures the Bundle of ``h`` now, and its device's UUID."""
        for mark in (self.folder / "running").glob(f"{h}-*[0-9]"):
            with suppress(OSError, ValueError):
                return int(mark.read_text()), mark.name.split("-", 1)[1].rpartition("-")[0]
        return None

    def sweep(
        self,
        work: Sequence[Bundle],
        store: RunStore,
        *,
        former: Former | None = None,
        max_failure_share: float = 1.0,
        open_device: str = f"{faulty.HERE}:open_device",
        measure: str | None = f"{faulty.HERE}:measure",
        timing: Timing = TIMING,
        **options: Any,
    ) -> SweepResult:
        """Sweep, and see that nothing is left behind: no worker's process, no GPU that is taken."""
        view = Silent()
        cluster = Cluster(**{"gpu": "any", "start_timeout_s": 30.0, "canary_every": 0, **options})
        run = Run(least_deadline_s=20.0, max_failure_share=max_failure_share)
        result = sweep(
            Config(space=SPACE, timing=timing, cluster=cluster, run=run),
            work,
            store,
            progress=Board(work, view),
            code_version="test",
            plan_hash="hash",
            open_device=open_device,
            measure=measure,
            own_ray=True,
            former=former,
        )
        self.notes = view.notes
        self.check_nothing_is_left()
        return result

    def check_nothing_is_left(self) -> None:
        """Every worker's process has ended, and every GPU of the nodes that are alive is free."""
        import ray

        def gpus(resources: dict[str, float]) -> float:
            return resources.get("GPU", 0.0)

        pids = [int(path.name) for path in (self.folder / "pids").iterdir()]
        assert wait_for(lambda: not any(alive(pid) for pid in pids), 10), "a worker's process is left"
        free = wait_for(lambda: gpus(ray.available_resources()) == gpus(ray.cluster_resources()), 10)
        assert free, "a GPU is still taken"


@contextmanager
def started(folder: Path, gpus: int = 2) -> Iterator[Fleet]:
    """Start the cluster with ``gpus`` on its first node, and connect to it."""
    import ray
    from ray.cluster_utils import Cluster as RayCluster

    for name in ("pids", "running"):
        (folder / name).mkdir()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        patch.setenv(faulty.FOLDER, str(folder))
        patch.setenv(faulty.HOST, "head")
        for name, milliseconds in HEALTH_CHECKS.items():
            patch.setenv(f"RAY_health_check_{name}", str(milliseconds))
        arguments = {"num_gpus": gpus, "num_cpus": 2, "include_dashboard": False, **LEAN}
        cluster = RayCluster(initialize_head=True, head_node_args=arguments)
        try:
            ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.ERROR)
            fleet = Fleet(cluster, folder)
            fleet.only_head()
            yield fleet
        finally:
            ray.shutdown()
            cluster.shutdown()
            gc.collect()  # Ray's process handles, while their warnings are ignored


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Run ``act`` in another thread beside what is done here, and wait for it at the end."""
    thread = threading.Thread(target=act)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def wait_for(happens: Callable[[], object], seconds: float = 20.0) -> Any:
    """Wait until ``happens`` is true; return what it gave last."""
    until = time.monotonic() + seconds
    while not (found := happens()) and time.monotonic() < until:
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    """Whether a process is there and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def facts(store: RunStore) -> list[dict[str, Any]]:
    """The facts rows on disk."""
    rows: list[dict[str, Any]] = store.reader().facts().table.to_pylist()
    return rows


def check_samples(store: RunStore, shards: int) -> None:
    """See that ``shards`` Bundles of two Gemms have their two rounds on disk, and nothing has them twice."""
    rows = store.reader().samples().table.to_pylist()
    visits = Counter((row["uuid"], row["bundle_id"], row["attempt"], row["gemm_id"], row["round"]) for row in rows)
    assert set(visits.values()) == {1}
    assert len(rows) == shards * 2 * 2
