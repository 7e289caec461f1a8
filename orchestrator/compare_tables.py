"""What ``compare`` shows: plain tables and sentences."""

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from orchestrator.compare import Comparison
from orchestrator.compare_gate import CONFIDENCE, EXCESS_PCT, LEVEL_PCT, Gate, Lost, Slower
from orchestrator.compare_portable import Agreement, PortableFamily
from orchestrator.compare_shapes import Group, SideFigures
from orchestrator.compare_side import Side
from orchestrator.explain_tables import Table
from orchestrator.figures import UNKNOWN
from orchestrator.imports.defects import RULES
from orchestrator.shape_code import axis_name, value_name

GOOD = 0.01
"""A value within 1% of the best on every side can be taken for all of them."""
TOP = 5
LISTED = 20
GROUPS_LEGEND = (
    "p10, median, p90: how many times as fast as A. TFLOP/s: median. peak: its share of the catalogue's peak. pJ/FLOP: "
    "median, where energy was measured. regime: which ceiling of the roofline is the lower on every GPU; crosses: not "
    "the same one on all."
)
IMPORTED = (
    "Imported figures were timed by others, in another way than this project's protocol: their levels stand beside "
    "measured ones only roughly."
)


def comparison_tables(found: Comparison, top: int = TOP) -> Iterator[Table]:
    """Everything, the gate last: it is what is looked for."""
    yield _sides(found)
    yield from (_defects(letter(i), side) for i, side in enumerate(found.sides) if side.defects)
    yield from _differences(found)
    yield from _groups(found)
    yield from (_family(family, found.sides, top) for family in found.portable)
    yield from _portable_legend(found, top)
    yield from (Table(title=line) for side in found.sides for line in (*side.problems, *side.notes))
    if found.gate is not None:
        yield from _gate(found.gate)


def letter(index: int) -> str:
    """The name of a side in the tables.

    >>> letter(0), letter(27)
    ('A', 'B2')
    """
    more, place = divmod(index, len(ascii_uppercase))
    return ascii_uppercase[place] + (str(more + 1) if more else "")


def _sides(found: Comparison) -> Table:
    notes = [_side(letter(i), side) for i, side in enumerate(found.sides)]
    notes.append(f"{found.common} shapes (b, m, n, k, dtype) are common to all; only these are compared.")
    for i, own in enumerate(found.coverage):
        examples = ", ".join(map(str, own.examples))
        more = f", e.g. {examples}" if examples else ""
        notes.append(f"{letter(i)}: {own.shapes} shapes, {own.missing_elsewhere} of them not in every other{more}")
    return Table(title="compared", notes=(*notes, *([IMPORTED] if any(s.imported for s in found.sides) else [])))


def _side(name: str, side: Side) -> str:
    if side.imported:
        used = side.read - sum(defect.count for defect in side.defects if not defect.kept)
        return f"{name}: {side.name}, {side.gpu}, imported from {side.source}: {used} of {side.read} rows used"
    protocol = ", ".join(f"{key} {value}" for key, value in (side.protocol or {}).items())
    return f"{name}: {side.name}, {side.gpu}, run ({protocol})"


def _defects(name: str, side: Side) -> Table:
    return Table(
        title=f"defects of {name}'s table",
        columns=("defect", "rows", ""),
        rows=tuple((each.kind, str(each.count), "used" if each.kept else "set aside") for each in side.defects),
        notes=tuple(f"{each.kind} ({RULES[each.kind]}): {each.example}" for each in side.defects),
    )


def _differences(found: Comparison) -> Iterator[Table]:
    if not found.differences:
        yield Table(title="environment: nothing that was recorded differs")
        return
    lines = (
        f"{each.name}: " + "; ".join(f"{letter(i)} {value}" for i, value in enumerate(each.values))
        for each in found.differences
    )
    yield Table(title="environment: what differs", notes=tuple(lines))


def _groups(found: Comparison) -> Iterator[Table]:
    for dtype in dict.fromkeys(group.dtype for group in found.groups):
        rows = (row for group in found.groups if group.dtype == dtype for row in _group(group))
        columns = ("role", "regime", "shapes", "", "p10", "median", "p90", "TFLOP/s", "peak", "pJ/FLOP")
        yield Table(title=f"speed-up over A, {dtype}", columns=columns, rows=tuple(rows))
    yield Table(title=GROUPS_LEGEND)


