"""Measure a Bundle on a device: prepare, soak, rounds; the protocol ``interleaved`` and the way to the others."""

import time
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime

from tasks import seed_protocol, sequential
from tasks.care import Care
from tasks.device import NO_CARE, Device, Pending, Visit
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.levels import Levels
from tasks.readiness import Readiness
from tasks.records import GemmFacts, Measurement, Progress, Sample, Telemetry
from tasks.sampling import Sampler
from tasks.settings import COOL_S, Timing
from tasks.telemetry import together

PROGRESS_S = 0.5
AHEAD_S, MOST_AHEAD = 3e-3, 8
"""How long a device has work while the host looks at the order, in at most so many rounds."""
REST_STEP_S = 0.1

OnProgress = Callable[[Progress], None]
Stop = Callable[[], bool]


def measure_bundle(
    device: Device,
    bundle: Bundle,
    timing: Timing,
    on_progress: OnProgress | None = None,
    stop: Stop = lambda: False,
    care: Care = NO_CARE,
) -> Measurement:
    """Measure every Gemm of ``bundle`` by ``timing.protocol``; once ``stop`` is true, end after the rounds in flight.

    A Gemm that cannot be measured is in the facts with its status; the others are measured all the same. Raises what
    torch raises when the device itself is lost, or where ``care`` says that memory is to be tried again.
    """
    report = on_progress or (lambda progress: None)
    with device.session():
        if timing.protocol == "seed":
            return seed_protocol.measure(device, bundle, report, stop, care)
        if timing.protocol == "sequential":
            return sequential.measure(device, bundle, timing, report, stop, care)
        return _interleaved(device, bundle, timing, report, stop, care)


def _interleaved(
    device: Device, bundle: Bundle, timing: Timing, report: OnProgress, stop: Stop, care: Care
) -> Measurement:
    started = datetime.now(UTC).isoformat()
    ready = Readiness(device, bundle, timing, report, care)
    levels, sampler = Levels(bundle, timing), Sampler(bundle, timing, ())
    measuring = 0.0
    taken: list[Telemetry] = []
    throttled: list[Sample] = []
    first_round = redone = 0
    while True:
        ready.make(levels.gemms)
        sampler.join(ready.live(levels.gemms), levels.rounds, searched=levels.wide)
        telemetry, seconds, reason = rounds_of(device, bundle, sampler, ready.visits, report, stop)
        measuring += seconds
        taken.append(telemetry)
        if reason == "level":
            levels.following([sampler.comparison(family) for family in bundle.families])
            continue
        if not together(taken).throttled or redone == timing.redo_throttled:
            break
        report(Progress(bundle_id=bundle.bundle_id, state="cool"))
        if not _rested(stop):
            break
        throttled.extend(sampler.samples)
        redone, first_round, measuring, taken = redone + 1, first_round + sampler.rounds, 0.0, []
        levels, sampler = Levels(bundle, timing), Sampler(bundle, timing, (), first_round)
    telemetry = together(taken)
    samples = sampler.samples
    facts = _facts(ready.visits, ready.failures, levels.left_out(), samples, telemetry)
    return Measurement(
        bundle_id=bundle.bundle_id,
        samples=(*throttled, *samples),
        facts=tuple(facts),
        first_round=first_round,
        device=device.info,
        telemetry=telemetry,
        started_utc=started,
        prepare_s=ready.prepare_s,
        soak_s=ready.soak_s,
        measuring_s=measuring,
        rounds=sampler.together if levels.rounds is None else 0,  # a level alone has nothing to say
        resolved=sampler.resolved,
        stop_reason=reason,
        redone=redone,
    )


def _rested(stop: Stop) -> bool:
    """Let the device rest for COOL_S; False where ``stop`` came first: what there is, is what is kept."""
    for _ in range(round(COOL_S / REST_STEP_S)):
        if stop():
            return False
        time.sleep(REST_STEP_S)
    return True


