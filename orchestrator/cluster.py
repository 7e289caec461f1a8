"""The Ray cluster: reaching it, what it has, and which of it a request may use."""

import importlib
import io
import os
import re
import secrets
import socket
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlsplit

from orchestrator.errors import ClusterError, EngineLostError
from orchestrator.lifeline import Lifeline
from orchestrator.local_ray import gpus_here, lean, on_node, reserved_port
from orchestrator.schema import Cluster
from tasks.records import DeviceInfo

Here = TypeVar("Here")

PROBE_S = 5.0
QUIETLY: Mapping[str, Any] = MappingProxyType({"log_to_driver": False, "logging_level": "ERROR"})
OBJECT_STORE_BYTES = 256 * 2**20
HTTP2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
"""How an HTTP/2 client greets (RFC 9113, 3.4): the connection preface and an empty SETTINGS frame."""
HTTP2_SETTINGS = 4
TOKENS = "\nRAY_AUTH_MODE and RAY_AUTH_TOKEN must be those that the cluster was started with"
PLACES = "\nits files go below RAY_TMPDIR, else TMPDIR, else /tmp: a short path, with room, that can be written"
WORKER_MODULE = "orchestrator.preload"
ANY = ("all", "any", "auto")
"""What ``cluster.gpu`` may be to mean whatever GPUs there are: of all models, or of one."""
LABEL = "ray.io/accelerator-type"
WORKER_ENVIRONMENT = {
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "RAY_worker_niceness": "0",  # Ray's default of 15 spoils the timing
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Node:
    """One node of the cluster that is alive. label: Ray's name for the node's first accelerator, where it has one."""

    node_id: str
    host: str
    address: str
    gpus: int
    cpus: int
    label: str | None

    def __str__(self) -> str:
        gpus = f"{self.gpus} x {self.label or 'unnamed GPU'}" if self.gpus else "no GPU"
        return f"{self.host} ({self.address}): {gpus}"


@contextmanager
def connect(cluster: Cluster, meanwhile: Sequence[str] = ()) -> Iterator[bool]:
    """Be connected to the cluster of ``cluster.address``, else of RAY_ADDRESS, else to a local Ray of one's own.

    meanwhile: modules to import in this order while Ray starts, which takes seconds of waiting; where it was faster,
    they go on coming in. Yields whether the Ray is one's own: then its workers have WORKER_ENVIRONMENT already.

    Raises:
        ClusterError: the address cannot be used, or no Ray answers there.
    """
    address = cluster.address or os.environ.get("RAY_ADDRESS") or "local"
    origin = "cluster.address" if cluster.address else "RAY_ADDRESS"
    check_address(address, min(PROBE_S, cluster.start_timeout_s), origin)
    local = address == "local"
    if local:
        _prepare_environment()
        _prepare_workers()
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with ExitStack() as stack:
        starting = lean(stack.enter_context(reserved_port())) if local else nullcontext()
        stack.enter_context(_session(address, _init_options(cluster, local=local), meanwhile, starting))
        yield local


@contextmanager
def attach(address: str, token: str | None, node: str, meanwhile: Sequence[str] = ()) -> Iterator[None]:
    """Be connected to a kept Ray (orchestrator.kept), whose workers have WORKER_ENVIRONMENT and this very code.

    node: the id of its node here.

    Raises:
        ClusterError: no Ray answers there.
    """
    check_address(address, PROBE_S, "the kept Ray")
    _prepare_environment()
    if token and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=token)
    with _session(address, QUIETLY, meanwhile, on_node(node)):
        yield


@contextmanager
def _session(
    address: str,
    options: Mapping[str, Any],
    meanwhile: Sequence[str],
    starting: AbstractContextManager[None],
) -> Iterator[None]:
    """Be connected, to a Ray that is started for it where the address is local. starting: in which this happens."""
    import ray

    if ray.is_initialized():
        raise ClusterError("this process is connected to Ray already: end that connection first (ray.shutdown())")
    with ExitStack() as stack:
        loading = stack.enter_context(ThreadPoolExecutor(max_workers=1))
        loading.submit(lambda: [importlib.import_module(name) for name in meanwhile])
        try:
            with starting:
                ray.init(address=address, **options)
        except Exception as error:  # raised again where it is a fault of this program
            if not _of_ray(error):
                raise
            places = PLACES if isinstance(error, OSError) and not isinstance(error, ConnectionError) else ""
            advice = places if address == "local" else TOKENS
            raise ClusterError(f"cannot {_action(address)}: {error}{advice}") from error
        try:
            yield  # a module that cannot be imported says so where it is used
        finally:
            with redirect_stdout(io.StringIO()):  # Ray's last notices are not the user's output
                ray.shutdown()