def _group(group: Group) -> Iterator[tuple[str, ...]]:
    head = (group.role, group.regime, str(group.count))
    for i, figures in enumerate(group.figures):
        yield (*head, letter(i), *_figures(figures))
        head = ("", "", "")


def _figures(figures: SideFigures) -> tuple[str, ...]:
    energy = figures.joules_per_flop
    return (
        *(f"{value:.3f}" for value in (figures.p10, figures.median, figures.p90)),
        f"{figures.tflops:.3g}" if figures.tflops < 100 else f"{figures.tflops:.0f}",
        UNKNOWN if figures.peak_share is None else f"{figures.peak_share:.1%}",
        UNKNOWN if energy is None else f"{energy * 1e12:.3g}",
    )


def _family(family: PortableFamily, sides: Sequence[Side], top: int) -> Table:
    runs = [i for i, side in enumerate(sides) if not side.imported]
    good = sum(choice.worst <= GOOD for choice in family.choices)
    rows = tuple(
        (value_name(family.axis, choice.value), f"{choice.worst:.2%}", *(f"{regret:.2%}" for regret in choice.regrets))
        for choice in family.choices[:top]
    )
    within = f"{good} of {len(family.choices)} common values are within {GOOD:.0%} of the best on all of them"
    return Table(
        title=f"portable {axis_name(family.axis)}, {family.family_id}",
        columns=(axis_name(family.axis), "worst", *(letter(i) for i in runs)),
        rows=rows,
        notes=(within, *map(_agreement, family.agreements)),
    )


def _agreement(found: Agreement) -> str:
    kendall, spearman = (UNKNOWN if each is None else f"{each:.2f}" for each in (found.kendall, found.spearman))
    return f"order of {letter(found.first)} and {letter(found.second)}: Kendall {kendall}, Spearman {spearman}"


def _portable_legend(found: Comparison, top: int) -> Iterator[Table]:
    if found.portable:
        yield Table(
            title=f"worst, and each side: cost per FLOP above the best common value's there; the best {top} by the "
            "worst. Kendall (tau-b), Spearman: 1 the same order, 0 none in common."
        )


def _gate(found: Gate) -> Iterator[Table]:
    if found.slower:
        yield Table(
            title="slower",
            columns=("slower by", "interval", "what"),
            rows=tuple(
                (f"{each.percent:+.1f}%", f"{each.low:+.1f}…{each.high:+.1f}", _what(each)) for each in found.slower
            ),
        )
    lost = (("failed, was measured before", found.failed), ("not judged", found.not_judged))
    for title, each in lost:
        if each:
            more = [f"and {len(each) - LISTED} more"] if len(each) > LISTED else []
            yield Table(title=title, notes=(*map(_lost, each[:LISTED]), *more))
    if found.not_in_new:
        yield Table(title=f"{found.not_in_new} families of A are not in B")
    if found.unseen:
        family, reach = found.unseen[0]
        yield Table(
            title=f"in {len(found.unseen)} of {found.families} families the intervals reach further than "
            f"{found.floor_pct:g}% (up to {reach:.1f}%, {family}): a slowdown of less is not named there; runs with "
            "more rounds (timing.max_seconds, timing.min_rounds) see more"
        )
    verdict = "passed" if found.passed else "failed"
    yield Table(
        title=f"gate {verdict}: {len(found.slower)} slower by {found.floor_pct:g}% or more and beyond noise, of "
        f"{found.families} families and {found.candidates} candidates; {len(found.failed)} failed",
        notes=(
            f"The intervals hold together at {CONFIDENCE:.0%}, and allow for {LEVEL_PCT:g}% that a family's level, and "
            f"{EXCESS_PCT:g}% that a candidate within it, moves from run to run (docs/compare.md).",
        ),
    )


def _what(each: Slower) -> str:
    return f"{each.family_id} (all {each.candidates})" if each.value is None else _candidate(each)


def _candidate(each: Slower | Lost) -> str:
    if each.value is None or each.axis is None:
        return each.family_id
    return f"{each.family_id} {axis_name(each.axis)}={value_name(each.axis, each.value)}"


def _lost(each: Lost) -> str:
    return f"{_candidate(each)}: {each.why}"
