"""A plan as plain values: one object, or a row a Family."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from orchestrator.config import model_notes
from orchestrator.families import Outline
from orchestrator.forms import CsvTable
from orchestrator.plan import Plan, gpu_counts, wall_seconds
from orchestrator.plan_ranges import budget_notes, ranges
from orchestrator.schema import Config
from orchestrator.space import Expansion, reasons

FAMILY = ("family_id", "role", "h", "tp", "batch", "seq", "dtype", "passes", "axis")
CSV_COLUMNS = (*FAMILY, "candidates", "first", "last", "baseline", "gemms", "flops")


def document(config: Config, expansion: Expansion, found: Plan) -> dict[str, Any]:
    """Return everything; what is not known is null."""
    return {
        "conf": config.conf_name,
        "overrides": list(config.overrides),
        "points": expansion.points,
        "bundles": len(expansion.bundles),
        "gemms": expansion.gemms,
        "flops": found.flops,
        "skipped": sum(reasons(expansion.skips).values()),
        "skips": [_skip(expansion, kind, count) for kind, count in reasons(expansion.skips).items()],
        "memory": {
            "gemm_id": found.largest_gemm.gemm_id,
            "bytes": found.largest_bytes,
            "gemms_too_large": None if found.spec is None else found.too_large,
            "gemms_unsupported": None if found.spec is None else found.unsupported,
        },
        "timing": {"protocol": config.timing.protocol, "l2": config.timing.cache, "power": config.timing.regime},
        "cost": _cost(config, expansion, found),
        "families": [
            {**row, "values": list(family.values), "ranges": ranges(family)} for family, row in _families(expansion)
        ],
        "notes": [*budget_notes(config), *model_notes(config)],
    }


def csv_table(expansion: Expansion) -> CsvTable:
    """Return a row a Family."""
    return CsvTable(columns=CSV_COLUMNS, rows=(row for _, row in _families(expansion)))


def _skip(expansion: Expansion, kind: str, count: int) -> dict[str, Any]:
    first = next(expansion.skips.of(kind))
    return {
        "kind": kind,
        "points": count,
        "first": {"role": first.role, "h": first.h, "tp": first.tp, "value": first.value, "reason": first.reason},
    }


def _cost(config: Config, expansion: Expansion, found: Plan) -> dict[str, Any]:
    known = found.estimate
    wall = [(gpus, wall_seconds(known, expansion, config, gpus)) for gpus in gpu_counts(config)] if known else []
    return {
        "gpu": None if found.spec is None else found.spec.key,
        "no_peak": list(found.unknown),
        "samples": None if known is None else known.samples,
        "gpu_seconds": None if known is None else {"least": known.least_s, "most": known.most_s},
        "wall_seconds": [{"gpus": gpus, "least": least, "most": most} for gpus, (least, most) in wall],
    }


def _families(expansion: Expansion) -> Iterator[tuple[Outline, dict[str, Any]]]:
    """Each Family with its row."""
    sets = expansion.families.sets
    flops = sets.exact_sums(sets.table.flops()[sets.gemms])
    gemms = np.diff(sets.starts).tolist()
    for family, count, cost in zip(expansion.families.outlines(), gemms, flops, strict=True):
        row = {name: getattr(family, name) for name in FAMILY}
        row |= {"candidates": len(family.values), "first": family.values[0], "last": family.values[-1]}
        yield family, {**row, "baseline": family.baseline, "gemms": count, "flops": cost}