def _of_ray(error: Exception) -> bool:
    """Whether Ray raises such a thing; one of no kind at all says that its raylet did not start in time."""
    import ray

    return type(error) is Exception or isinstance(error, (OSError, RuntimeError, ValueError, ray.exceptions.RayError))


def check_address(address: str, timeout_s: float, origin: str = "cluster.address") -> None:
    """Return if something that speaks Ray's protocol answers; Ray itself would try a dead address for many minutes.

    Raises:
        ClusterError: no usable address, or nothing that could be Ray answers there.
    """
    if address in ("local", "auto"):
        return
    if address.startswith("ray://"):
        raise ClusterError(
            f"{origin}={address}: Ray Client (ray://) is not supported, it slows every call tenfold. Run the "
            "command on a node of the cluster with cluster.address=HOST:6379, or by `ray job submit`"
        )
    host, port = _host_and_port(address, origin)
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.settimeout(timeout_s)
            # With TLS the greeting differs; then an open port has to do.
            greeted = os.environ.get("RAY_USE_TLS", "0") != "0" or _speaks_http2(connection)
    except OSError as error:
        raise ClusterError(f"no Ray cluster answers at {address}: {error}") from error
    if not greeted:
        raise ClusterError(f"what answers at {address} is not Ray: give the GCS's HOST:PORT, often :6379")


def nodes() -> tuple[Node, ...]:
    """Return the nodes that are alive."""
    import ray

    listing: Any = ray.nodes  # Ray leaves it untyped
    return tuple(_node(facts) for facts in listing() if facts["Alive"])


def accelerators() -> tuple[Node, ...]:
    """Return the nodes that have GPUs."""
    return tuple(node for node in nodes() if node.gpus)


def local_node() -> Node:
    """Return the node that this process runs on.

    Raises:
        EngineLostError: its Ray has ended.
    """
    import ray

    here = ray.get_runtime_context().get_node_id()
    return _alive(node for node in nodes() if node.node_id == here)


def lifeline() -> Lifeline:
    """Return what tells whether the Ray that this process is connected to still lives."""
    import ray

    context = ray.get_runtime_context()
    listing: Any = ray.nodes
    here = _alive(facts for facts in listing() if facts["NodeID"] == context.get_node_id())
    return Lifeline(here["RayletSocketName"], _host_and_port(context.gcs_address, "the head's address"))


def usable(gpu: str, among: Iterable[Node]) -> tuple[Node, ...]:
    """Return the nodes that have GPUs and may have ``gpu`` (one of ANY, a family or a key of the catalogue).

    A node whose label clearly names another family of the catalogue is left out. Labels come from a node's first
    GPU only, so what each worker reports of its own device decides: see ``accepts``.
    """
    found = tuple(node for node in among if node.gpus)
    if gpu in ANY:
        return found
    from orchestrator import catalogue

    wanted = {spec.family for spec in catalogue.family_or_key(gpu)}
    known = {spec.family for spec in catalogue.load().values()}
    named = {node: _words(node.label) & known for node in found}
    return tuple(node for node in found if not named[node] or named[node] & wanted)


def require(gpu: str, among: Iterable[Node]) -> tuple[Node, ...]:
    """Return ``usable``, which must not be empty.

    Raises:
        ClusterError: says what the cluster has.
    """
    found = tuple(among)
    if chosen := usable(gpu, found):
        return chosen
    what = "no GPU" if gpu in ANY else f"no GPU that is '{gpu}'"
    raise ClusterError(complaint(f"the cluster has {what}", gpu, found))


def complaint(problem: str, gpu: str, among: Iterable[Node]) -> str:
    """Say what keeps ``gpu`` from being measured on, what the cluster has, and what to do; of a CPU the first alone."""
    if gpu == "cpu":
        return problem
    found = tuple(among)
    has = "\n".join(f"  {node}" for node in found) or "  no nodes"
    others = any(node.gpus for node in found) and gpu not in ANY
    advice = "\ncluster.gpu=any measures on whatever GPUs there are" if others else ""
    advice = advice if any(node.gpus for node in found) else "\nconf=cpu measures on the CPU"
    return f"{problem}\nthe cluster's nodes:\n{has}{advice}"


