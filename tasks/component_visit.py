"""Visits of components: the same calls each time, on tensors that are not in the cache."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from math import ceil
from typing import Protocol

import torch

from tasks.calls import MAX_CALLS, lead_calls, visit_calls
from tasks.component import Component
from tasks.cpu import Done
from tasks.cuda import Events, capture
from tasks.device import Device, Pending
from tasks.layer_ops import Call
from tasks.settings import L2_REUSE, Timing
from tasks.windows import Windows

DELAYS = 16
"""Flushes behind which the launches of a visit queue that could not be captured."""


class Timed(Protocol):
    """A visit of a round: the same calls each time that it is enqueued. launch: graph, stream, queued or cpu."""

    calls: int
    lead_calls: int
    launch: str

    def enqueue(self) -> Pending:
        """Hand the calls to the device."""


class ComponentVisit:
    """Lead calls, then timed ones. before: what the device does ahead of them."""

    def __init__(
        self,
        device: Device,
        *,
        calls: int,
        lead_calls: int,
        launch: str,
        lead: Callable[[], object],
        timed: Callable[[], object],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        self.calls = calls
        self.lead_calls = lead_calls
        self.launch = launch
        self._lead = lead
        self._timed = timed
        self._before = before
        self._watch = clocked if device.torch_device.type == "cpu" else evented

    def enqueue(self) -> Pending:
        """Hand lead calls and timed calls to the device; do not wait for them."""
        self._before()
        self._lead()
        return self._watch(self._timed, self.calls)


def clocked(work: Callable[[], object], calls: int) -> Pending:
    """Time ``calls`` calls by the clock."""
    start = time.perf_counter_ns()
    work()
    return Done(max(time.perf_counter_ns() - start, 1) * 1e-9 / calls)


def evented(work: Callable[[], object], calls: int) -> Pending:
    """Time ``calls`` calls by two events on the current stream."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    work()
    end.record()
    return Events(start, end, calls)


def kept_outputs(component: Component, device: Device) -> int:
    """How many calls' outputs are held, so that the next call's memory is not in the cache; none where one fills it."""
    enough = L2_REUSE * device.cache_bytes
    if component.output_bytes >= enough:
        return 0
    return min(MAX_CALLS, ceil(enough / max(component.output_bytes, 1)))


class Flush:
    """Overwrites more than the last-level cache; on a GPU also a delay behind which launches queue."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._scratch: torch.Tensor | None = None

    def __call__(self, times: int = 1) -> None:
        """Flush so many times."""
        if self._scratch is None:
            size = L2_REUSE * self._device.cache_bytes
            self._scratch = torch.empty(size, dtype=torch.uint8, device=self._device.torch_device)
        for _ in range(times):
            self._scratch.zero_()


def visit(
    device: Device, component: Component, call: Call, seconds: float, windows: Windows, timing: Timing, flush: Flush
) -> ComponentVisit:
    """A captured graph for short calls on a GPU; one launched call where it fills a visit; on a CPU call by call."""
    calls = visit_calls(seconds, timing)
    if device.torch_device.type != "cpu" and calls > 1:
        return _sweep_visit(device, component, call, calls, windows, timing, flush)
    lead = lead_calls(calls, timing)
    kept: deque[object] = deque(maxlen=kept_outputs(component, device))
    taken: list[tuple[torch.Tensor, ...]] = []

    def run(count: int) -> None:
        for _ in range(count):
            kept.append(call(taken.pop()))

    def before() -> None:
        taken[:] = [windows.tensors(component) for _ in range(lead + calls)]
        if timing.l2 == "flush":
            flush()

    launch = "cpu" if device.torch_device.type == "cpu" else "stream"
    return ComponentVisit(
        device,
        calls=calls,
        lead_calls=lead,
        launch=launch,
        lead=lambda: run(lead),
        timed=lambda: run(calls),
        before=before,
    )


def _sweep_visit(
    device: Device, component: Component, call: Call, calls: int, windows: Windows, timing: Timing, flush: Flush
) -> ComponentVisit:
    """A visit that steps through the pool from its start, as many calls as outrun the cache, captured as one graph."""
    lead = lead_calls(calls, timing)
    steps, cold = sweep_steps(component, calls + lead, windows, device.cache_bytes, hot=timing.l2 == "hot")
    kept: deque[object] = deque(maxlen=kept_outputs(component, device))

    def run(tensors: Sequence[tuple[torch.Tensor, ...]]) -> None:
        for each in tensors:
            kept.append(call(each))

    run(steps[:1])
    kept.clear()
    graph = capture(lambda: run(steps[lead:]))
    kept.clear()
    wanted = timing.l2 != "hot" and not cold
    return ComponentVisit(
        device,
        calls=len(steps) - lead,
        lead_calls=lead,
        launch="queued" if graph is None else "graph",
        lead=lambda: run(steps[:lead]),
        timed=(lambda: run(steps[lead:])) if graph is None else graph.replay,
        before=(lambda: flush(DELAYS)) if graph is None else flush if wanted else (lambda: None),
    )


def sweep_steps(
    component: Component, calls: int, windows: Windows, cache_bytes: int, *, hot: bool
) -> tuple[list[tuple[torch.Tensor, ...]], bool]:
    """The tensors of each call of a sweep, and whether it reads ``L2_REUSE`` caches of different bytes.

    As in a Gemm's sweep: at least ``calls`` calls, and whole turns of the windows.
    """
    enough = L2_REUSE * cache_bytes
    total = calls if hot else min(MAX_CALLS, max(calls, ceil(enough / component.input_bytes)))
    room = 1 if hot else min(total, windows.room(component))
    total = ceil(total / room) * room
    steps = [windows.at(component, i % room) for i in range(total)]
    return steps, room * component.input_bytes >= enough
