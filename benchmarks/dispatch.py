"""The driver behind a real Ray whose workers answer at once: its time for each Family, and its memory.

The loop, the queue, the engine, the store and its fsyncs are the product's. The worker is the product's too, with a
made-up device that hands out the samples of 25 Gemms instead of measuring them. It builds and encodes a Shard of each
Family (``--answers=built``), which takes longer than the driver takes; or it hands out the first one's file again
(``--answers=kept``), so that nothing but the driver and Ray is left to wait for.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from orchestrator import cluster
from orchestrator.actor import Actor
from orchestrator.engine import Result
from orchestrator.progress import Board, LogView
from orchestrator.queue import Assignment
from orchestrator.schema import Cluster, Config, Run, Space
from orchestrator.worker import Worker, WorkerSpec
from tasks.care import Care
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm
from tasks.records import DeviceInfo, GemmFacts, Measurement, Progress, Sample, Telemetry
from tasks.settings import Timing

if TYPE_CHECKING:
    from orchestrator.store import RunStore

HERE = "benchmarks.dispatch"
GEMMS = 25
ROUNDS = 12
MARKS = (0.1, 0.5, 1.0)
"""At which parts of the sweep the driver's memory is read."""
WAITING = "waiting for a report"
WARM = 100
"""Families that end before the clock starts: Ray starts its workers, and modules are loaded."""


def open_device(kind: str) -> SimpleNamespace:
    """Open a made-up H200, told from others by the GPU that Ray gave to this process."""
    info = DeviceInfo(
        kind=kind,
        gpu="NVIDIA H200",
        uuid=f"GPU-made-up-{os.environ['CUDA_VISIBLE_DEVICES']}",
        host="made-up",
        sm_count=132,
        l2_bytes=50 << 20,
        memory_bytes=141 * 10**9,
        torch="0",
    )
    return SimpleNamespace(info=info, answered_at=time.perf_counter())


def answer(
    device: SimpleNamespace,
    bundle: Bundle,
    timing: Timing,
    on_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
    care: Care,
) -> Measurement:
    """Return a Measurement at once; its ``soak_s`` is how long the device has waited since the last one."""
    waited_s = time.perf_counter() - device.answered_at
    ids = [gemm.gemm_id for gemm in bundle.gemms]
    for state in ("prepare", "measure"):
        on_progress(Progress(bundle_id=bundle.bundle_id, state=state, gemms=len(ids)))
    samples = tuple(
        Sample(gemm_id=gemm_id, round=turn, position=place, calls=4, lead_calls=1, seconds=1e-4 + 1e-9 * (turn + place))
        for turn in range(ROUNDS)
        for place, gemm_id in enumerate(ids)
    )
    device.answered_at = time.perf_counter()
    return Measurement(
        bundle_id=bundle.bundle_id,
        samples=samples,
        facts=tuple(GemmFacts(gemm_id=gemm_id, launch="graph", energy_j=0.5) for gemm_id in ids),
        device=device.info,
        telemetry=Telemetry(sm_clock_mean_mhz=1650.0, power_mean_w=690.0, reasons=("sw_power_cap",)),
        started_utc="2026-01-01T00:00:00+00:00",
        prepare_s=0.15,
        soak_s=waited_s,
        measuring_s=0.5,
        rounds=ROUNDS,
        resolved=True,
        stop_reason="resolved",
    )


class KeptWorker(Worker):
    """Hands out the file of its first Family for all others."""

    def __init__(self, spec: WorkerSpec) -> None:
        super().__init__(spec)
        self._first: Measurement | None = None
        self._kept: Result | None = None

    def _measure(self, assignment: Assignment, on_progress: Callable[[Progress], None]) -> Measurement:
        on_progress(Progress(bundle_id=assignment.bundle_id, state="measure"))
        self._first = self._first or super()._measure(assignment, on_progress)
        return self._first

    def _result(self, assignment: Assignment, measurement: Measurement) -> Result:
        self._kept = self._kept or super()._result(assignment, measurement)
        return self._kept


class KeptActor(Actor):
    """Ray's side of a KeptWorker."""

    worker = KeptWorker


ANSWERS = {"built": Actor, "kept": KeptActor}


def work(count: int) -> list[Bundle]:
    """Bundles of one Family of GEMMS Candidates each."""
    return [_bundle(8 * number) for number in range(1, count + 1)]


def _bundle(h: int) -> Bundle:
    candidates = tuple(
        Candidate(
            value=d_ff,
            parts=(Part(name="up", gemm=Gemm(kind="mm", b=1, m=8192, n=d_ff, k=h, dtype="bf16", layout="nt")),),
            params=2 * h * d_ff,
            local_dim=d_ff,
        )
        for d_ff in range(10240, 10240 + 64 * GEMMS, 64)
    )
    return Bundle(families=(Family(role="mlp_up", h=h, tp=1, batch=4, seq=2048, dtype="bf16", candidates=candidates),))


@dataclass(frozen=True, kw_only=True, slots=True)
class Mark:
    """The driver after some Families.

    waited_s: how long its loop has waited for reports; loop_s: the CPU time of the loop's thread; cpu_s: of all its
    threads, Ray's among them; rss_mib: without memory that it shares with Ray.
    """

    families: int
    wall_s: float
    waited_s: float
    loop_s: float
    cpu_s: float
    rss_mib: float

    @classmethod
    def now(cls, families: int, waited_s: float) -> "Mark":
        """Read the clocks and the memory of this process, in the loop's thread."""
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        kib = int(status["RssAnon"].split()[0]) + int(status["RssFile"].split()[0])
        return cls(
            families=families,
            wall_s=time.perf_counter(),
            waited_s=waited_s,
            loop_s=time.thread_time(),
            cpu_s=time.process_time(),
            rss_mib=kib / 1024,
        )