def run_rounds(
    device: Device, bundle: Bundle, timing: Timing, visits: dict[Gemm, Visit], report: OnProgress
) -> tuple[Sampler, Telemetry, float, str]:
    """Rounds over all of ``visits`` until the sampler says stop: the sampler, and what ``rounds_of`` returns."""
    sampler = Sampler(bundle, timing, [i for i, gemm in enumerate(bundle.gemms) if gemm in visits])
    return sampler, *rounds_of(device, bundle, sampler, visits, report)


def rounds_of(
    device: Device,
    bundle: Bundle,
    sampler: Sampler,
    visits: dict[Gemm, Visit],
    report: OnProgress,
    stop: Stop = lambda: False,
) -> tuple[Telemetry, float, str]:
    """Round after round until ``sampler`` says stop; further ones are enqueued before one is read.

    Returns the telemetry, the seconds that it took and why it stopped.
    """
    gemms = bundle.gemms
    reason = sampler.stop_reason(0.0, 0.0)
    in_flight: deque[list[tuple[Callable[[Pending], Sample], Pending]]] = deque()
    round_s = AHEAD_S
    with device.measuring() as window:
        start = told = device.clock()
        while True:
            while reason is None and sampler.may_plan and _more(len(in_flight), round_s):
                in_flight.append(_enqueue(sampler, gemms, visits))
            if not in_flight:
                break
            samples = [sample(pending) for sample, pending in in_flight.popleft()]
            sampler.record(samples)
            now = device.clock()
            if reason is None:
                round_s = sum(s.seconds * (s.calls + s.lead_calls) for s in samples)
                reason = sampler.stop_reason(now - start, (1 + len(in_flight)) * round_s)
                reason = "interrupted" if reason in (None, "level") and stop() else reason
            if now - told >= PROGRESS_S:
                told = now
                report(Progress(bundle_id=bundle.bundle_id, state="measure", rounds=sampler.rounds, gemms=len(visits)))
        seconds = device.clock() - start
    return window.telemetry, seconds, reason or "nothing"


def _more(in_flight: int, round_s: float) -> bool:
    """Whether to enqueue another round: one beyond that which is read next, or as many as last for AHEAD_S."""
    return in_flight < 2 or (in_flight < MOST_AHEAD and (in_flight - 1) * round_s < AHEAD_S)


def _enqueue(
    sampler: Sampler, gemms: tuple[Gemm, ...], visits: dict[Gemm, Visit]
) -> list[tuple[Callable[[Pending], Sample], Pending]]:
    number, order = sampler.next_round()
    return [_visit(visits[gemms[i]], number, position) for position, i in enumerate(order)]


def _visit(visit: Visit, number: int, position: int) -> tuple[Callable[[Pending], Sample], Pending]:
    def sample(pending: Pending) -> Sample:
        return Sample(
            gemm_id=visit.gemm.gemm_id,
            round=number,
            position=position,
            calls=visit.calls,
            lead_calls=visit.lead_calls,
            seconds=pending.seconds(),
        )

    return sample, visit.enqueue()


def _facts(
    visits: dict[Gemm, Visit],
    failures: list[GemmFacts],
    left_out: list[GemmFacts],
    samples: list[Sample],
    telemetry: Telemetry,
) -> list[GemmFacts]:
    """Facts of every Gemm; the window's energy is shared out by the time that each Gemm's calls took.

    left_out: by the search, also where an earlier one, that was throttled, has measured it, or seen it fail.
    """
    busy: dict[str, float] = {}
    calls: dict[str, int] = {}
    for sample in samples:
        each = sample.calls + sample.lead_calls
        busy[sample.gemm_id] = busy.get(sample.gemm_id, 0.0) + each * sample.seconds
        calls[sample.gemm_id] = calls.get(sample.gemm_id, 0) + each
    total = sum(busy.values())
    facts = {each.gemm_id: each for each in (*left_out, *failures)}
    for gemm, visit in visits.items():
        if gemm.gemm_id in facts:
            continue
        energy = None
        if telemetry.energy_j is not None and gemm.gemm_id in busy:
            energy = telemetry.energy_j * busy[gemm.gemm_id] / total / calls[gemm.gemm_id]
        facts[gemm.gemm_id] = GemmFacts(gemm_id=gemm.gemm_id, launch=visit.launch, energy_j=energy)
    return list(facts.values())
