"""Runs and published tables beside each other: everything that ``compare`` says, as records and as plain values."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from orchestrator.compare_environment import Difference, differences
from orchestrator.compare_gate import Gate
from orchestrator.compare_portable import PortableFamily, portable
from orchestrator.compare_shapes import Coverage, Group, coverage, groups, matched
from orchestrator.compare_side import Side
from orchestrator.forms import CsvTable

GROUP = ("role", "dtype", "regime", "count")
FIGURES = ("p10", "median", "p90", "tflops", "peak_share", "joules_per_flop")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """The first side is what the others are compared with. common: how many shapes all have."""

    sides: tuple[Side, ...]
    common: int
    coverage: tuple[Coverage, ...]
    groups: tuple[Group, ...]
    differences: tuple[Difference, ...]
    portable: tuple[PortableFamily, ...]
    gate: Gate | None = None


def compare(sides: Sequence[Side], gate: Gate | None = None) -> Comparison:
    """Compare sides on the shapes that all have; InvalidValueError where there are none."""
    timings, common = matched(sides)
    return Comparison(
        sides=tuple(sides),
        common=len(common),
        coverage=coverage(timings, common),
        groups=groups(sides, timings, common),
        differences=differences(sides),
        portable=portable(sides),
        gate=gate,
    )


def document(found: Comparison) -> dict[str, Any]:
    """Return everything as plain values; docs/compare.md describes them."""
    return {
        "sides": [
            {**_side(side), "coverage": {**asdict(own), "examples": list(map(str, own.examples))}}
            for side, own in zip(found.sides, found.coverage, strict=True)
        ],
        "common_shapes": found.common,
        "groups": [asdict(group) for group in found.groups],
        "environment": [asdict(each) for each in found.differences],
        "portable": [_portable(family) for family in found.portable],
        "gate": None if found.gate is None else {**asdict(found.gate), "passed": found.gate.passed},
    }


def csv_table(found: Comparison) -> CsvTable:
    """Return the speed-up of each side over the first one, a row for each group of shapes."""
    rows = (
        {**{name: getattr(group, name) for name in GROUP}, "side": side.name, "gpu": side.gpu, **asdict(figures)}
        for group in found.groups
        for side, figures in zip(found.sides, group.figures, strict=True)
    )
    problems = tuple(problem for side in found.sides for problem in side.problems)
    return CsvTable(columns=(*GROUP, "side", "gpu", *FIGURES), rows=rows, notes=(*problems, *_verdict(found.gate)))


def _verdict(gate: Gate | None) -> Iterator[str]:
    if gate is not None:
        passed = "passed" if gate.passed else "failed"
        yield f"gate {passed}: {len(gate.slower)} slower, {len(gate.failed)} failed"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "gpu": side.gpu,
        "key": side.spec and side.spec.key,
        "imported": side.imported,
        "source": side.source,
        "protocol": None if side.protocol is None else dict(side.protocol),
        "environment": {name: list(values) for name, values in side.environment.items()},
        "rows_read": side.read if side.imported else None,
        "defects": [asdict(defect) for defect in side.defects],
        "notes": list(side.notes),
        "problems": list(side.problems),
    }


def _portable(family: PortableFamily) -> dict[str, Any]:
    values = asdict(family)
    for choice, plain in zip(family.choices, values["choices"], strict=True):
        plain["worst"] = choice.worst
    return values
