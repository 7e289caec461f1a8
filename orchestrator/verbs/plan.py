"""``plan``: what a sweep would measure, skip and cost."""

import argparse
import sys
import textwrap

from orchestrator.config import model_notes
from orchestrator.plan import START_S, Plan, plan
from orchestrator.schema import Config
from orchestrator.space import Expansion, expand_space, reasons
from orchestrator.verbs.common import add_sweep, configured, printed_cfg
from tasks.family import Family

GPUS = (1, 8)
GIB = 2**30
WIDTH = 100
MOST_SHOWN = 40
"""Families that are listed."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the verb's arguments."""
    add_sweep(parser)


def execute(arguments: argparse.Namespace) -> int:
    """Print the plan."""
    config = configured(arguments)
    if printed_cfg(arguments, config):
        return 0
    expansion = expand_space(config)
    sys.stdout.write("\n".join(_lines(config, expansion, plan(config, expansion))) + "\n")
    return 0


def _lines(config: Config, expansion: Expansion, found: Plan) -> list[str]:
    lines = [f"conf={config.conf_name}: {' '.join(config.overrides)}".rstrip(": ")]
    lines += [
        f"points    {expansion.points:,}, of which {sum(reasons(expansion.skips).values()):,} are skipped",
        f"families  {len(expansion.families):,}, measured in {len(expansion.bundles):,} bundles",
        f"gemms     {expansion.gemms:,} distinct, {found.flops / 1e12:,.1f} TFLOP for one call of each",
        f"memory    largest Gemm {found.largest_gemm.gemm_id}: {found.largest_bytes / GIB:.2f} GiB",
        f"protocol  {config.timing.protocol}, L2 {config.timing.l2}, power {config.timing.power}",
    ]
    for note in model_notes(config):
        lines += textwrap.wrap(note, WIDTH, initial_indent="model     ", subsequent_indent=" " * 10)
    if found.too_large:
        lines.append(f"          {found.too_large} Gemms do not fit in {found.spec.memory_gb if found.spec else 0} GB")
    shown = expansion.families[:MOST_SHOWN]
    width = max(len(family.family_id) for family in shown)
    lines += ["", "family".ljust(width) + "  candidates   values"]
    lines += [_family_line(family, width) for family in shown]
    if len(expansion.families) > MOST_SHOWN:
        lines.append(f"… and {len(expansion.families) - MOST_SHOWN:,} more")
    if expansion.skips:
        lines += ["", "skipped"]
        lines += [_skip_line(expansion, kind, count) for kind, count in reasons(expansion.skips).items()]
    return [*lines, "", *_cost(config, expansion, found)]


def _family_line(family: Family, width: int) -> str:
    values = [candidate.value for candidate in family.candidates]
    baseline = next((candidate.value for candidate in family.candidates if candidate.baseline), None)
    mark = "" if baseline is None else f", baseline {baseline}"
    span = str(values[0]) if len(values) == 1 else f"{values[0]}…{values[-1]}"
    return f"{family.family_id.ljust(width)}  {len(values):10,}   {family.axis} {span}{mark}"


def _skip_line(expansion: Expansion, kind: str, count: int) -> str:
    example = next(skip for skip in expansion.skips if skip.kind == kind)
    h = "" if example.h is None else f" h={example.h}"
    return f"{count:6,} x {kind}; first: {example.role}{h} tp={example.tp}: {example.reason}"


def _cost(config: Config, expansion: Expansion, found: Plan) -> list[str]:
    if found.spec is None:
        most = config.timing.max_seconds * len(expansion.bundles)
        return [
            f"cost      about {most:,.0f} s beyond the least rounds if no family is resolved; a CPU is not estimated"
        ]
    if found.estimate is None:
        return [f"cost      not estimated: no published peak for {', '.join(found.unknown)} on {found.spec.key}"]
    least, most = found.estimate.least_s, found.estimate.most_s
    soak = 0.0 if config.timing.protocol == "seed" else config.timing.soak_min_s
    lines = [
        f"cost      {least:,.0f} to {most:,.0f} GPU-seconds, up to {found.estimate.samples:,} samples; estimated for "
        f"{found.spec.key}",
        "          from the catalogue's peak and bandwidth, with Ray's start and end:",
    ]
    for gpus in GPUS:
        low, high = (START_S + soak + value / min(gpus, len(expansion.bundles)) for value in (least, most))
        lines.append(f"          {gpus} GPU{'s' * (gpus > 1)}: {low:,.0f} to {high:,.0f} s")
    return lines
