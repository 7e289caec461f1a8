"""A plan for reading, within the terminal's width."""

from collections.abc import Iterator, Sequence

from orchestrator.config import model_notes
from orchestrator.families import Outline
from orchestrator.figures import UNKNOWN
from orchestrator.plan import Plan, gpu_counts, wall_seconds
from orchestrator.plan_ranges import budget_notes, ranges, shape_ranges
from orchestrator.printing import LABEL, fitting, wrapped
from orchestrator.schema import Config
from orchestrator.shape_code import value_name
from orchestrator.space import Expansion, reasons
from tasks.settings import BASELINES

GIB = 2**30
GAP = "  "
EXAMPLE_GPU = "h100-sxm"
MOST_SHOWN = 40
"""Families that are listed."""


def lines(config: Config, expansion: Expansion, found: Plan, width: int) -> Iterator[str]:
    """Yield the lines: counts, memory, Families, skips with their reasons, cost."""
    yield from wrapped(f"conf={config.conf_name}: {' '.join(config.overrides)}".rstrip(": "), width)
    for label, text in _facts(config, expansion, found):
        yield from wrapped(text, width, label.ljust(LABEL))
    yield ""
    yield from table(("family", "candidates", "values", "baseline"), _families(expansion), width)
    if len(expansion.families) > MOST_SHOWN:
        yield f"… and {len(expansion.families) - MOST_SHOWN:,} more"
    if expansion.skips:
        yield from ("", "skipped")
        for kind, count in reasons(expansion.skips).items():
            yield from wrapped(_skip(expansion, kind), width, f"{count:6,} x ")
    yield ""
    for label, text in _cost(config, expansion, found):
        yield from wrapped(text, width, label.ljust(LABEL))


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield the lines of a table, its first column to the left; the last columns are left out where they do not fit."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    kept = max(1, fitting(widths, width, len(GAP)))
    for first, *others in (columns, *rows):
        yield GAP.join([first.ljust(widths[0]), *map(str.rjust, others[: kept - 1], widths[1:])]).rstrip()


def _facts(config: Config, expansion: Expansion, found: Plan) -> Iterator[tuple[str, str]]:
    yield "points", f"{expansion.points:,}, of which {sum(reasons(expansion.skips).values()):,} are skipped"
    yield "families", f"{len(expansion.families):,}, measured in {len(expansion.bundles):,} bundles"
    if config.space.params_budget is not None:
        shapes = shape_ranges(expansion.families.outlines())
        yield "shapes", ", ".join(_span(name, *ends) for name, ends in shapes.items())
    measured = len(expansion.bundles.sets.gemms)
    shared = f", {measured:,} with those that several bundles have" if measured > expansion.gemms else ""
    yield "gemms", f"{expansion.gemms:,} distinct{shared}, {found.flops / 1e12:,.1f} TFLOP for one call of each"
    yield "memory", f"largest Gemm {found.largest_gemm.gemm_id}: {found.largest_bytes / GIB:.2f} GiB"
    if found.spec is not None and found.too_large:
        yield "", f"{found.too_large} Gemms do not fit in {found.spec.memory_gb} GB: a run skips them"
    if found.spec is not None and found.unsupported:
        yield "", f"{found.unsupported:,} Gemms cannot be multiplied by {found.spec.key}: a run says why of each"
    yield "protocol", f"{config.timing.protocol}, L2 {config.timing.cache}, power {config.timing.regime}"
    for note in budget_notes(config):
        yield "budget", note
    for note in model_notes(config):
        yield "model", note


def _families(expansion: Expansion) -> list[tuple[str, ...]]:
    return [_family(outline) for outline in expansion.families.outlines(MOST_SHOWN)]


def _family(family: Outline) -> tuple[str, ...]:
    baseline = UNKNOWN if family.baseline is None else value_name(family.axis, family.baseline)
    spans = ", ".join(_span(name, *ends) for name, ends in ranges(family).items())
    return family.family_id, f"{len(family.values):,}", spans, baseline


def _span(name: str, low: int, high: int) -> str:
    return f"{name} {low}" if low == high else f"{name} {low}…{high}"


def _skip(expansion: Expansion, kind: str) -> str:
    example = next(expansion.skips.of(kind))
    h = "" if example.h is None else f" h={example.h}"
    return f"{kind}; first: {example.role}{h} tp={example.tp}: {example.reason}"


def _cost(config: Config, expansion: Expansion, found: Plan) -> Iterator[tuple[str, str]]:
    if found.spec is None and config.timing.protocol in BASELINES:
        yield "cost", _not_estimated(config)
    elif found.spec is None:
        most = config.timing.most_seconds * len(expansion.bundles)
        text = f"about {most:,.0f} s beyond the least rounds if no family is resolved; {_not_estimated(config)}"
        yield "cost", text
    elif found.estimate is None:
        yield "cost", f"not estimated: no published peak for {', '.join(found.unknown)} on {found.spec.key}"
    else:
        known = found.estimate
        yield (
            "cost",
            f"{known.least_s:,.0f} to {known.most_s:,.0f} GPU-seconds{_each(config)}, up to {known.samples:,} samples; "
            f"estimated for {found.spec.key} from the catalogue's peak and bandwidth, with Ray's start and end:",
        )
        for gpus in gpu_counts(config):
            low, high = wall_seconds(known, expansion, config, gpus)
            yield "", f"{gpus} GPU{'s' * (gpus > 1)}: {low:,.0f} to {high:,.0f} s"


def _not_estimated(config: Config) -> str:
    if config.cluster.gpu == "cpu":
        return "a CPU is not estimated"
    return f"cluster.gpu={config.cluster.gpu} names no GPU to estimate for, cluster.reference_gpu={EXAMPLE_GPU} does"


def _each(config: Config) -> str:
    return " of each device" if config.cluster.placement == "replicate" else ""
