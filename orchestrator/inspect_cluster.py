"""One inspection of every node, by a Ray task pinned to it.

The driver alone submits the work of a sweep; an inspection is no part of one: it reserves nothing, so it also looks at
nodes whose GPUs are taken, and measures nothing.
"""

import io
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator import cluster
from orchestrator.errors import shorten
from orchestrator.health_records import Disk, Fleet, NodeReport
from orchestrator.interrupts import Interrupts, interruptible
from orchestrator.results import nearest_existing
from orchestrator.schema import Config
from tasks.inspection import NodeFacts

Reference: TypeAlias = "ray.ObjectRef[NodeFacts]"

INSPECT = "tasks.inspection:inspect_node"
MODULES = ("orchestrator.worker", "orchestrator.store", "tasks.measure")
"""What a worker imports."""

POLL_S = 0.5
TORCH_SHARE = 0.8
"""Of the time that a node has, so that one whose torch hangs still tells the rest."""

REASON_LENGTH = 300


def inspect_fleet(config: Config, *, own_ray: bool, inspect: str = INSPECT) -> Fleet:
    """Look at every node of the cluster that this process is connected to, and at the results' disk.

    own_ray: what ``cluster.connect`` yielded. inspect: ``module:name`` of what looks at a node.
    A node has ``cluster.start_timeout_s`` to answer; KeyboardInterrupt comes through.
    """
    nodes = cluster.nodes()
    here = cluster.local_node().node_id
    names = _names(nodes)
    pending = {
        _submit(node, inspect, config.cluster.start_timeout_s, own_ray=own_ray): NodeReport(
            name=names[node.node_id], node=node, here=node.node_id == here, facts=None
        )
        for node in nodes
    }
    with interruptible() as interrupts, redirect_stdout(io.StringIO()):  # Ray tells of deaths on standard output
        reports = sorted(_answers(pending, config.cluster.start_timeout_s, interrupts), key=_order)
    return Fleet(
        reports=tuple(reports),
        gpu=config.cluster.gpu,
        fallback=config.cluster.fallback is not None,
        disk=results_disk(config.run.dir),
    )


def results_disk(directory: str) -> Disk | None:
    """Return the state of the disk that runs are written to; None for a URI.

    Raises:
        StoreError: the directory cannot be looked for.
    """
    if "://" in directory:
        return None
    existing = nearest_existing(Path(directory))
    usage = shutil.disk_usage(existing)
    writable = existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
    return Disk(path=directory, free_bytes=usage.free, total_bytes=usage.total, writable=writable)


def _submit(node: cluster.Node, inspect: str, seconds: float, *, own_ray: bool) -> Reference:
    def looked_at(name: str, modules: Sequence[str], timeout_s: float) -> Any:
        # A function of a function travels by value: a node that lacks this project can still say so.
        import pkgutil

        return pkgutil.resolve_name(name)(modules, timeout_s)

    # As the sweep's workers are started, so that what is seen holds for them.
    environment = {} if own_ray else {"runtime_env": {"env_vars": cluster.WORKER_ENVIRONMENT}}
    remote: Any = ray.remote(looked_at)
    pinned = remote.options(
        num_cpus=0,
        num_gpus=0,
        max_retries=0,
        scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
        **environment,
    )
    reference: Reference = pinned.remote(inspect, MODULES, TORCH_SHARE * seconds)
    return reference


def _answers(pending: dict[Reference, NodeReport], timeout_s: float, interrupts: Interrupts) -> Iterator[NodeReport]:
    deadline = time.monotonic() + timeout_s
    while pending and (left := deadline - time.monotonic()) > 0:
        ready, _ = ray.wait(list(pending), num_returns=1, timeout=min(POLL_S, left))
        if interrupts.requested():
            raise KeyboardInterrupt
        for reference in ready:
            yield _answer(reference, pending.pop(reference))
    for reference, report in pending.items():
        ray.cancel(reference, force=True)
        yield replace(report, error=f"gave no answer within {timeout_s:g} s")


def _answer(reference: Reference, report: NodeReport) -> NodeReport:
    try:
        return replace(report, facts=ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = error.cause if error.cause is not None else error
        return replace(report, error=f"cannot be inspected: {_text(cause)}")
    except ray.exceptions.RayError as error:
        return replace(report, error=f"died while it was inspected: {_text(error)}")


def _text(error: BaseException) -> str:
    return shorten(f"{type(error).__name__}: {' '.join(str(error).split())}", REASON_LENGTH)


def _names(nodes: Sequence[cluster.Node]) -> dict[str, str]:
    """Hosts; where several nodes share one, each with the beginning of its id."""
    hosts = Counter(node.host for node in nodes)
    return {node.node_id: node.host if hosts[node.host] == 1 else f"{node.host}/{node.node_id[:6]}" for node in nodes}


def _order(report: NodeReport) -> tuple[bool, str]:
    return not report.here, report.name