class Marks(LogView):
    """Shows what a log would, and takes a Mark after each of ``at`` Families."""

    def __init__(self, at: list[int], spent: "Spent") -> None:
        super().__init__()
        self.taken: list[Mark] = []
        self._at = list(at)
        self._spent = spent

    def update(self, board: Board) -> None:
        """Take a Mark where it is time; what was spent before the first one does not count."""
        super().update(board)
        while self._at and board.families_done >= self._at[0]:
            if not self.taken:
                self._spent.clear()
            self.taken.append(Mark.now(self._at.pop(0), self._spent.seconds[WAITING][0]))


class Spent:
    """Seconds of the calls of some functions, by what they do: wall, and of these the calling thread's CPU."""

    def __init__(self) -> None:
        self.seconds: dict[str, tuple[float, float]] = {}

    def clear(self) -> None:
        """Begin anew."""
        self.seconds = dict.fromkeys(self.seconds, (0.0, 0.0))

    @contextmanager
    def on(self, what: str, owner: object, name: str) -> Iterator[None]:
        """Time every call of ``owner.name`` while this is open."""
        call: Callable[..., Any] = getattr(owner, name)
        self.seconds[what] = 0.0, 0.0

        @wraps(call)
        def timed(*args: object, **options: object) -> object:
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **options)
            finally:
                before = self.seconds[what]
                self.seconds[what] = before[0] + time.perf_counter() - wall, before[1] + time.thread_time() - cpu

        with patch.object(owner, name, timed):
            yield


def run(families: int, workers: int, actor: type[Actor], store: "RunStore", spent: Spent) -> list[Mark]:
    """Sweep ``families`` by ``workers`` on a Ray that is up; return the Marks after WARM Families and at MARKS."""
    import ray

    from orchestrator import driver
    from orchestrator.ledger import Ledger
    from orchestrator.store import RunStore

    parts = (
        (WAITING, ray, "wait"),
        ("reading reports", ray, "get"),
        ("handing out the next Bundle", driver.RayEngine, "submit"),
        ("handing a Shard to its writer", Ledger, "measured"),
        ("showing progress", Board, "tick"),
        ("beside the loop: writing Shards", RunStore, "write_shard_file"),
        ("of that, fsync", os, "fsync"),
    )
    bundles = work(WARM + families)
    view = Marks([WARM, *(WARM + round(share * families) for share in MARKS)], spent)
    space = Space(roles=["mlp_up"], h=1, tp=1, batch=4, seq=2048, dtype=["bf16"], d_ff=[64])
    config = Config(space=space, timing=Timing(), cluster=Cluster(gpu="any", max_gpus=workers), run=Run())
    with ExitStack() as stack:
        stack.enter_context(patch.object(driver, "Actor", actor))
        for what, owner, name in parts:
            stack.enter_context(spent.on(what, owner, name))
        result = driver.sweep(
            config,
            bundles,
            store,
            progress=Board(bundles, view),
            code_version="benchmark",
            plan_hash="benchmark",
            open_device=f"{HERE}:open_device",
            measure=f"{HERE}:answer",
            own_ray=True,
        )
    if result.exit_code:
        raise SystemExit(result.problem or f"exit code {result.exit_code}")
    return view.taken


def _table(title: str, rows: Sequence[tuple[str, ...]]) -> None:
    print(f"\n| {title} |\n|---|{'---:|' * title.count('|')}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def _show(marks: list[Mark], spent: Spent) -> None:
    first = marks[0]
    rows = []
    for mark in marks[1:]:
        done = mark.families - first.families
        wall_s, waited_s = mark.wall_s - first.wall_s, mark.waited_s - first.waited_s
        spans = wall_s, wall_s - waited_s, mark.loop_s - first.loop_s, mark.cpu_s - first.cpu_s
        rows.append((f"{done:,}", *(f"{span / done * 1e3:.2f}" for span in spans), f"{mark.rss_mib:.0f}"))
    title = "Families | wall ms a Family | without waiting for workers | CPU of the loop | CPU of the driver"
    _table(f"{title} | driver's MiB", rows)
    count = marks[-1].families - first.families
    parts = [
        (what, f"{wall / count * 1e3:.3f}", f"{cpu / count * 1e3:.3f}") for what, (wall, cpu) in spent.seconds.items()
    ]
    _table("of the loop | ms a Family | CPU", parts)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--families", type=int, default=2_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", choices=ANSWERS, default="kept")
    options = parser.parse_args()
    # Ray counts no GPUs here; this is how a local one is told what it has.
    os.environ["RAY_OVERRIDE_RESOURCES"] = f'{{"GPU": {options.workers}}}'
    spent = Spent()
    with cluster.connect(Cluster()), tempfile.TemporaryDirectory() as scratch:
        from orchestrator.store import RunStore

        store = RunStore.create(scratch, "run", {})
        marks = run(options.families, options.workers, ANSWERS[options.answers], store, spent)
        shards = len(store.shard_paths())
        built = options.answers == "built"
        waited = store.reader().facts(["bundle_id", "soak_s"]).table["soak_s"].to_pylist() if built else []
    print(f"{options.workers} workers, {GEMMS} Gemms and {ROUNDS} rounds a Family; {shards} Shards on disk")
    _show(marks, spent)
    if built:
        print(f"\na device waited {median(waited) * 1e3:.1f} ms (median) between two Families")


if __name__ == "__main__":
    main()
