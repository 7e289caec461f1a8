"""A run made into a Selection: its ranking joined with the Shards' facts, each Gemm once."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from orchestrator.catalogue import GpuSpec, family_or_key, match
from orchestrator.errors import ExportError, InvalidValueError, shorten, unknown
from orchestrator.export.facts import Facts
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection, Spread, Use
from orchestrator.ranking import REGIME, Ranking
from orchestrator.store import RunStore, safe_name
from orchestrator.suspects import STATUS as SUSPECT
from orchestrator.suspects import TAKE_IN
from orchestrator.visits import Seconds, ShardKey, Visits, shard_key
from tasks.gemm import Gemm

Row = dict[str, Any]

_GEMM = ("kind", "b", "m", "n", "k", "dtype", "layout")
_SHARD = ("uuid", "bundle_id", "attempt")
_SOFTWARE = ("torch", "driver", "runtime", "blas")
_COLUMNS = (*_SHARD, "gpu", "memory_bytes", "gemm_id", *_GEMM, "energy_j", *_SOFTWARE)

REPEATED = "repeats of a Gemm that several Points have: it is written once, by the median over all its samples"
FASTER = "Gemms faster than the GPU's peak: a fault of the measurement"
NOT_BEST = "Gemms of no Candidate that ties with its Family's best (candidates=all takes them in)"


def select(store: RunStore, ranking: Ranking, request: Request, *, best: bool = False) -> Selection:
    """Return the Gemms that the request asks for; ``best`` is what holds where it says nothing of ``candidates``.

    A Gemm of one Point has the seconds of the ranking. One of several Points (of two Families, say) has the median over
    all its samples, each once, or by protocol ``sequential`` their mean; over several devices the median of these, as
    in the ranking.

    Raises:
        ExportError: nothing is left, or it is of several GPU models or regimes.
    """
    every = ranking.table.to_pylist()
    if not every:
        raise ExportError(f"nothing was measured in {store.path}")
    rows = _filtered(every, request)
    facts = store.reader().facts(_COLUMNS).table.to_pylist()
    gpu = _gpu(rows, facts, request.gpu)
    rows = [row for row in rows if row["gpu"] == gpu]
    facts = [row for row in facts if row["gpu"] == gpu]
    regime = _regime(rows)
    left_out: Counter[str] = Counter(_not_measured(row) for row in rows if row["rank"] is None)
    memory = facts[0]["memory_bytes"]
    spec = match(gpu, memory)
    entries = _entries([row for row in rows if row["rank"] is not None], facts, ranking.visits)
    left_out[REPEATED] = sum(len(entry.uses) - 1 for entry in entries)
    sound = [entry for entry in entries if not _too_fast(entry, spec, request)]
    left_out[FASTER] = len(entries) - len(sound)
    only_best = best if request.candidates is None else request.candidates == "best"
    chosen = [entry for entry in sound if entry.best or not only_best]
    left_out[NOT_BEST] = len(sound) - len(chosen)
    left_out = +left_out
    if not chosen:
        reasons = "; ".join(f"{count} {reason}" for reason, count in left_out.items())
        raise ExportError(f"nothing to export of {gpu} in {store.path}: {reasons}")
    return Selection(
        run=store.name,
        gpu=gpu,
        spec=spec,
        memory_bytes=memory,
        regime=regime,
        software=_software(facts),
        entries=tuple(chosen),
        left_out=left_out,
    )


def _filtered(rows: Sequence[Row], request: Request) -> list[Row]:
    found = list(rows)
    for name, wanted in request.filters.items():
        kept = [row for row in found if row[name] in wanted]
        if not kept:
            there = ", ".join(sorted({str(row[name]) for row in found if row[name] is not None})[:20])
            asked = ",".join(map(str, wanted))
            raise ExportError(f"nothing was measured with {name}={shorten(asked)}; there is: {there or 'none'}")
        found = kept
    return found


def _gpu(rows: Sequence[Row], facts: Sequence[Row], wanted: str | None) -> str:
    """The one GPU model that is meant: by its own name, that name as a directory has it, or the catalogue's."""
    names = list(dict.fromkeys(row["gpu"] for row in rows))
    if wanted is None:
        if len(names) > 1:
            raise ExportError(f"the run has {len(names)} GPU models: choose one by --gpu: {', '.join(names)}")
        return str(names[0])
    memory = {row["gpu"]: row["memory_bytes"] for row in facts}
    found = [name for name in names if _is_called(name, memory.get(name), wanted)]
    if len(found) > 1:
        raise ExportError(f"--gpu {wanted} is several GPU models of this run: {', '.join(found)}")
    if not found:
        raise ExportError(f"--gpu: {unknown('GPU', wanted, [*names, *map(safe_name, names)])}")
    return str(found[0])


