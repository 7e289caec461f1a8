"""Whether the Ray that this process is connected to still lives: without it, Ray ends the process and says nothing."""

import socket
import time
from collections.abc import Callable

from orchestrator.errors import EngineLostError

PROBE_S = 1.0
HEAD_GRACE_S = 40.0
"""How long the head may be silent. Ray waits 60 s for it to come back (RAY_gcs_rpc_server_reconnect_timeout_s)."""


class Lifeline:
    """Asks the two servers that a driver cannot live without: this node's raylet and the cluster's head (GCS).

    raylet: path of its socket. head: its HOST and port. clock: seconds of a monotonic clock.
    """

    def __init__(self, raylet: str, head: tuple[str, int], clock: Callable[[], float] = time.monotonic) -> None:
        self._raylet = raylet
        self._head = head
        self._clock = clock
        self._heard_at = clock()

    def holds(self) -> bool:
        """Return whether Ray can be asked for anything now; False while its head is silent.

        Raises:
            EngineLostError: it cannot be any more: this process must end before Ray ends it.
        """
        if not _answers(self._raylet):
            raise EngineLostError("Ray on this node has ended: its raylet does not answer (killed, or out of memory?)")
        now = self._clock()
        if _answers(self._head):
            self._heard_at = now
        elif now - self._heard_at > HEAD_GRACE_S:
            host, port = self._head
            raise EngineLostError(f"the Ray cluster's head {host}:{port} has not answered for {HEAD_GRACE_S:.0f} s")
        return self._heard_at == now


def _answers(address: str | tuple[str, int]) -> bool:
    try:
        if isinstance(address, tuple):
            socket.create_connection(address, timeout=PROBE_S).close()
        else:
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(PROBE_S)
                client.connect(address)
    except OSError:
        return False
    return True
