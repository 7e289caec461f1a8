"""What was not measured: why a Gemm has no figure, and the sweep that would measure it, where its GPU can."""

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from orchestrator.architecture import impossible
from orchestrator.capacity_figure import Source
from orchestrator.capacity_grid import AXES, MOST_APART
from orchestrator.capacity_work import Work
from orchestrator.compare_side import Shape
from tasks.gemm import Gemm

LISTED = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class Gap:
    """A work that a source has no figure for."""

    source: Source
    work: Work
    why: str


def gap(source: Source, work: Work) -> Gap:
    """Say why a source has no figure for a work."""
    return Gap(source=source, work=work, why=_why(source.grid.seconds, source.shapes(work)[0]))


def _why(measured: Iterable[Shape], wanted: Shape) -> str:
    known = list(measured)
    if not any(each.dtype == wanted.dtype for each in known):
        return f"{wanted.dtype} was not measured, only {', '.join(sorted({each.dtype for each in known}))}"
    alike = [each for each in known if _key(each) == _key(wanted)]
    if not alike:
        batch = f" of b={wanted.b}" if wanted.kind == "bmm" else ""
        layout = f" in layout {wanted.layout}" if wanted.layout else ""
        return f"no {wanted.kind}{batch}{layout} was measured in {wanted.dtype}"
    for axis in AXES:
        values = [int(getattr(each, axis)) for each in alike]
        if not min(values) <= int(getattr(wanted, axis)) <= max(values):
            return f"{axis}={getattr(wanted, axis)} lies outside what was measured, {min(values)} to {max(values)}"
    return f"it does not lie between measured neighbours that are at most {MOST_APART} times apart"


def _key(shape: Shape) -> tuple[object, ...]:
    return shape.kind, shape.b, shape.dtype, shape.layout


def message(gaps: Sequence[Gap]) -> str:
    """Say everything that is missing, what of it the GPU cannot do, and by which sweeps the rest would be measured."""
    return "\n".join(_lines(gaps))


def _lines(gaps: Sequence[Gap]) -> Iterator[str]:
    by_source: dict[str, list[Gap]] = {}
    for each in gaps:
        by_source.setdefault(each.source.side.name, []).append(each)
    for name, own in by_source.items():
        yield f"'{name}' has no timing for {len(own)} of the GEMMs:"
        for each in own[:LISTED]:
            yield f"  {each.work.name} {each.source.shapes(each.work)[0]}: {each.why}"
        if len(own) > LISTED:
            yield f"  and {len(own) - LISTED} more"
        spec = own[0].source.side.spec
        refused = {
            each.work.name: why for each in own if spec is not None and (why := impossible(each.work.gemm, spec))
        }
        for reason in dict.fromkeys(refused.values()):
            yield f"no sweep can measure {', '.join(work for work, why in refused.items() if why == reason)}: {reason}"
        if refused and spec is not None:
            yield f"without them there is no plan in {own[0].work.gemm.dtype} on {spec.key}: give another dtype="
        possible = [each.work for each in own if each.work.name not in refused]
        if not possible:
            continue
        commands = sweep_commands(possible, None if spec is None else spec.key)
        what = "the others" if refused else "them"
        more = ", and give all runs in results=" if len(commands) > 1 or not own[0].source.side.imported else ""
        yield f"to measure {what}{more}:"
        yield from (f"  {command}" for command in commands)


def sweep_commands(works: Sequence[Work], gpu: str | None) -> tuple[str, ...]:
    """Return the commands that measure these works, one for all roles that see the same sizes in the same passes."""
    seen: set[Gemm] = set()
    passes: dict[tuple[tuple[str, ...], str], set[str]] = {}
    for work in works:
        if work.gemm not in seen:  # layers of two kinds share Gemms
            passes.setdefault((_sizes(work), work.role), set()).add("bwd" if work.gradient else "fwd")
        seen.add(work.gemm)
    roles: dict[tuple[str, ...], list[str]] = {}
    for (sizes, role), own in passes.items():
        both = ("space.pass=fwd,bwd",) if "bwd" in own else ()
        roles.setdefault((*sizes, *both), []).append(role)
    head = ["python", "-m", "orchestrator", *([] if gpu is None else [f"cluster.gpu={gpu}"])]
    return tuple(shlex.join([*head, f"space.roles={','.join(names)}", *sizes]) for sizes, names in roles.items())


def _sizes(work: Work) -> tuple[str, ...]:
    shape = work.shape
    names = ("h", "a", "kv", "head_dim", "d_ff", "v", "experts", "topk", "tp", "batch", "seq", "dtype")
    return tuple(f"space.{name}={value}" for name in names if (value := getattr(shape, name)) not in (None, 0))
