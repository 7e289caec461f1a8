"""How visits of several calls step through a pool, so that none finds its inputs in the cache: pure arithmetic."""

import math
from collections.abc import Mapping

from tasks.calls import MAX_CALLS
from tasks.gemm import Gemm
from tasks.pool import input_elements, output_elements, sweep_windows
from tasks.settings import L2_REUSE


def sweep_plan(gemm: Gemm, calls: int, lead: int, cache_bytes: int, limit_bytes: int) -> tuple[int, int]:
    """Return (timed calls, windows) of a visit that sweeps a pool from its start, lead calls first.

    The visit is lengthened until its inputs outrun the cache ``L2_REUSE`` times, and to whole turns of its windows
    where they are fewer than its calls: then no visit, of this Gemm or another, finds its inputs in the cache. Outputs
    do not count: a Gemm that reads more of what it moves would reach the end of another's inputs too soon.
    """
    enough = -(-L2_REUSE * cache_bytes // gemm.input_bytes)
    total = min(MAX_CALLS, max(calls + lead, enough))
    windows = sweep_windows(gemm, total, cache_bytes, limit_bytes)
    return -(-total // windows) * windows - lead, windows


def sweep_plans(
    calls: Mapping[Gemm, int], lead: int, cache_bytes: int, limit_bytes: int, longest: dict[int, int] | None = None
) -> dict[Gemm, tuple[int, int]]:
    """The sweep plan of each Gemm; those that are to have as many calls as others are lengthened like the longest.

    longest: timed calls, by calls, of those with which these will be compared; what these have is added.
    """
    longest = {} if longest is None else longest
    for gemm, count in calls.items():
        timed, _ = sweep_plan(gemm, count, lead, cache_bytes, limit_bytes)
        longest[count] = max(timed, longest.get(count, 0))
    return {gemm: sweep_plan(gemm, longest[count], lead, cache_bytes, limit_bytes) for gemm, count in calls.items()}


def outrun_cache(plans: dict[Gemm, tuple[int, int]], lead: int, cache_bytes: int) -> bool:
    """Whether every one of these sweeps outruns the cache; where one does not, the cache is flushed before each visit.

    ``MAX_CALLS`` cuts the sweeps of very small Gemms short; what one of them leaves in the cache, the next one, also of
    a larger Gemm, would find.
    """
    return all((lead + n) * gemm.input_bytes >= L2_REUSE * cache_bytes for gemm, (n, _) in plans.items())


def sweep_elements(plans: dict[Gemm, tuple[int, int]], cache_bytes: int, limit_bytes: int) -> tuple[int, int]:
    """Elements of inputs and of outputs that the largest of these sweeps takes.

    Where windows of its own for each call would take more than ``limit_bytes``, outputs come back, as inputs do, once
    they have outrun the cache: a Gemm with few inputs and large outputs has many calls.
    """
    outputs = {gemm: windows for gemm, (_, windows) in plans.items()}
    for gemm, windows in outputs.items():
        if windows * gemm.bytes > limit_bytes:
            outputs[gemm] = min(windows, math.ceil(L2_REUSE * cache_bytes / gemm.output_bytes))
    return (
        max(windows * input_elements(gemm) for gemm, (_, windows) in plans.items()),
        max(windows * output_elements(gemm) for gemm, windows in outputs.items()),
    )
