"""A sweep on Ray. The only module that submits work to it: one actor per GPU, or one with all cores of this node."""

import io
import itertools
import logging
import pickle
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator import cluster
from orchestrator.actor import Actor
from orchestrator.canaries import Canaries
from orchestrator.canary import canary_bundle
from orchestrator.deadline import deadline_s
from orchestrator.dispatch import Dispatcher
from orchestrator.engine import Event, Failure, Report, Result, Returned, Spent
from orchestrator.errors import ClusterError, EngineLostError, ResumeError
from orchestrator.interrupts import Interrupts, interruptible
from orchestrator.lanes import Lanes
from orchestrator.ledger import GemmFailure, Ledger
from orchestrator.parcel import packed
from orchestrator.progress import Board
from orchestrator.queue import Assignment
from orchestrator.resume import ANYWAY, ENVIRONMENT, Former
from orchestrator.rota import Rota
from orchestrator.schema import Config
from orchestrator.store import RunStore
from orchestrator.worker import WorkerSpec, plain
from tasks.family import Bundle
from tasks.records import DeviceInfo
from tasks.settings import BASELINES

log = logging.getLogger(__name__)

IDLE_S = 0.1
REST_S = 10.0
WITH_KERNELS = "tasks.kernels:measure_bundle"
"""Measures as without ``run.kernels``, and names the kernels afterwards."""
ACTOR_OPTIONS: dict[str, Any] = {
    "max_restarts": 0,
    "max_task_retries": 0,
    "enable_task_events": False,
    "max_concurrency": 2,  # one call measures, one interrupts it
}

LAST = (DeviceInfo, Failure, Returned)
"""What a call to a worker ends with, unless it is the last of its Results."""

RUNTIME_ENVIRONMENT: dict[str, Any] = {"runtime_env": {"env_vars": cluster.WORKER_ENVIRONMENT}}


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepResult:
    """How a sweep ended. bundles: those that ended; unfinished: those that did not; problem: why not, or "".

    ready_at: when its first device was open, by time.monotonic; None for never. spent: by the device that worked
    longest. left: devices of workers that live on.
    """

    bundles: int
    unfinished: int
    failures: tuple[GemmFailure, ...]
    skipped: tuple[GemmFailure, ...]
    devices: tuple[DeviceInfo, ...]
    interrupted: bool
    problem: str = ""
    ready_at: float | None = None
    spent: Spent = field(default_factory=Spent)
    left: tuple[DeviceInfo, ...] = ()

    @property
    def exit_code(self) -> int:
        """130 if interrupted, 1 if anything failed or is unfinished, else 0."""
        return 130 if self.interrupted else int(bool(self.failures or self.unfinished))


def sweep(
    config: Config,
    bundles: Sequence[Bundle],
    store: RunStore,
    *,
    progress: Board,
    code_version: str,
    plan_hash: str,
    open_device: str | None = None,
    measure: str | None = None,
    own_ray: bool = False,
    former: Former | None = None,
    interrupts: Interrupts | None = None,
    kept: bool = False,
) -> SweepResult:
    """Measure every Bundle once, and write each Shard when it arrives. Call it inside ``cluster.connect``.

    own_ray: what ``cluster.connect`` yielded.
    open_device, measure: ``module:name`` of replacements for the device functions (see WorkerSpec).
    former: what earlier drivers of the run have measured; its devices must be like those of now.
    interrupts: those of a caller that handles signals already; else they are handled here.
    kept: the Ray is a kept one: its workers are taken, and left behind where ``cluster.keep_s`` says so.

    Raises:
        ClusterError: no device could be used at all.
        StoreError: a Shard could not be written.
    """
    if measure is None and config.run.kernels:
        measure = WITH_KERNELS
    spec = _spec(config, code_version, plan_hash, open_device=open_device, measure=measure)
    engine = RayEngine(spec, _places(config.cluster.gpu), own_ray=own_ray, rota=Rota(spec) if kept else None)
    with Ledger(store, spec, config.run.max_failure_share) as ledger:
        dispatcher = _dispatcher(config, bundles, engine, ledger, progress, former or Former(), kept=kept)
        problem, interrupted = _run(dispatcher, interrupts)
    if engine.lost and not ledger.bundles:
        raise ClusterError(problem)
    if problem and not ledger.bundles and not interrupted:
        raise ClusterError(cluster.complaint(problem, config.cluster.gpu, cluster.nodes()))
    return SweepResult(
        bundles=ledger.bundles,
        unfinished=dispatcher.lanes.unfinished,
        failures=tuple(ledger.failures),
        skipped=tuple(ledger.skipped),
        devices=tuple(dispatcher.devices.values()),
        interrupted=interrupted,
        problem=problem,
        ready_at=dispatcher.ready_at,
        spent=ledger.spent,
        left=tuple(dispatcher.left),
    )


