"""What the workers of a cluster's tests open and measure with: made-up devices whose faults a test's Plan says."""

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn

from orchestrator.canary import is_canary
from tasks.care import Care
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.records import GemmFacts, Measurement, Progress
from tasks.settings import Timing
from tests.fakes import device_info, measured

if TYPE_CHECKING:
    from tasks.pool import Operands

HERE = __name__
FOLDER = "FAULTS_FOLDER"
HOST = "FAULTS_HOST"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What goes wrong. By host: models, torch versions, UUIDs. By UUID: what fails. h of Bundles: as ``measure`` says.

    seconds: how long a Bundle takes. slow: UUID -> Bundles after which its canaries take 30% longer.
    """

    seconds: float = 0.1
    models: dict[str, str] = field(default_factory=dict)
    torch: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    start_fails_once: list[str] = field(default_factory=list)
    never_opens: list[str] = field(default_factory=list)
    slow: dict[str, int] = field(default_factory=dict)
    fails: list[int] = field(default_factory=list)  # h of Bundles whose first Gemm fails with wrong_result
    raises: dict[int, str] = field(default_factory=dict)  # h -> the name of one of ODD

    def write(self, folder: Path) -> None:
        """Hand the plan to all workers that start from now on."""
        (folder / "plan.json").write_text(json.dumps(asdict(self)))


def folder() -> Path:
    """Where the workers of this cluster find their plan and leave their marks."""
    return Path(os.environ[FOLDER])


def open_device(kind: str) -> SimpleNamespace:
    """Open a fake device, told from others by its host and by the GPU that Ray gave to this process."""
    plan, host = json.loads((folder() / "plan.json").read_text()), os.environ[HOST]
    (folder() / "pids" / str(os.getpid())).touch()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "none")
    uuid = plan["uuids"].get(host) or (visible if visible.startswith("MIG-") else f"GPU-{host}-{visible}")
    if uuid in plan["never_opens"]:
        time.sleep(600)
    if uuid in plan["start_fails_once"] and _first_time(f"start-{uuid}"):
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable")
    info = device_info(0, gpu=plan["models"].get(host, "NVIDIA H200"), kind=kind)
    info = replace(info, uuid=uuid, host=host, torch=plan["torch"].get(host, "2.11"))
    return SimpleNamespace(info=info, plan=plan, bundles=0)


def measure(
    device: SimpleNamespace,
    bundle: Bundle,
    timing: Timing,
    on_progress: Callable[[Progress], None],
    stop: Callable[[], bool],
    care: Care,
) -> Measurement:
    """Measure nothing, for as long as the plan says, leaving a mark with this process's id."""
    h, plan = bundle.families[0].h, device.plan
    if is_canary(bundle.bundle_id):
        return _canary(device, bundle)
    device.bundles += 1
    mark = folder() / "running" / f"{h}-{device.info.uuid}-{time.monotonic_ns()}"
    mark.with_suffix(".new").write_text(str(os.getpid()))
    mark.with_suffix(".new").rename(mark)
    if name := plan["raises"].get(str(h)):
        ODD[name]()
    if care.one_by_one:
        on_progress(Progress(bundle_id=bundle.bundle_id, state="try", trying=None))
    until = time.monotonic() + plan["seconds"]
    while time.monotonic() < until:
        time.sleep(0.01)
    mark.unlink()
    if h in plan["fails"]:
        facts = GemmFacts(gemm_id=bundle.gemms[0].gemm_id, status="wrong_result", message="off by one")
        return measured(device.info, bundle, (facts,))
    return measured(device.info, bundle)


def _canary(device: SimpleNamespace, bundle: Bundle) -> Measurement:
    found = measured(device.info, bundle)
    after = device.plan["slow"].get(device.info.uuid)
    factor = 1.3 if after is not None and device.bundles >= after else 1.0
    return replace(found, samples=tuple(replace(s, seconds=s.seconds * factor) for s in found.samples))


def _first_time(name: str) -> bool:
    try:
        (folder() / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class Unpicklable(Exception):
    """It cannot cross a process boundary."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("cannot pickle this")


class Mute(Exception):
    """It cannot be printed."""

    def __str__(self) -> NoReturn:
        raise ValueError("no words")

    __repr__ = __str__


class Foreign(BaseException):
    """It is no Exception."""


class Spiteful(Exception):
    """Its very description raises."""

    def __getattribute__(self, name: str) -> Any:
        """Give nothing away."""
        if name == "__notes__":
            raise RuntimeError("no notes")
        return super().__getattribute__(name)


def _raising(error: BaseException) -> Callable[[], None]:
    def odd() -> None:
        raise error

    return odd


ODD: dict[str, Callable[[], None]] = {
    "unpicklable": _raising(Unpicklable("lock")),
    "mute": _raising(Mute()),
    "long": _raising(ValueError("x" * 10_000_000)),
    "exit": _raising(SystemExit(3)),
    "interrupt": _raising(KeyboardInterrupt()),
    "foreign": _raising(Foreign("base")),
    "spiteful": _raising(Spiteful("x")),
    "half": _raising(ValueError("half a character \ud800, a \x1b[31m colour")),
}


WRONG_N = 160


def open_wrong_cpu(kind: str) -> Any:
    """Open the real CPU, with a matmul that gives twice the product where n is WRONG_N."""
    from tasks import bmm
    from tasks.device import open_device as open_real

    right = bmm.call

    def wrong(gemm: Gemm, operands: "Operands") -> None:
        right(gemm, operands)
        if gemm.n == WRONG_N:
            operands.c.mul_(2)

    bmm.call = wrong
    return open_real(kind)
