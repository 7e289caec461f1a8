"""Runs of several devices with known speeds, canaries and all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from orchestrator.canary import canary_bundle, canary_timing
from orchestrator.store import RunStore, shard_table
from tasks.family import Bundle, Family
from tasks.gemm import Gemm
from tasks.records import Telemetry
from tasks.settings import Timing
from tests.builders import DEVICE, TELEMETRY, Cost, as_bundle, measurement, per_flop

CANARY = canary_bundle("fp16")


@dataclass(frozen=True, kw_only=True)
class Fake:
    """A device of a run. canaries: its time at each of its canaries over that of a sound device."""

    uuid: str
    canaries: Sequence[float] = ()
    host: str = "node1"
    gpu: str = DEVICE.gpu


def keep(
    store: RunStore,
    device: Fake,
    family: Family | Bundle,
    cost: Cost,
    *,
    slower: float = 1.0,
    attempt: int = 1,
    canary: int | None = None,
    timing: Timing | None = None,
    rounds: int = 12,
    noise: float = 0.0,
    status: Mapping[str, tuple[str, str]] | None = None,
    telemetry: Telemetry = TELEMETRY,
) -> None:
    """Write the Shard of one Bundle on one device, on which all Gemms take ``slower`` times as long."""
    bundle = as_bundle(family)

    def slowed(gemm: Gemm, number: int) -> float:
        return slower * cost(gemm, number)

    measured = measurement(
        bundle,
        slowed,
        rounds=rounds,
        noise=noise,
        device=replace(DEVICE, uuid=device.uuid, host=device.host, gpu=device.gpu),
        status=status,
        telemetry=telemetry,
    )
    table = shard_table(
        bundle, measured, timing or Timing(), attempt=attempt, code_version="1", plan_hash="abc", canary=canary
    )
    store.write_shard(table)


def keep_canaries(store: RunStore, *devices: Fake) -> None:
    """Write the canaries of all devices."""
    for device in devices:
        for number, slower in enumerate(device.canaries, start=1):
            timing = canary_timing(Timing())
            keep(store, device, CANARY, per_flop({}), slower=slower, attempt=number, timing=timing, rounds=10)