def _dispatcher(
    config: Config,
    bundles: Sequence[Bundle],
    engine: "RayEngine",
    ledger: Ledger,
    progress: Board,
    former: Former,
    *,
    kept: bool,
) -> Dispatcher:
    chosen, timing = config.cluster, config.timing
    return Dispatcher(
        engine=engine,
        lanes=Lanes(bundles, chosen.placement, former.earlier, progress.expect),
        recorder=ledger,
        board=progress,
        canaries=_canaries(config, bundles, former),
        accepts=Accepts(chosen.gpu, progress, former),
        max_workers=chosen.max_gpus,
        every_device=chosen.gpu == "all" or chosen.placement == "replicate",
        start_timeout_s=chosen.start_timeout_s,
        leave=engine.leave if kept and chosen.keep_s else None,
        deadline_s=lambda bundle, device: deadline_s(bundle, device, timing, config.run.least_deadline_s),
    )


class Accepts:
    """Accepts the devices that were asked for; unless all models are, only of the model that reports first.

    A sweep that names no model ranks one: its Families are each measured once, so a second model would get an arbitrary
    part of them. In a run that is resumed, a device must be like those that measured before.
    """

    def __init__(self, gpu: str, board: Board, former: Former) -> None:
        self._gpu = gpu
        self._board = board
        self._former = former
        self._model = next(iter(former.environments), None)
        self._told: set[str] = set()
        self._first: dict[str, DeviceInfo] = {}  # by model

    def __call__(self, device: DeviceInfo) -> bool:
        """Return whether to measure on ``device``; say once a model which one is left out.

        Raises:
            ResumeError: it differs from the devices of its model in the run.
        """
        if not cluster.accepts(self._gpu, device):
            return False
        if self._gpu != "all":
            self._model = self._model or device.gpu
            if device.gpu != self._model:
                self._note(
                    f"this sweep measures {self._model}; {device.gpu} is left out: cluster.gpu=all measures every model"
                )
                return False
        if difference := self._former.difference(device):
            raise ResumeError(f"the run was measured with other versions\n  {difference}\n{ANYWAY}")
        self._compare(device)
        return True

    def _compare(self, device: DeviceInfo) -> None:
        """Say once a host if it has other versions than the first one of the model.

        The sweep goes on: a Family's Candidates are all measured by one device, so with one version.
        """
        first = self._first.setdefault(device.gpu, device)
        known = ((name, getattr(device, name), getattr(first, name)) for name in ENVIRONMENT)
        if unlike := ", ".join(f"{name} {here} and {there}" for name, here, there in known if here != there):
            self._note(f"versions differ between {device.host} and {first.host} ({device.gpu}): {unlike}")

    def _note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._board.note(text)


@dataclass(slots=True)
class _Call:
    """One call to a worker, and how many Results it still owes."""

    worker: str
    results: int = 1


