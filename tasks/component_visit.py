"""Components made ready to be timed: their tensors, one try, and visits that a round can make."""

import time
import warnings
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Protocol

import torch

from tasks.calls import MAX_CALLS, lead_calls, visit_calls
from tasks.component import Component
from tasks.cpu import Done
from tasks.cuda import Events, capture
from tasks.device import GIB, Device, Pending
from tasks.layer_ops import OPS, Call
from tasks.pool import L2_REUSE
from tasks.records import GemmFacts
from tasks.settings import Timing
from tasks.windows import Windows, pool_elements

SHORT_S = 1e-4
DELAYS = 16
"""A call shorter than this is estimated from several, behind so many flushes, so that their launches are not timed."""

NOWHERE = "No viable backend"
NO_BACKEND = ("No available kernel", NOWHERE, "not implemented", "not supported", "NOT_SUPPORTED")
"""What torch says where a backend does not exist here, or does not take these tensors."""


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """Components that run here. seconds: of one call, roughly; failures: why the others do not run.

    crowded: why the windows have no room for Gemms, None where they have.
    """

    windows: Windows
    calls: Mapping[str, Call]
    seconds: Mapping[str, float]
    visits: Mapping[str, Timed]
    failures: tuple[GemmFacts, ...]
    crowded: str | None = None


def ready(device: Device, components: Sequence[Component], timing: Timing) -> Ready:
    """Try each component that is no Gemm and make its visit; the pool has room for the Gemms too where it can.

    What does not fit is skipped, what has no kernel here is unsupported; the others are measured all the same.
    """
    flush = Flush(device)
    failures = {
        each.key: GemmFacts(gemm_id=each.key, status="skipped", message=reason)
        for each in components
        if (reason := too_large(device, each))
    }
    fitting = [each for each in components if each.key not in failures]
    windows, crowded = _windows(device, fitting, timing)
    calls: dict[str, Call] = {}
    seconds: dict[str, float] = {}
    visits: dict[str, Timed] = {}
    for each in (each for each in fitting if each.gemm is None):
        found = attempt(device, each, windows, flush)
        if isinstance(found, GemmFacts):
            failures[each.key] = found
            continue
        calls[each.key], seconds[each.key] = found
        visits[each.key] = visit(device, each, calls[each.key], seconds[each.key], windows, timing, flush)
    return Ready(
        windows=windows,
        calls=calls,
        seconds=seconds,
        visits=visits,
        failures=tuple(failures.values()),
        crowded=crowded,
    )


def _windows(device: Device, components: Sequence[Component], timing: Timing) -> tuple[Windows, str | None]:
    """Windows for all components, or, with the reason, for those that are no Gemms."""
    size = sum(pool_elements(components, device.cache_bytes))
    needed, free = size * components[0].element_bytes, device.idle_bytes()
    crowded = f"needs {needed / GIB:.2f} GiB, {free / GIB:.2f} free" if needed > free else None
    pooled = [each for each in components if each.gemm is None] if crowded else components
    pool = device.component_pool(components[0].dtype, *pool_elements(pooled, device.cache_bytes))
    return Windows(pool, hot=timing.l2 == "hot"), crowded


def too_large(device: Device, component: Component) -> str | None:
    """Why a component does not fit beside what the device holds already, or None. A Gemm is judged by the device."""
    if component.gemm is not None:
        return None
    inputs, _ = pool_elements([component], device.cache_bytes)
    kept = (kept_outputs(component, device) + 2) * component.output_bytes
    needed, free = inputs * component.element_bytes + kept + component.workspace, device.idle_bytes()
    return f"needs {needed / GIB:.2f} GiB, {free / GIB:.2f} free" if needed > free else None


def kept_outputs(component: Component, device: Device) -> int:
    """How many calls' outputs are held, so that the next call's memory is not in the cache; none where one fills it."""
    enough = L2_REUSE * device.cache_bytes
    return 0 if component.output_bytes >= enough else ceil(enough / max(component.output_bytes, 1))


def attempt(device: Device, component: Component, windows: Windows, flush: "Flush") -> tuple[Call, float] | GemmFacts:
    """Run a component; return its call and its seconds, or why it does not run."""
    call = OPS[component.op](component, device.torch_device)
    with warnings.catch_warnings(record=True) as said:  # torch warns why a backend refuses
        warnings.simplefilter("always")
        try:
            call(windows.tensors(component))
            device.synchronize()
            return call, estimate(device, component, call, windows, flush)
        except torch.OutOfMemoryError as error:
            status, message = "oom", str(error)
        except RuntimeError as error:
            if not any(words in str(error) for words in NO_BACKEND):
                raise
            status, message = "unsupported", str(error)
    if NOWHERE in message and not said:
        message = f"PyTorch has no such kernel for this device ({device.info.kind})"
    reasons = [_reason(str(each.message)) for each in said] or [message.partition("\n")[0]]
    return GemmFacts(gemm_id=component.key, status=status, message=" ".join(dict.fromkeys(reasons)))


def _reason(warning: str) -> str:
    """A warning without the place in torch's source that it is from."""
    return warning.partition(" (Triggered internally")[0].strip()


def estimate(device: Device, component: Component, call: Call, windows: Windows, flush: "Flush") -> float:
    """Seconds of one call, roughly: it decides how many calls fill a visit."""
    seconds = 0.0
    for delays, count in ((1, 1), (DELAYS, 8)):
        tensors = [windows.tensors(component) for _ in range(count)]
        flush(delays)
        watch = clocked if device.torch_device.type == "cpu" else evented
        seconds = watch(partial(_each, call, tensors), count).seconds()
        if seconds > SHORT_S:
            break
    return max(seconds, 1e-7)


def _each(call: Call, tensors: Sequence[tuple[torch.Tensor, ...]]) -> None:
    for each in tensors:
        call(each)


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
