"""Components made ready to be timed: their tensors, one try, and what of it does not run here."""

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from tasks.component import Component
from tasks.component_visit import DELAYS, Flush, Timed, clocked, evented, kept_outputs, visit
from tasks.device import GIB, Device
from tasks.gemm import ELEMENT_BYTES
from tasks.layer_ops import OPS, Call
from tasks.records import GemmFacts
from tasks.settings import Timing
from tasks.windows import Windows, pool_elements

SHORT_S = 1e-4
"""A call shorter than this is estimated from several, behind ``DELAYS`` flushes, so that no launch is timed."""

NOWHERE = "No viable backend"
"""What torch says where it was built without a backend."""

FAULTS = re.compile(r"\b(CUDA|HIP) (\w+ )?error\b|INTERNAL ASSERT")
"""What is no refusal of a backend, each of which has its own words for what it does not take, but a fault."""


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
    windows, crowded = _windows(device, fitting, components[0].dtype, timing)
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


def _windows(device: Device, components: Sequence[Component], dtype: str, timing: Timing) -> tuple[Windows, str | None]:
    """Windows for all components, or, with the reason, for those that are no Gemms."""
    size = sum(pool_elements(components, device.cache_bytes))
    needed, free = size * ELEMENT_BYTES[dtype], device.idle_bytes()
    crowded = f"needs {needed / GIB:.2f} GiB, {free / GIB:.2f} free" if needed > free else None
    pooled = [each for each in components if each.gemm is None] if crowded else components
    pool = device.component_pool(dtype, *pool_elements(pooled, device.cache_bytes))
    return Windows(pool, hot=timing.l2 == "hot"), crowded


def too_large(device: Device, component: Component) -> str | None:
    """Why a component does not fit beside what the device holds already, or None. A Gemm is judged by the device."""
    if component.gemm is not None:
        return None
    inputs, _ = pool_elements([component], device.cache_bytes)
    kept = (kept_outputs(component, device) + 2) * component.output_bytes
    needed, free = inputs * component.element_bytes + kept + component.workspace, device.idle_bytes()
    return f"needs {needed / GIB:.2f} GiB, {free / GIB:.2f} free" if needed > free else None


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
            if component.kind != "attention" or FAULTS.search(str(error)):
                raise
            device.synchronize()  # raises where the device itself is lost
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
