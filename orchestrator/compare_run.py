"""The sides of a run: one for each GPU model that it measured."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from orchestrator.canary import is_canary
from orchestrator.catalogue import match
from orchestrator.compare_side import Contenders, Shape, Side, Timing
from orchestrator.errors import StoreError, noted
from orchestrator.ranking import Ranking, rank
from orchestrator.store import RunStore

Row = dict[str, Any]

PROTOCOL = ("protocol", "protocol_version", "l2", "power")
ENVIRONMENT = {
    "driver": "driver",
    "runtime": "CUDA or ROCm",
    "torch": "torch",
    "blas": "BLAS",
    "power_limit_w": "power limit W",
    "sm_clock_max_mhz": "SM clock limit MHz",
    "allow_tf32": "allow_tf32",
    "allow_fp16_reduced_precision_reduction": "fp16 reduced precision",
    "allow_bf16_reduced_precision_reduction": "bf16 reduced precision",
    "uuid": "device",
    "host": "host",
    "code_version": "orchestrator",
}
CLOCKS = {"sm_clock_mean_mhz": "SM clock MHz", "memory_clock_mean_mhz": "memory clock MHz"}
_FACTS = ("bundle_id", "gpu", "gemm_id", "layout", "memory_bytes", "energy_j", "status", *ENVIRONMENT, *CLOCKS)


def sides_of_run(name: str, store: RunStore) -> list[Side]:
    """Make the sides of a run.

    Raises:
        StoreError: nothing was measured in it, or by several protocols.
    """
    ranking = rank(store)
    with noted(ranking.problems):
        return _sides(name, store, ranking)


def _sides(name: str, store: RunStore, ranking: Ranking) -> list[Side]:
    rows = [row for row in ranking.table.to_pylist() if row["rank"] is not None]
    if not rows:
        raise StoreError(f"nothing was measured in {store.path}")
    protocols = {tuple(str(row[key]) for key in PROTOCOL) for row in rows}
    if len(protocols) > 1:
        mixed = "; ".join(" ".join(each) for each in sorted(protocols))
        raise StoreError(f"{store.path} has measurements by several protocols ({mixed}): they are not compared")
    facts = [row for row in store.reader().facts(_FACTS).table.to_pylist() if not is_canary(row["bundle_id"])]
    by_gpu: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_gpu[row["gpu"]].append(row)
    protocol = dict(zip(PROTOCOL, protocols.pop(), strict=True))
    return [
        _side(name if len(by_gpu) == 1 else f"{name} ({gpu})", store, gpu, ranked, facts, protocol, ranking)
        for gpu, ranked in by_gpu.items()
    ]


def _side(
    name: str,
    store: RunStore,
    gpu: str,
    rows: Sequence[Row],
    facts: Sequence[Row],
    protocol: Mapping[str, str],
    ranking: Ranking,
) -> Side:
    own = [row for row in facts if row["gpu"] == gpu and row["status"] == "ok"]
    return Side(
        name=name,
        path=str(store.path.resolve()),
        gpu=gpu,
        spec=match(gpu, max((row["memory_bytes"] for row in own), default=None)),
        timings=_timings(rows, own),
        environment={**_environment(own), **_timing(store)},
        protocol=protocol,
        families=_families(rows),
        notes=(*ranking.notes, *(["the device was throttled in some Families"] if _throttled(rows) else [])),
        problems=ranking.problems,
    )


def _timings(rows: Sequence[Row], facts: Sequence[Row]) -> dict[Shape, Timing]:
    seconds: dict[Shape, list[float]] = defaultdict(list)
    roles: dict[Shape, set[str]] = defaultdict(set)
    layouts = {row["gemm_id"]: row["layout"] for row in facts}
    energies: dict[str, list[float]] = defaultdict(list)
    for row in facts:
        if row["energy_j"] is not None:
            energies[row["gemm_id"]].append(row["energy_j"])
    ids: dict[Shape, str] = {}
    for row in rows:
        for part in row["parts"]:
            sizes = {name: part[name] for name in ("kind", "b", "m", "n", "k")}
            shape = Shape(**sizes, dtype=row["dtype"], layout=layouts[part["gemm_id"]])
            seconds[shape].append(part["seconds"])
            roles[shape].add(row["role"] if len(row["parts"]) == 1 else f"{row['role']}.{part['part']}")
            ids[shape] = part["gemm_id"]
    return {
        shape: Timing(
            seconds=median(found),
            energy_j=median(energies[ids[shape]]) if energies[ids[shape]] else None,
            roles=frozenset(roles[shape]),
        )
        for shape, found in seconds.items()
    }


def _environment(facts: Sequence[Row]) -> dict[str, tuple[str, ...]]:
    found = {
        title: tuple(sorted({_text(row[column]) for row in facts if row[column] is not None}))
        for column, title in ENVIRONMENT.items()
    }
    for column, title in CLOCKS.items():
        clocks = [row[column] for row in facts if row[column] is not None]
        found[title] = (f"{min(clocks):.0f} to {max(clocks):.0f}",) if clocks else ()
    return found


def _timing(store: RunStore) -> dict[str, tuple[str, ...]]:
    """The settings that it was measured by: who races whom, and for how long, moves a Family's level."""
    timing = store.manifest().get("config", {}).get("timing", {})
    idle = () if timing.get("protocol") == "sequential" else ("warmup_s",)
    return {f"timing.{name}": (str(value),) for name, value in timing.items() if name not in (*PROTOCOL, *idle)}


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _families(rows: Sequence[Row]) -> dict[str, Contenders]:
    values: dict[str, dict[int, float]] = defaultdict(dict)
    axes: dict[str, str] = {}
    for row in rows:
        values[row["family_id"]][row["value"]] = row["relative"]
        axes[row["family_id"]] = row["axis"]
    return {name: Contenders(axis=axes[name], relative=found) for name, found in values.items()}


def _throttled(rows: Sequence[Row]) -> bool:
    return any(row["throttled"] for row in rows)
