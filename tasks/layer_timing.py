"""Time a layer: each component on its own, all in the same rounds, and each variant whole as a check of their sum."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from tasks import bmm
from tasks.calls import visit_calls
from tasks.component import Component, Layer, Variant, gemms
from tasks.component_ready import Ready, ready
from tasks.component_visit import ComponentVisit, Flush, Timed
from tasks.cuda import capture
from tasks.device import Device, Pending, Visit
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, GemmFacts, Telemetry
from tasks.settings import Timing

WHOLE = "whole "
"""What the key of a whole variant begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timings:
    """What was measured of a layer. samples: seconds per call in each round, by the component's key.

    whole: the same of each variant run from end to end, by its name. taken: the component that ran in each of its
    steps. failures: why a component, or a whole variant, was not measured.
    """

    samples: Mapping[str, tuple[float, ...]]
    whole: Mapping[str, tuple[float, ...]]
    taken: Mapping[str, tuple[str, ...]]
    launches: Mapping[str, str]
    failures: tuple[GemmFacts, ...]
    device: DeviceInfo
    telemetry: Telemetry
    rounds: int
    prepare_s: float
    soak_s: float
    measuring_s: float


def time_layer(device: Device, layer: Layer, timing: Timing) -> Timings:
    """Prepare, soak once, and make rounds in random order over all components and the whole variants."""
    begin = device.clock()
    with device.session():
        gemm_visits, failed = device.prepare(gemms(layer.components), timing)
        running = [each for each in layer.components if each.gemm is None or each.gemm in gemm_visits]
        made = ready(device, running, timing)
        visits: dict[str, Timed] = {gemm.gemm_id: visit for gemm, visit in gemm_visits.items()}
        visits.update(made.visits)
        seconds = dict(made.seconds)
        seconds.update({gemm.gemm_id: visit.enqueue().seconds() for gemm, visit in gemm_visits.items()})
        failures = [*failed, *made.failures]
        taken = {variant.name: fastest(variant, seconds) for variant in layer.variants}
        for name, steps in taken.items():
            found = _whole(device, name, steps, made, seconds, timing)
            if isinstance(found, GemmFacts):
                failures.append(found)
            elif found is not None:
                visits[WHOLE + name] = found
        prepared = device.clock() - begin
        _soak(device, gemm_visits, timing, begin)
        soaked = device.clock() - begin - prepared
        samples, telemetry, measuring = rounds(device, visits, timing)
    return Timings(
        samples={key: values for key, values in samples.items() if not key.startswith(WHOLE)},
        whole={name: samples[WHOLE + name] for name in taken if WHOLE + name in samples},
        taken={name: tuple(step.key for step in steps if step is not None) for name, steps in taken.items()},
        launches={key: visit.launch for key, visit in visits.items()},
        failures=tuple(failures),
        device=device.info,
        telemetry=telemetry,
        rounds=max(map(len, samples.values()), default=0),
        prepare_s=prepared,
        soak_s=soaked,
        measuring_s=measuring,
    )


def fastest(variant: Variant, seconds: Mapping[str, float]) -> list[Component | None]:
    """The alternative of each step that takes the fewest seconds; None where none of them was measured."""
    found = []
    for step in variant.steps:
        there = [component for component in step if component.key in seconds]
        found.append(min(there, key=lambda component: seconds[component.key], default=None))
    return found


def rounds(
    device: Device, visits: Mapping[str, Timed], timing: Timing
) -> tuple[dict[str, tuple[float, ...]], Telemetry, float]:
    """Round after round in fresh random order; the next round is enqueued before the last one is read.

    Ends after ``max_rounds``, or ``max_seconds`` beyond ``min_rounds``. Returns the seconds per call of each round,
    the telemetry, and how long it took.
    """
    order, chance = list(visits), random.Random(f"{timing.seed}:layer")
    samples: dict[str, list[float]] = {key: [] for key in visits}

    def enqueue() -> list[tuple[str, Pending]]:
        chance.shuffle(order)
        return [(key, visits[key].enqueue()) for key in order]

    start = device.clock()
    deadline: float | None = None
    with device.measuring() as window:
        in_flight = enqueue() if visits else []
        planned = 1
        while in_flight:
            ended = planned >= timing.max_rounds or (deadline is not None and device.clock() > deadline)
            following = [] if ended else enqueue()
            planned += not ended
            for key, pending in in_flight:
                samples[key].append(pending.seconds())
            if deadline is None and planned >= timing.lone_rounds:
                deadline = device.clock() + timing.most_seconds
            in_flight = following
        seconds = device.clock() - start
    return {key: tuple(values) for key, values in samples.items()}, window.telemetry, seconds


def _soak(device: Device, visits: Mapping[Gemm, Visit], timing: Timing, begin: float) -> None:
    if visits and not device.soaked and timing.power == "sustained":
        device.soak(visits[max(visits, key=lambda gemm: gemm.flops)], timing, begin)
        device.soaked = True


def _whole(
    device: Device,
    name: str,
    steps: Sequence[Component | None],
    made: Ready,
    seconds: Mapping[str, float],
    timing: Timing,
) -> Timed | GemmFacts | None:
    """The variant from end to end, or why not; None where one of its components is missing."""
    present = [step for step in steps if step is not None]
    if len(present) < len(steps):
        return None
    if made.crowded:
        return GemmFacts(gemm_id=WHOLE + name, status="skipped", message=made.crowded)
    try:
        calls = visit_calls(sum(seconds[step.key] for step in present), timing)
        return whole_visit(device, [_call(step, made) for step in present], calls)
    except torch.OutOfMemoryError as error:
        return GemmFacts(gemm_id=WHOLE + name, status="oom", message=str(error))


def whole_visit(device: Device, calls: Sequence[Callable[[], object]], times: int) -> ComponentVisit:
    """All calls of a layer one after another, ``times`` over; on a GPU as one captured graph where that is possible."""

    def run() -> None:
        for _ in range(times):
            for call in calls:
                call()

    run()
    device.synchronize()
    on_cpu = device.torch_device.type == "cpu"
    graph = None if on_cpu else capture(run)
    flush = Flush(device)
    return ComponentVisit(
        device,
        calls=times,
        lead_calls=0,
        launch="cpu" if on_cpu else "queued" if graph is None else "graph",
        lead=lambda: None,
        timed=run if graph is None else graph.replay,
        before=flush if graph is None and not on_cpu else lambda: None,
    )


def _call(component: Component, made: Ready) -> Callable[[], object]:
    """A call on the next window, whose output is let go at once."""
    gemm, windows = component.gemm, made.windows
    if gemm is not None:
        return lambda: bmm.call(gemm, windows.take(gemm))
    call = made.calls[component.key]
    return lambda: call(windows.tensors(component))
