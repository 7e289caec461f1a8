"""The driver's loop with a whole fleet behind it, simulated in this process: are its promises kept, at what cost.

1,024 GPUs of 4 models pull 100,000 Families; 1% of the attempts kill their worker, 5 devices become slow. The engine is
simulated event by event on a clock of its own; the loop, the queues, the crew and the canaries are the product's.
"""

import argparse
import heapq
import itertools
import random
import resource
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from orchestrator.canaries import Canaries
from orchestrator.canary import canary_bundle
from orchestrator.dispatch import Dispatcher
from orchestrator.engine import Engine, Event, Failure, Placed, Report, Result
from orchestrator.lanes import Lanes
from orchestrator.progress import Board, LogView
from orchestrator.queue import Assignment
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, Progress

START_S = 5.0
GPUS_A_NODE = 8
SPREAD = 0.01
"""Standard deviation of devices of one model, as a share."""
NOISE = 0.003
"""Standard deviation of readings of one device."""
SLOW = 1.15


@dataclass(kw_only=True, slots=True)
class SimClock:
    """A clock that the engine sets."""

    now: float = 0.0

    def __call__(self) -> float:
        """Return the present, in seconds."""
        return self.now


@dataclass(kw_only=True, slots=True)
class Ends:
    """Counts what the driver records."""

    measured_by: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # (model, Bundle) -> devices
    lost: Counter[str] = field(default_factory=Counter)
    models: dict[str, str] = field(default_factory=dict)  # uuid -> model

    def measured(self, assignment: Assignment, device: DeviceInfo, result: Result) -> None:
        """Note a result."""
        if not assignment.is_canary:
            key = self.models[assignment.device], assignment.bundle_id
            self.measured_by.setdefault(key, []).append(assignment.device)

    def given_up(self, assignment: Assignment, device: DeviceInfo, failure: Failure) -> None:
        """Note a Bundle that was given up."""
        self.lost[f"{device.gpu} {assignment.bundle_id}"] += 1

    def storm(self) -> str:
        """Never."""
        return ""


