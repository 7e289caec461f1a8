"""A Ray of one's own without what a sweep does not use, and without waiting for it.

Ray has no public switches for this. Whatever a version of Ray has no place for is left out: it then starts more slowly.
"""

import functools
import inspect
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

POLL_S = 0.02
REGISTERED_S = 20.0
UNUSED = {"no_monitor": True, "include_log_monitor": False}
"""An autoscaler has nothing to scale and its end takes a second; workers' output is in their logs."""
AGENT_PORTS = ("METRICS_AGENT_PORT_NAME", "METRICS_EXPORT_PORT_NAME", "DASHBOARD_AGENT_LISTEN_PORT_NAME")
NOBODY = b"127.0.0.1:1"
"""An address at which nothing answers."""
NO_PORT = -1
"""How Ray's agent says that it does not serve."""


@contextmanager
def lean(agent_port: int) -> Iterator[None]:
    """Have ``ray.init`` in this context start a Ray for a sweep alone.

    By default it starts an autoscaler, a dashboard and a log monitor; its raylet begins only when two agents in Python
    have told their ports; and it looks for the raylet once a second.

    agent_port: for the agent that a raylet cannot be without.
    """
    import ray
    from ray._private import node, parameter, services

    private: Any = ray._raylet
    with ExitStack() as stack:
        wanted = {**UNUSED, "runtime_env_agent_port": agent_port}
        _replace(stack, parameter, "RayParams", lambda made: _with(made, wanted))
        _replace(stack, node.Node, "start_api_server", lambda _: _no_dashboard)
        _replace(stack, node.Node, "start_raylet", lambda start: _after(start, lambda own: _tell_ports(private, own)))
        _replace(stack, services, "get_node", lambda get: _once_registered(get))
        yield


@contextmanager
def on_node(node_id: str) -> Iterator[None]:
    """Have ``ray.init`` in this context connect through a node of this host that is known.

    By default it looks for one in the command lines of all processes.
    """
    from ray._private import services

    with ExitStack() as stack:
        _replace(stack, services, "find_node_ids", lambda _: lambda: {node_id})
        yield


def gpus_here(environment: Mapping[str, str], devices: Path = Path("/dev")) -> int:
    """How many NVIDIA GPUs a Ray here will find, told without their driver; for others 0."""
    found = len(list(devices.glob("nvidia[0-9]*")))
    named = environment.get("CUDA_VISIBLE_DEVICES")
    return found if named is None else min(found, sum(bool(name.strip()) for name in named.split(",")))


@contextmanager
def reserved_port() -> Iterator[int]:
    """A TCP port that nobody else is given, and that one who sets SO_REUSEADDR, as Ray does, can listen on.

    Linux lets two such sockets have one port while no more than one listens.
    """
    with socket.socket() as reserved:
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind(("", 0))
        yield reserved.getsockname()[1]


def _replace(stack: ExitStack, owner: Any, name: str, change: Callable[[Any], Any]) -> None:
    """Put ``change(old)`` in the place of an attribute until ``stack`` ends; do nothing where there is none."""
    old = getattr(owner, name, None)
    if old is not None:
        setattr(owner, name, change(old))
        stack.callback(setattr, owner, name, old)


def _with(made: Callable[..., Any], wanted: Mapping[str, Any]) -> Callable[..., Any]:
    """``made`` with those of the wanted arguments that it takes."""
    known = inspect.signature(made).parameters
    return functools.partial(made, **{name: value for name, value in wanted.items() if name in known})


def _after(call: Callable[..., Any], before: Callable[[Any], None]) -> Callable[..., Any]:
    @functools.wraps(call)
    def both(own: Any, *args: Any, **options: Any) -> Any:
        before(own)
        return call(own, *args, **options)

    return both


def _no_dashboard(node: Any, **options: Any) -> None:
    """Start none. Where Ray's dashboard is installed, its agent would complain every second that it has no address."""
    from ray._private import ray_constants as names

    with suppress(AttributeError):
        place = names.KV_NAMESPACE_DASHBOARD
        node.get_gcs_client().internal_kv_put(names.DASHBOARD_ADDRESS.encode(), NOBODY, True, place)


def _tell_ports(private: Any, node: Any) -> None:
    """Say in the agent's place that it serves no metrics: that is what the raylet would wait for."""
    names = [getattr(private, name, None) for name in AGENT_PORTS]
    if None not in names and hasattr(private, "persist_port"):
        for name in names:
            private.persist_port(node.get_session_dir_path(), node.node_id, name, NO_PORT)


def _once_registered(get: Callable[..., Any]) -> Callable[..., Any]:
    """``services.get_node``, which looks once a second, called when it will find the node."""
    from ray._private import services, state

    def waited(gcs_address: str, node_id: str) -> Any:
        table: Any = state.GlobalState()
        table._initialize_global_state(services._get_gcs_client_options(gcs_address))
        until = time.monotonic() + REGISTERED_S
        while time.monotonic() < until and all(known["NodeID"] != node_id for known in table.node_table()):
            time.sleep(POLL_S)
        return get(gcs_address, node_id)

    return waited