def _is_called(name: str, memory: int | None, wanted: str) -> bool:
    if wanted.casefold() in (name.casefold(), safe_name(name)):
        return True
    try:
        return match(name, memory) in family_or_key(wanted)
    except InvalidValueError:
        return False


def _regime(rows: Sequence[Row]) -> Row:
    regimes = {tuple(row[name] for name in REGIME[1:]): row for row in rows}
    if len(regimes) > 1:
        lines = "; ".join(" ".join(map(str, key)) for key in regimes)
        raise ExportError(f"the run was measured in several ways, which are not mixed: {lines}")
    (row,) = regimes.values()
    return {name: row[name] for name in REGIME[1:]}


def _not_measured(row: Row) -> str:
    hint = f" ({TAKE_IN}; so does export)" if row["status"] == SUSPECT else ""
    return f"Points that were not measured: {row['status']}{hint}"


def _too_fast(entry: Entry, spec: GpuSpec | None, request: Request) -> bool:
    peak = Facts(target=request.target, spec=spec, given=request.facts).known_peak(entry.gemm.dtype)
    return peak is not None and entry.tflops > peak


def _entries(rows: Iterable[Row], facts: Iterable[Row], visits: Mapping[ShardKey, Visits]) -> list[Entry]:
    uses: dict[str, list[tuple[Use, float]]] = {}
    for row in rows:
        for part in row["parts"]:
            uses.setdefault(part["gemm_id"], []).append((Use(part=part["part"], point=row), part["seconds"]))
    known: dict[str, list[Row]] = {}
    for fact in facts:
        if fact["gemm_id"] in uses and shard_key(fact) in visits:
            known.setdefault(fact["gemm_id"], []).append(fact)
    return sorted((_entry(places, known[gemm_id], visits) for gemm_id, places in uses.items()), key=_order)


def _order(entry: Entry) -> Gemm:
    return entry.gemm


def _entry(places: Sequence[tuple[Use, float]], facts: Sequence[Row], visits: Mapping[ShardKey, Visits]) -> Entry:
    gemm = Gemm(**{name: facts[0][name] for name in _GEMM})
    by_device = _samples(gemm.gemm_id, {shard_key(row) for row in facts}, visits)
    every = np.concatenate(by_device)
    middle = np.mean if places[0][0].point["protocol"] == "sequential" else np.median
    seconds = places[0][1] if len(places) == 1 else float(np.median([middle(values) for values in by_device]))
    joules = [row["energy_j"] for row in facts]
    return Entry(
        gemm=gemm,
        seconds=seconds,
        spread=Spread(
            least=float(every.min()),
            most=float(every.max()),
            mean=float(every.mean()),
            std=float(every.std()),
            samples=len(every),
        ),
        energy_j=None if None in joules else float(np.median(joules)),
        uses=tuple(use for use, _ in places),
    )


def _samples(gemm_id: str, keys: Iterable[ShardKey], visits: Mapping[ShardKey, Visits]) -> list[Seconds]:
    """The samples of a Gemm by device, those of one Shard once, however many Families it holds."""
    devices: dict[str, list[Seconds]] = {}
    for key in sorted(keys):
        column = visits[key].of([gemm_id])[:, 0]
        finite = column[np.isfinite(column)]
        if len(finite):
            devices.setdefault(key.uuid, []).append(finite)
    return [np.concatenate(blocks) for blocks in devices.values()]


def _software(facts: Sequence[Row]) -> tuple[str, ...]:
    """Every version that measured, under its name where the text has none itself."""
    found: dict[str, None] = {}
    for row in facts:
        for name in _SOFTWARE:
            if row[name] is not None:
                found[row[name] if name in ("runtime", "blas") else f"{name} {row[name]}"] = None
    return tuple(found)
