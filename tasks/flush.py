"""How much is overwritten before a call that is timed alone, so that it finds nothing in the cache."""

import math

from tasks.settings import L2_REUSE

FLUSH_BYTES = 100 * 2**20
"""What is overwritten at least before a call that a GPU times alone: launching the call takes less than that."""


def flushes(cache_bytes: int) -> int:
    """How many times ``L2_REUSE`` caches are overwritten before a call that a GPU times alone."""
    return math.ceil(FLUSH_BYTES / (L2_REUSE * cache_bytes))
