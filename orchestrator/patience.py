"""Calls that wait for a network: never longer than the caller has time, and never deaf to Ctrl-C."""

import concurrent.futures as cf
import queue
import random
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.errors import StoreError

T = TypeVar("T")
U = TypeVar("U")

PARALLEL = 8
"""Files that are under way at once: a store answers each only after tens of milliseconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Backoff:
    """Pauses before further tries: each twice the one before, up to a limit, and by chance up to half shorter."""

    first_s: float = 0.5
    most_s: float = 15.0

    def pause_s(self, failures: int) -> float:
        """Seconds to wait after the ``failures``-th failure in a row (from 1)."""
        longest = min(self.most_s, self.first_s * 2.0 ** min(failures - 1, 30))
        return longest * random.uniform(0.5, 1.0)


def within(seconds: float, what: str, call: Callable[[], T]) -> T:
    """Return what ``call`` returns, or raise what it raises; it runs in a thread of its own, which Ctrl-C leaves.

    Raises:
        StoreError: it has not returned after ``seconds``; ``what`` names it. The thread is left to itself.
    """
    answers: queue.SimpleQueue[tuple[T, None] | tuple[None, BaseException]] = queue.SimpleQueue()

    def answer() -> None:
        try:
            answers.put((call(), None))
        except BaseException as error:  # raised again in the caller's thread
            answers.put((None, error))

    threading.Thread(target=answer, name="store", daemon=True).start()
    try:
        value, error = answers.get(timeout=seconds)
    except queue.Empty:
        raise StoreError(f"{what}: it does not answer within {seconds:g} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def each(call: Callable[[T], U], items: Iterable[T]) -> list[U]:
    """Call for every item, several at once, and return the results in order; the first error ends it.

    On an error or Ctrl-C the calls that have not begun are dropped.
    """
    pool = cf.ThreadPoolExecutor(PARALLEL, thread_name_prefix="store")
    try:
        return list(pool.map(call, items))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
