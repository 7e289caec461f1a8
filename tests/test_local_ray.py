"""A Ray of one's own that starts no more than a sweep needs."""

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from orchestrator.local_ray import _replace, _with, gpus_here, reserved_port


def test_a_reserved_port_is_for_one_who_reuses_addresses_as_ray_does() -> None:
    with reserved_port() as port:
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as agent:
            agent.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            agent.bind(("127.0.0.1", port))
            agent.listen()
            socket.create_connection(("127.0.0.1", port), timeout=5).close()


def test_a_reserved_port_is_given_to_nobody_who_asks_for_any() -> None:
    with reserved_port() as port:
        for _ in range(200):
            with socket.socket() as other:
                other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                other.bind(("", 0))
                assert other.getsockname()[1] != port


def test_what_a_version_of_ray_does_not_know_is_left_out() -> None:
    def made(first: int, no_monitor: bool = False) -> tuple[int, bool]:
        return first, no_monitor

    assert _with(made, {"no_monitor": True, "unknown": 1})(7) == (7, True)


def test_what_is_replaced_comes_back_and_what_is_not_there_is_not_made() -> None:
    class Node:
        name = "old"

    with ExitStack() as stack:
        _replace(stack, Node, "name", lambda old: f"{old}, changed")
        _replace(stack, Node, "other", lambda old: old)
        assert (Node.name, hasattr(Node, "other")) == ("old, changed", False)
    assert Node.name == "old"


@pytest.mark.parametrize(("named", "count"), [(None, 3), ("0,2", 2), ("", 0), ("GPU-1,GPU-2,GPU-3,GPU-4", 3)])
def test_gpus_are_counted_by_their_device_files(tmp_path: Path, named: str | None, count: int) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia2", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert gpus_here({} if named is None else {"CUDA_VISIBLE_DEVICES": named}, tmp_path) == count
