"""What a kept Ray holds at this moment, for who only looks: nothing is locked, so that nobody waits for it."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from orchestrator.kept_place import Place
from orchestrator.schema import Cluster

RELEASE = "python -m orchestrator release"


@dataclass(frozen=True, kw_only=True, slots=True)
class Kept:
    """A kept Ray. devices: names by UUID; none while a command uses it, for then they change.

    pid: the command that uses it, since ``since``; where ``until`` is set, the one that has left it then, to end at
    ``until`` if no other uses it. taken: whether a run that is asked for now would go on with it.
    """

    pid: int
    since: datetime
    until: datetime | None
    devices: Mapping[str, str]
    taken: bool


def kept_now(cluster: Cluster, place: Place | None = None) -> Kept | None:
    """Return what is kept, None where nothing is, or it is ending. cluster: what a run would ask for.

    Raises:
        ClusterError: the place is not this user's alone.
    """
    place = place or Place()
    use = place.use() if place.kept else None
    since = place.told_at()
    if use is None or since is None or use.keep_s == 0:
        return None
    return Kept(
        pid=use.pid,
        since=since,
        until=since + timedelta(seconds=use.keep_s) if use.clean else None,
        devices=use.devices,
        taken=elsewhere(cluster) is None,
    )


def elsewhere(cluster: Cluster) -> str | None:
    """Return the address of the Ray that a run would use in place of a kept one; None where it names none."""
    return cluster.address or os.environ.get("RAY_ADDRESS") or None


def holding(names: Iterable[str]) -> str:
    """Say what devices are held, in their order.

    >>> holding(["NVIDIA H200", "NVIDIA L4", "NVIDIA H200"])
    '2 x NVIDIA H200, 1 x NVIDIA L4'
    """
    return ", ".join(f"{count} x {name}" for name, count in Counter(names).items())
