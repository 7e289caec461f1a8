"""A small fixed Bundle that every device measures again and again: how fast the device itself is, and when."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm, kind_of
from tasks.settings import Timing

PREFIX = "canary"
"""The role of a canary, with which its ids begin: none that a sweep can ask for."""

ROUNDS = 10
VISIT_US = 10_000.0
"""Long visits: in half a millisecond a chip still runs at the clock that the Family before has left it."""

Shapes = Mapping[str, tuple[int, int, int]]

SHAPES: dict[str, Shapes] = {
    "gpu": {"compute": (8192, 8192, 2048), "middle": (2048, 2048, 4096), "memory": (16, 8192, 8192)},
    "cpu": {"compute": (512, 512, 512), "middle": (256, 256, 512), "memory": (4, 1024, 1024)},
}
"""m, n, k per part. In bf16 on an H200 about 420, 60 and 30 us a call: bound by power, by latency, by bandwidth."""

LEAST_M = {"int8": 32}
"""torch's int8 operator takes no fewer than 17 rows on a GPU."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """One canary: the ``number``-th (1, 2, …) of the device ``uuid``. seconds: geometric mean over its Gemms."""

    model: str
    uuid: str
    number: int
    seconds: float


def canary_bundle(dtype: str, kind: str = "cuda") -> Bundle:
    """Return the canary for devices of ``kind`` (cuda, rocm or cpu): one Candidate of three unlike Gemms.

    One Candidate has nobody to race against: each of its Gemms is measured in every round.
    """
    shapes = SHAPES["cpu" if kind == "cpu" else "gpu"]
    least = 1 if kind == "cpu" else LEAST_M.get(dtype, 1)
    parts = tuple(
        Part(name=name, gemm=Gemm(kind=kind_of(dtype), b=1, m=max(m, least), n=n, k=k, dtype=dtype, layout="nt"))
        for name, (m, n, k) in shapes.items()
    )
    m, n, k = shapes["compute"]
    candidates = (Candidate(value=n, parts=parts),)
    return Bundle(
        families=(Family(role=PREFIX, h=k, tp=1, batch=m, seq=None, dtype=dtype, candidates=candidates),),
    )


def canary_timing(timing: Timing) -> Timing:
    """Return the settings for a canary in a sweep with ``timing``: few long rounds, about 0.3 s on a GPU.

    A canary is never measured again for being throttled: that is what it is there to see. Where a sweep loads its
    devices before the first Family, the first canary does it; it does not where the sweep measures without.
    """
    loaded = timing.protocol == "interleaved" and timing.power == "sustained"
    return replace(
        timing,
        protocol="interleaved",
        l2="rotate",
        power="sustained",
        min_rounds=ROUNDS,
        max_rounds=ROUNDS,
        visit_us=VISIT_US,
        lead_calls=None,
        soak_min_s=timing.soak_min_s if loaded else 0.0,
        soak_max_s=timing.soak_max_s if loaded else 0.0,
        redo_throttled=0,
        goal="full",
    )


def is_canary(bundle_id: str) -> bool:
    """Whether a Bundle, by its id, is a canary."""
    return bundle_id.startswith(f"{PREFIX}-")


def canary_seconds(samples: Iterable[tuple[str, float]], gemm_ids: Iterable[str]) -> float | None:
    """Geometric mean over the canary's Gemms of their median seconds, from its samples (gemm_id, seconds).

    None where one of ``gemm_ids`` has no sample: the mean of fewer Gemms is another figure.
    """
    seconds: dict[str, list[float]] = {gemm_id: [] for gemm_id in gemm_ids}
    for gemm_id, value in samples:
        seconds.setdefault(gemm_id, []).append(value)
    return geometric_mean([median(values) for values in seconds.values()]) if all(seconds.values()) else None


def geometric_mean(values: Sequence[float]) -> float | None:
    """Return the geometric mean of positive values; None without any."""
    return math.exp(math.fsum(map(math.log, values)) / len(values)) if values else None
