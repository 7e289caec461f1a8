"""The process that owns a kept Ray: it ends it when nobody has used it for a while, or its user has died."""

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestrator import cluster
from orchestrator.errors import EngineLostError, OrchestratorError
from orchestrator.kept_place import Place, Ray, locked
from orchestrator.lifeline import Lifeline
from orchestrator.schema import Cluster

POLL_S = 0.25
START_S = 5.0
"""For a command that looks whether a keeper lives, and so has the lock for a moment."""


class Watch:
    """Looks at the use of a kept Ray. clock: monotonic seconds."""

    def __init__(self, place: Place, clock: Callable[[], float] = time.monotonic) -> None:
        self._place = place
        self._clock = clock
        self._idle_since: float | None = None

    def over(self) -> bool:
        """Whether the Ray is to end now; then nobody finds it any more.

        Who asks for its end waits for it. A lease that is free, without a word that its holder had ended, was a
        holder's that died: what its workers do now nobody knows.
        """
        use = self._place.use()
        if use is None or use.keep_s == 0:
            return True
        with locked(self._place.lease) as free:
            if not free:
                self._idle_since = None
                return False
            use, now = self._place.use(), self._clock()  # again: it may have changed until the lease was free
            since = self._idle_since = now if self._idle_since is None else self._idle_since
            if use is not None and use.clean and now - since < use.keep_s:
                return False
            self._place.forget()
            return True


def main(arguments: Sequence[str]) -> int:
    """Own a Ray, or say in the log why not: the command that waits for it shows the log to its user."""
    try:
        return _own(arguments)
    except OrchestratorError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code


def _own(arguments: Sequence[str]) -> int:
    """Own a Ray until it is not needed any more. arguments: the place, and what is wanted as JSON."""
    place, wanted = Place(Path(arguments[0])), json.loads(arguments[1])
    ended: list[int] = []
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with locked(place.keeper, START_S) as alone:
        if not alone:
            return 1
        with cluster.connect(Cluster(gpu=wanted["gpu"], max_gpus=wanted["max_gpus"], address="local")):
            signal.signal(signal.SIGTERM, lambda number, frame: ended.append(number))  # Ray has set its own
            ray, watch, lifeline = _reached(wanted["like"]), Watch(place), cluster.lifeline()
            place.tell_ray(ray)
            while not ended and _lives(lifeline) and not watch.over():
                time.sleep(POLL_S)
            place.forget()
    return 0


def _reached(like: dict[str, str]) -> Ray:
    import ray

    here = ray.get_runtime_context()
    return Ray(address=here.gcs_address, token=os.environ.get("RAY_AUTH_TOKEN"), node=here.get_node_id(), like=like)


def _lives(lifeline: Lifeline) -> bool:
    try:
        lifeline.holds()
    except EngineLostError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
