"""Reaching a Ray cluster, and choosing among what it has."""

import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.cluster import (
    Node,
    _alive,
    _prepare_environment,
    accepts,
    check_address,
    complaint,
    connect,
    require,
    usable,
)
from orchestrator.errors import ClusterError, EngineLostError
from orchestrator.schema import Cluster
from tests.fakes import device_info


def node(name: str, gpus: int = 8, label: str | None = None) -> Node:
    return Node(node_id=name, host=name, address="10.0.0.1", gpus=gpus, cpus=16, label=label)


@contextmanager
def listener(answer: bytes) -> Iterator[str]:
    """Accept connections on a free port and answer each with ``answer``."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                kept.append(connection)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()
            for connection in kept:
                connection.close()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ray://head:10001", "Ray Client"),
        ("head", "expected HOST:PORT"),
        ("head:port", "expected HOST:PORT"),
        ("head:0", "expected HOST:PORT"),
        ("head:99999", "expected HOST:PORT"),
        ("http://head:6379", "expected HOST:PORT"),
        ("no-such-host.invalid:6379", "no Ray cluster answers at no-such-host.invalid:6379"),
    ],
)
def test_addresses_that_cannot_be_used(address: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message):
        check_address(address, 1.0)


def test_a_dead_port_is_refused_at_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(ClusterError, match=f"no Ray cluster answers at 127.0.0.1:{port}"):
        check_address(f"127.0.0.1:{port}", 1.0)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"SSH-2.0-x\r\n", "is not Ray"),
        (b"HTTP/1.1 400 Bad Request\r\n", "is not Ray"),
        (b"", "no Ray cluster answers"),
    ],
)
def test_a_port_of_something_else_is_refused(answer: bytes, message: str) -> None:
    with listener(answer) as address, pytest.raises(ClusterError, match=message):
        check_address(address, 0.3)


def test_a_port_that_speaks_http2_may_be_ray() -> None:
    with listener(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00") as address:
        check_address(address, 1.0)


def test_ray_address_is_used_and_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "ray://head:10001")
    with pytest.raises(ClusterError, match="ray://head:10001"), connect(Cluster()):
        pass


@pytest.mark.parametrize("length", [0, 90])
def test_a_place_where_ray_cannot_keep_its_files_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, length: int
) -> None:
    place = tmp_path / "a file"
    place.touch()
    if length:
        place = tmp_path / ("x" * length)  # of a socket's path Linux takes 107 bytes
        place.mkdir()
    monkeypatch.setattr(os, "environ", {**os.environ, "RAY_TMPDIR": str(place)})
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(ClusterError, match=f"^cannot start a local Ray: .*{place}.*\n.*RAY_TMPDIR"), connect(Cluster()):
        pass


@pytest.mark.parametrize(
    ("raised", "told"), [(Exception, ClusterError), (RuntimeError, ClusterError), (TypeError, TypeError)]
)
def test_a_raylet_that_does_not_start_in_time_is_told_and_a_fault_of_ours_is_shown(
    monkeypatch: pytest.MonkeyPatch, raised: type[Exception], told: type[Exception]
) -> None:
    """Ray waits 30 s for its raylet, too long for a test, and raises then what has no kind."""
    import ray

    def late(**_: object) -> None:
        raise raised("The current node timed out during startup.")

    monkeypatch.setattr(ray, "init", late)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with pytest.raises(told, match="timed out during startup"), connect(Cluster()):
        pass


def test_a_ray_whose_node_has_died_is_told() -> None:
    assert _alive(iter("ab")) == "a"
    with pytest.raises(EngineLostError, match="has ended before it was used"):
        _alive([])


def test_ray_keeps_the_docstrings_that_its_agents_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {"PYTHONOPTIMIZE": "2"})
    _prepare_environment()
    assert "PYTHONOPTIMIZE" not in os.environ


NODES = (
    node("a", label="A100"),
    node("b", label="AMD-Instinct-MI300X-OAM"),
    node("c"),
    node("d", 0),
    node("e", label="G"),
)


@pytest.mark.parametrize(
    ("gpu", "names"),
    [("any", "abce"), ("auto", "abce"), ("a100", "ace"), ("a100-sxm-80", "ace"), ("mi300x", "bce"), ("h200", "ce")],
)
def test_nodes_that_clearly_have_another_family_are_left_out(gpu: str, names: str) -> None:
    assert "".join(found.node_id for found in usable(gpu, NODES)) == names


def test_a_missing_model_is_an_error_that_says_what_there_is() -> None:
    with pytest.raises(ClusterError) as caught:
        require("a100", [node("x", 2, "H200"), node("y", 0)])
    assert str(caught.value).splitlines() == [
        "the cluster has no GPU that is 'a100'",
        "the cluster's nodes:",
        "  x (10.0.0.1): 2 x H200",
        "  y (10.0.0.1): no GPU",
        "cluster.gpu=any measures on whatever GPUs there are",
    ]


def test_no_gpu_at_all_advises_the_cpu() -> None:
    with pytest.raises(ClusterError, match=r"the cluster has no GPU\n(.|\n)*conf=cpu measures on the CPU"):
        require("any", [node("x", 0)])


def test_a_sweep_on_the_cpu_that_lost_its_worker_is_told_of_no_gpu_and_not_to_use_the_cpu() -> None:
    assert complaint("no device is left", "cpu", [node("x", 0), node("y", 2)]) == "no device is left"


def test_a_busy_gpu_of_any_model_needs_no_advice() -> None:
    assert complaint("all busy", "any", [node("x", 1)]).splitlines()[-1] == "  x (10.0.0.1): 1 x unnamed GPU"


@pytest.mark.parametrize(
    ("gpu", "name", "kind", "expected"),
    [
        ("any", "Whatever", "cuda", True),
        ("auto", "Whatever", "rocm", True),
        ("any", "EPYC", "cpu", False),
        ("cpu", "EPYC", "cpu", True),
        ("h200", "NVIDIA H200", "cuda", True),
        ("a100", "NVIDIA H200", "cuda", False),
        ("h200", "Whatever", "cuda", False),
    ],
)
def test_a_device_is_accepted_by_its_own_name(gpu: str, name: str, kind: str, expected: bool) -> None:
    assert accepts(gpu, device_info(0, gpu=name, kind=kind)) is expected


LOCAL = """
import os
import sys
from pathlib import Path
from orchestrator import cluster
from orchestrator.schema import Cluster
assert "ray" not in sys.modules
with cluster.connect(Cluster()):
    here = cluster.local_node()
    print(len(cluster.nodes()), len(cluster.accelerators()), here.cpus > 0)
    children = Path("/proc/self/task", str(os.getpid()), "children").read_text().split()
    print(*sorted(Path("/proc", child, "comm").read_text().strip() for child in children))
"""


@pytest.mark.ray
def test_a_local_ray_starts_quietly_and_leaves_no_token_behind(tmp_path: Path) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {
        **inherited,
        "HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "CUDA_VISIBLE_DEVICES": "",
    }
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOCAL], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1 0 True\ngcs_server raylet\n", "", 0)
    assert list(tmp_path.iterdir()) == []
    assert time.monotonic() - began < 30
