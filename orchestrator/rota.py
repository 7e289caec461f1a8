"""The workers on a kept Ray that earlier commands have left."""

import itertools
from collections.abc import Iterator
from typing import Any

import ray

from orchestrator.worker import WorkerSpec

NAMESPACE = "gemm-orchestrator"
"""Of Ray's, in which workers have names."""


class Rota:
    """Which workers wait where, of those whose device was opened as a sweep's are."""

    def __init__(self, spec: WorkerSpec) -> None:
        self._kind = f"{spec.kind} {spec.open_device} "
        listed: Any = ray.util.list_named_actors(all_namespaces=True)
        self._taken = {each["name"] for each in listed if each["namespace"] == NAMESPACE}
        self._waiting = sorted(name for name in self._taken if name.startswith(self._kind))

    def take(self, place: str) -> Any:
        """Return a worker that waits on the node ``place``, or None; each once."""
        for name in [name for name in self._waiting if name.startswith(f"{self._kind}{place} ")]:
            self._waiting.remove(name)
            try:
                return ray.get_actor(name, namespace=NAMESPACE)
            except ValueError:
                continue  # it has died meanwhile
        return None

    def lasting(self, place: str) -> dict[str, Any]:
        """Options of a new worker on ``place`` that outlives this process."""
        name = next(name for name in self._names(place) if name not in self._taken)
        self._taken.add(name)
        return {"name": name, "namespace": NAMESPACE, "lifetime": "detached"}

    def _names(self, place: str) -> Iterator[str]:
        return (f"{self._kind}{place} {number}" for number in itertools.count())