def accepts(gpu: str, device: DeviceInfo) -> bool:
    """Return whether a device, by what it reports of itself, is one that ``gpu`` asks for."""
    if gpu in (*ANY, "cpu"):
        return (device.kind == "cpu") == (gpu == "cpu")
    from orchestrator import catalogue

    return catalogue.match(device.gpu, device.memory_bytes) in catalogue.family_or_key(gpu)


def own_token() -> None:
    """Have this process, and the Ray that it starts, authenticate by a token of their own.

    Ray's default would write one to the home directory, which a later `ray start --head` then demands. Ray reads both
    variables once, when it is imported: set later, they would reach its servers only, and the driver could not talk to
    them.
    """
    if "ray" not in sys.modules and not any(name.startswith("RAY_AUTH_") for name in os.environ):
        os.environ["RAY_AUTH_MODE"] = "token"
        os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def _prepare_environment() -> None:
    """Settings for a Ray of this command's own, or a kept one."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Its workers run by this Python whatever started it, so that nobody need look for `uv run` among our ancestors.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # Without docstrings (-OO) an agent of Ray's ends, and takes its raylet along.
    os.environ.pop("PYTHONOPTIMIZE", None)


def _prepare_workers() -> None:
    # Workers inherit it. By Ray's runtime environment the first worker would be ready some seconds later.
    os.environ.update(WORKER_ENVIRONMENT)
    _share_path()
    # The worker that Ray starts ahead of need imports torch while the driver connects.
    os.environ.setdefault("RAY_preload_python_modules", WORKER_MODULE)
    own_token()


def _share_path() -> None:
    """Have workers import this very package: in a checkout, another version may be installed beside it."""
    import orchestrator

    root = str(Path(orchestrator.__file__).parent.parent)
    if root not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path != root]
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *others])


def _init_options(cluster: Cluster, *, local: bool) -> dict[str, Any]:
    options = dict(QUIETLY)
    if local:
        # Ray starts an idle worker for each CPU that it is told of, and only so many at once; this job runs one actor a
        # device. By default its object store claims 30% of the memory, much more than Shards on their way need.
        size = {"num_cpus": _workers(cluster), "object_store_memory": OBJECT_STORE_BYTES}
        return {**options, "include_dashboard": False, **size}
    import orchestrator
    import tasks

    # By path: in a job, Ray copies what is given here, and a module cannot be copied.
    return {**options, "runtime_env": {"py_modules": [module.__path__[0] for module in (orchestrator, tasks)]}}


def _workers(cluster: Cluster) -> int:
    """How many workers a sweep here will have, as far as can be told before Ray has started."""
    gpus = 0 if cluster.gpu == "cpu" else gpus_here(os.environ)
    return max(1, gpus if cluster.max_gpus is None else min(gpus, cluster.max_gpus))


def _action(address: str) -> str:
    return "start a local Ray" if address == "local" else f"connect to the Ray cluster at {address}"


def _alive(found: Iterable[Here]) -> Here:
    """Return this process's own node; one that died just now is not among the others any more."""
    for node in found:
        return node
    raise EngineLostError("Ray on this node has ended before it was used (killed, or out of memory?)")


def _host_and_port(address: str, origin: str) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if not host or not port or parts.netloc != address:
        raise ClusterError(f"{origin}={address}: expected HOST:PORT, for example 10.0.0.1:6379")
    return host, port


def _speaks_http2(connection: socket.socket) -> bool:
    """Whether the other end answers HTTP/2, as every gRPC server does: with a SETTINGS frame."""
    connection.sendall(HTTP2_PREFACE)
    header = b""
    while len(header) < 9 and (received := connection.recv(9 - len(header))):
        header += received
    return len(header) == 9 and header[3] == HTTP2_SETTINGS


def _node(facts: dict[str, Any]) -> Node:
    resources = facts["Resources"]
    types = [name.removeprefix("accelerator_type:") for name in resources if name.startswith("accelerator_type:")]
    return Node(
        node_id=facts["NodeID"],
        host=facts["NodeManagerHostname"],
        address=facts["NodeManagerAddress"],
        gpus=int(resources.get("GPU", 0)),
        cpus=int(resources.get("CPU", 0)),
        label=facts.get("Labels", {}).get(LABEL) or next(iter(types), None),
    )


def _words(label: str | None) -> set[str]:
    """Split a label such as ``AMD-Instinct-MI300X-OAM`` into lower-case words."""
    return set(re.findall(r"[a-z0-9]+", (label or "").lower()))
