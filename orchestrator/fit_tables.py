"""What ``explain`` shows of a run: each Family beside the model's answer, and how well the model fits."""

from collections.abc import Iterator, Sequence

from orchestrator.alignment import alignments
from orchestrator.explain_tables import NO_SMS, NOT_RECORDED, Table, change, joined, short_kernel
from orchestrator.explained_run import MeasuredCandidate, MeasuredFamily, MeasuredPart
from orchestrator.figures import UNKNOWN
from orchestrator.fit import Correlation, Fit
from orchestrator.shape_code import axis_name, value_name
from orchestrator.tables import tflops
from orchestrator.tiles import chosen, cost

FAMILY_LEGEND = (
    "*: the baseline. measured, model: cost per FLOP above the best Candidate's. align: the largest powers of two in "
    "m, n and k. tile: the one that a library would take, with its waves and the share of their work that is wanted."
)
FIT_LEGEND = (
    "n: Candidates. r: correlation between the logarithms of the model's and of the measured cost per FLOP, with its "
    "95% interval: 1 the model is right, 0 it knows nothing, below 0 it is wrong. rank: the same of their orders. "
    "jumps: of the changes from one value to the next. model, real: how far the dearest Candidate lies above the "
    "cheapest, by the model and as measured. aligned: only those whose rows are all multiples of 16 bytes, for the "
    "model knows nothing of alignment. all alike: nor does it tell these Candidates apart, as where k is chosen. "
    "Believe the tiles where r is near 1 among the aligned, and the model's range is not far below the real one. "
    "Neighbouring Candidates are no independent draws: the intervals are rather too narrow than too wide."
)


def family_table(family: MeasuredFamily, top: int) -> Table:
    """The baseline and the best ``top`` Candidates of a Family, a row for each part."""
    best = min(family.candidates, key=lambda each: each.relative)
    ordered = sorted(family.candidates, key=lambda each: (not each.baseline, each.relative))
    shown = ordered[: top + any(each.baseline for each in ordered)]
    columns = (axis_name(family.axis), "measured", "model", "part", "TFLOP/s", "align m n k", "tile", "waves", "eff")
    rows = tuple(row for each in shown for row in _rows(family, each, best))
    notes = [] if family.gpu.sms is not None else [NO_SMS]
    return Table(
        title=f"{family.family_id}, {family.gpu.name}",
        columns=columns,
        rows=rows,
        notes=(*notes, *_kernels(family.axis, shown)),
    )


def _rows(family: MeasuredFamily, each: MeasuredCandidate, best: MeasuredCandidate) -> Iterator[tuple[str, ...]]:
    sms = family.gpu.sms
    model = UNKNOWN if sms is None else change(cost(each.gemms, sms) / cost(best.gemms, sms))
    named = value_name(family.axis, each.value)
    first = (f"{named}{'*' if each.baseline else ''}", change(each.relative / best.relative), model)
    for part in each.parts:
        yield (*first, *_part(part, sms))
        first = ("", "", "")


def _part(part: MeasuredPart, sms: int | None) -> tuple[str, ...]:
    align = " ".join(str(each.elements) for each in alignments(part.gemm))
    known = (part.name, tflops(part.measured.tflops), align)
    if sms is None:
        return (*known, UNKNOWN, UNKNOWN, UNKNOWN)
    found = chosen(part.gemm, sms)
    return (*known, found.tile.name, str(found.waves), f"{found.efficiency:.1%}")


def _kernels(axis: str, shown: Sequence[MeasuredCandidate]) -> Iterator[str]:
    """Each kernel with the Candidates that ran it."""
    users: dict[str, list[str]] = {}
    for each in shown:
        for part in each.parts:
            if part.measured.kernel is not None:
                user = f"{value_name(axis, each.value)} {part.name}"
                users.setdefault(short_kernel(part.measured.kernel), []).append(user)
    for kernel, names in users.items():
        yield f"{kernel}: {joined(names)}"


def recorded(families: Sequence[MeasuredFamily]) -> bool:
    """Whether a run knows a kernel of any of its Gemms."""
    parts = (part for family in families for each in family.candidates for part in each.parts)
    return any(part.measured.kernel is not None for part in parts)


def legend(families: Sequence[MeasuredFamily]) -> Table:
    """How to read the Families' tables."""
    kernels = () if recorded(families) else (f"{NOT_RECORDED[0].upper()}{NOT_RECORDED[1:]}.",)
    return Table(title=FAMILY_LEGEND, notes=kernels)


def fit_tables(fits: Sequence[Fit]) -> Iterator[Table]:
    """One table per GPU model and role, then how to read them."""
    places = dict.fromkeys((fit.gpu, fit.role) for fit in fits)
    for gpu, role in places:
        rows = tuple(_fit_row(fit) for fit in fits if (fit.gpu, fit.role) == (gpu, role))
        columns = ("tp", "which", "n", "r", "95%", "rank", "jumps", "model", "real", "verdict")
        yield Table(title=f"how well the tiles explain {role} on {gpu}", columns=columns, rows=rows)
    if fits:
        yield Table(title=FIT_LEGEND)


def _fit_row(fit: Fit) -> tuple[str, ...]:
    interval = UNKNOWN if fit.pearson is None else f"{fit.pearson.low:.2f}…{fit.pearson.high:.2f}"
    return (
        str(fit.tp),
        fit.which,
        str(fit.pairs),
        _value(fit.pearson),
        interval,
        _value(fit.rank),
        _value(fit.jumps),
        f"{fit.predicted_spread:.1%}",
        f"{fit.measured_spread:.1%}",
        fit.verdict,
    )


def _value(found: Correlation | None) -> str:
    return UNKNOWN if found is None else f"{found.value:.2f}"