class RayEngine:
    """The Engine on Ray: one actor per worker, pinned to its node; every report comes by a streaming generator."""

    def __init__(
        self, spec: WorkerSpec, places: Callable[[], Mapping[str, int]], *, own_ray: bool, rota: Rota | None = None
    ) -> None:
        self._rota = rota
        self._places = places
        self._known: Mapping[str, int] = {}
        self._lifeline = cluster.lifeline()
        self.lost = False
        decorate: Any = ray.remote(**_resources(spec.kind), **ACTOR_OPTIONS, **({} if own_ray else RUNTIME_ENVIRONMENT))
        self._actor = decorate(Actor)
        # Not ray.put: when the raylet ends, Ray tells its object store that the object is lost; that store is gone as
        # well, and Ray ends this process without a word.
        self._spec = spec
        self._names = itertools.count()
        self._actors: dict[str, Any] = {}
        self._measures: dict[str, Any] = {}  # their methods, made once: that takes longer than a call
        self._streams: dict[ray.ObjectRefGenerator, _Call] = {}

    def places(self) -> Mapping[str, int]:
        """Return how many workers each node can hold; what was known last while the cluster's head is silent.

        Raises:
            EngineLostError: Ray has ended.
        """
        if self._alive():
            self._known = self._places()
        return self._known

    def start(self, place: str) -> str:
        """Take over a worker that was left on the node ``place``, or create one there.

        Ray keeps the request for a new one until a GPU is free.
        """
        name = f"worker-{next(self._names)}"
        actor = self._rota.take(place) if self._rota else None
        if actor is None:
            stream = self._created(name, place).open.options(num_returns="streaming").remote()
        else:
            self._actors[name] = actor
            stream = actor.adopt.options(num_returns="streaming").remote(self._spec)
        self._measures[name] = self._actors[name].measure.options(num_returns="streaming")
        self._streams[stream] = _Call(name)
        return name

    def _created(self, name: str, place: str) -> Any:
        here = NodeAffinitySchedulingStrategy(node_id=place, soft=False)
        lasting = self._rota.lasting(place) if self._rota else {}
        self._actors[name] = self._actor.options(scheduling_strategy=here, **lasting).remote(self._spec)
        return self._actors[name]

    def submit(self, assignments: Sequence[Assignment]) -> None:
        """Queue one call on their actor."""
        worker = assignments[0].worker
        self._streams[self._measures[worker].remote(packed(assignments))] = _Call(worker, len(assignments))

    def interrupt(self, worker: str) -> None:
        """Call the actor's method that runs beside the one that measures."""
        self._actors[worker].interrupt.remote()

    def stop(self, worker: str) -> None:
        """Kill the actor's process."""
        actor, _ = self._actors.pop(worker, None), self._measures.pop(worker, None)
        self._streams = {stream: call for stream, call in self._streams.items() if call.worker != worker}
        if actor is not None and not self.lost:
            ray.kill(actor)

    def leave(self, worker: str) -> bool:
        """Have an idle worker give its device's memory back and live on; False where it cannot."""
        try:
            ray.get(self._actors[worker].rest.remote(), timeout=REST_S)
        except ray.exceptions.RayError as error:
            log.info("a worker does not live on: %s", error)
            return False
        del self._actors[worker], self._measures[worker]
        return True

    def wait(self, timeout: float) -> list[Event]:
        """Return the reports that are there; wait for one where there is none."""
        streams = list(self._streams)
        if not streams:
            time.sleep(min(timeout, IDLE_S))  # nobody can report: a start is about to be tried again
            return []
        ready, _ = ray.wait(streams, num_returns=len(streams), timeout=0)
        if not ready:
            ready, _ = ray.wait(streams, num_returns=1, timeout=timeout)
        return [event for stream in ready for event in self._read(stream)]

    def _read(self, stream: ray.ObjectRefGenerator) -> Iterator[Event]:
        call, ready = self._streams[stream], True
        while ready:
            try:
                reports: list[Report] = pickle.loads(ray.get(next(stream)))
            except StopIteration:
                del self._streams[stream]
                return
            except ray.exceptions.RayError as error:
                # Not only RayActorError: a worker killed for memory is an OutOfMemoryError.
                self._alive()  # the first notice of a raylet's end is that its workers have died
                reports = [Failure(status="worker_died", message=_cause(error), detail=str(error))]
            call.results -= sum(isinstance(report, Result) for report in reports)
            if call.results < 1 or isinstance(reports[-1], LAST):
                del self._streams[stream]
            yield from (Event(worker=call.worker, report=report) for report in reports)
            ready = stream in self._streams and stream.next_ready()

    def _alive(self) -> bool:
        try:
            return self._lifeline.holds()
        except EngineLostError:
            self.lost = True  # its workers end by themselves
            raise


class LogStream(io.TextIOBase):
    """Takes what is printed and logs it: Ray prints notices of deaths to standard output, which is the user's."""

    def write(self, text: str) -> int:
        """Log a text that is not blank."""
        if text.strip():
            log.debug("%s", text.strip())
        return len(text)


def _run(dispatcher: Dispatcher, outside: Interrupts | None) -> tuple[str, bool]:
    """Run under signal handlers; return the problem and whether the user interrupted."""
    with interruptible() if outside is None else nullcontext(outside) as interrupts, redirect_stdout(LogStream()):
        dispatcher.stop = interrupts.requested
        try:
            problem = dispatcher.run()
        except EngineLostError as error:
            problem = str(error)
        except KeyboardInterrupt:
            problem = ""
        return problem, interrupts.requested()


def _spec(config: Config, code_version: str, plan_hash: str, **replacements: str | None) -> WorkerSpec:
    return WorkerSpec(
        kind="cpu" if config.cluster.gpu == "cpu" else "cuda",
        timing=config.timing,
        code_version=code_version,
        plan_hash=plan_hash,
        **{name: reference for name, reference in replacements.items() if reference is not None},
    )


def _places(gpu: str) -> Callable[[], Mapping[str, int]]:
    """Return what lists the nodes to use; raise ClusterError at once where there is none."""
    if gpu == "cpu":
        here = cluster.local_node().node_id
        return lambda: {here: 1}
    cluster.require(gpu, cluster.nodes())
    return lambda: {node.node_id: node.gpus for node in cluster.usable(gpu, cluster.nodes())}


def _canaries(config: Config, bundles: Sequence[Bundle], former: Former) -> Canaries:
    dtype = bundles[0].gemms[0].dtype if bundles else config.space.dtype[0]
    every = 0 if config.cluster.gpu == "cpu" or config.timing.protocol in BASELINES else config.cluster.canary_every
    return Canaries(lambda: canary_bundle(dtype), every, former.readings, former.canaries)


def _resources(kind: str) -> dict[str, Any]:
    if kind == "cpu":
        return {"num_cpus": cluster.local_node().cpus, "num_gpus": 0}
    return {"num_cpus": 0, "num_gpus": 1}


def _cause(error: ray.exceptions.RayError) -> str:
    """Return what Ray knows of a death in one line, without its colours and general advice."""
    text = " ".join(re.sub(r"\x1b\[\d+m", "", str(error)).split())
    detail = text.rpartition("Worker exit detail: ")[2].partition(" Some common causes")[0]
    return plain(f"{type(error).__name__}: {detail}")