class SimEngine(Engine):
    """Devices by node; every attempt takes about a second and is answered at its time."""

    def __init__(
        self, nodes: dict[str, list[DeviceInfo]], slow: dict[str, float], clock: SimClock, chance: random.Random
    ) -> None:
        self._free = {node: list(devices) for node, devices in nodes.items()}
        self._sizes = {node: len(devices) for node, devices in nodes.items()}
        self._speed = {d.uuid: chance.gauss(1.0, SPREAD) for devices in nodes.values() for d in devices}
        self._slow = slow
        self._clock = clock
        self._chance = chance
        self._names = (f"worker-{number}" for number in itertools.count())
        self._workers: dict[str, tuple[str, DeviceInfo]] = {}
        self._events: list[tuple[float, int, Event]] = []
        self._order = itertools.count()
        self.deaths = 0

    def places(self) -> dict[str, int]:
        """Return how many devices each node has."""
        return self._sizes

    def start(self, place: str) -> str:
        """Open a free device of the node."""
        name = next(self._names)
        device = self._free[place].pop()
        self._workers[name] = place, device
        self._later(START_S / 2, name, Placed())
        self._later(START_S, name, device)
        return name

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Answer in about a second: with a result, or in one of a hundred cases with the worker's death."""
        (assignment,) = assignments  # such Bundles are not short
        _, device = self._workers[assignment.worker]
        self._later(0.0, assignment.worker, Progress(bundle_id=assignment.bundle_id, state="prepare"))
        if self._chance.random() < 0.01:
            self.deaths += 1
            self._later(self._chance.random(), assignment.worker, Failure(status="worker_died", message="simulated"))
            return
        factor = SLOW if self._clock.now >= self._slow.get(device.uuid, float("inf")) else 1.0
        seconds = factor * self._speed[device.uuid] * self._chance.gauss(1.0, NOISE)
        reading = seconds if assignment.is_canary else None
        self._later(seconds, assignment.worker, Result(shard=b"", failed=(), canary_s=reading))

    def interrupt(self, worker: str) -> None:
        """Never called here."""

    def stop(self, worker: str) -> None:
        """Free the device."""
        place, device = self._workers.pop(worker)
        self._free[place].append(device)

    def wait(self, timeout: float) -> list[Event]:
        """Move the clock to what happens next, or by ``timeout``."""
        end = self._clock.now + timeout
        if not self._events or self._events[0][0] > end:
            self._clock.now = end
            return []
        self._clock.now = self._events[0][0]
        found = []
        while self._events and self._events[0][0] <= self._clock.now + 0.005:
            found.append(heapq.heappop(self._events)[2])
        return [event for event in found if event.worker in self._workers]

    def _later(self, seconds: float, worker: str, report: Report) -> None:
        event = Event(worker=worker, report=report)
        heapq.heappush(self._events, (self._clock.now + seconds, next(self._order), event))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a simulated sweep. again: (model, Bundle) pairs that were measured more than once."""

    problem: str
    ends: Ends
    slow: frozenset[str]
    flagged: frozenset[str]
    deaths: int
    families: int
    simulated_s: float
    driver_s: float


def work(count: int) -> list[Bundle]:
    """Bundles of one Family of two Candidates each."""
    return [_bundle(h) for h in range(1, count + 1)]


def _bundle(h: int) -> Bundle:
    candidates = tuple(
        Candidate(value=d_ff, parts=(Part(name="up", gemm=Gemm(kind="mm", b=1, m=32, n=d_ff, k=h, dtype="fp16")),))
        for d_ff in (64, 128)
    )
    return Bundle(families=(Family(role="mlp_up", h=h, tp=1, batch=1, seq=32, dtype="fp16", candidates=candidates),))


def fleet(models: Iterable[str], gpus: int) -> dict[str, list[DeviceInfo]]:
    """Nodes of eight devices of one model, ``gpus`` devices of each model."""
    nodes: dict[str, list[DeviceInfo]] = {}
    for model in models:
        for index in range(gpus):
            node = f"{model} node {index // GPUS_A_NODE}"
            nodes.setdefault(node, []).append(_device(model, index, node))
    return nodes


def _device(model: str, index: int, node: str) -> DeviceInfo:
    return DeviceInfo(
        kind="cuda",
        gpu=model,
        uuid=f"GPU-{model}-{index}",
        host=node,
        sm_count=132,
        l2_bytes=50 << 20,
        memory_bytes=141 * 10**9,
        torch="0",
    )


def simulate(models: int = 4, gpus: int = 256, families: int = 25_000, slow: int = 5, seed: int = 0) -> Outcome:
    """Sweep ``families`` on each of ``models``, each with ``gpus`` devices, ``slow`` of which become slow."""
    chance = random.Random(seed)
    nodes = fleet((f"model{index}" for index in range(models)), gpus)
    devices = [device for group in nodes.values() for device in group]
    horizon = families / gpus
    bad = {device.uuid: chance.uniform(0, horizon / 2) for device in chance.sample(devices, slow)}
    bundles, clock = work(families), SimClock()
    ends = Ends(models={device.uuid: device.gpu for device in devices})
    engine = SimEngine(nodes, bad, clock, chance)
    board = Board(bundles, LogView(clock), clock)
    canaries = Canaries(lambda: canary_bundle("fp16"))
    dispatcher = Dispatcher(
        engine=engine,
        lanes=Lanes(bundles, on_open=board.expect),
        recorder=ends,
        board=board,
        canaries=canaries,
        accepts=lambda device: True,
        every_device=True,
        deadline_s=lambda bundle, device: 60.0,
        clock=clock,
    )
    began = time.perf_counter()
    problem = dispatcher.run()
    driver_s = time.perf_counter() - began
    return Outcome(
        problem=problem,
        ends=ends,
        slow=frozenset(bad),
        flagged=frozenset(device.uuid for device in devices if canaries.reason(device)),
        deaths=engine.deaths,
        families=models * families,
        simulated_s=clock.now,
        driver_s=driver_s,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--families", type=int, default=25_000)
    options = parser.parse_args()
    outcome = simulate(options.models, options.gpus, options.families)
    again = sum(len(devices) > 1 for devices in outcome.ends.measured_by.values())
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print("| GPUs | families | measured | given up | again, elsewhere | deaths | slow found | others named |", end="")
    print(" driver us a family | driver MiB |")
    print("|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    print(
        f"| {options.models * options.gpus} | {outcome.families} | {len(outcome.ends.measured_by)} "
        f"| {sum(outcome.ends.lost.values())} | {again} | {outcome.deaths} "
        f"| {len(outcome.flagged & outcome.slow)} of {len(outcome.slow)} | {len(outcome.flagged - outcome.slow)} "
        f"| {outcome.driver_s / outcome.families * 1e6:.0f} | {mib:.0f} |"
    )
    if outcome.problem:
        print(outcome.problem)


if __name__ == "__main__":
    main()
