"""``check``: every rule on a Case, and for those that do not pass the nearest values that do."""

from collections.abc import Iterable, Iterator, Sequence

from orchestrator import check_alignment, check_capacity, check_sharding
from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, WARN, Finding, ShapeRule, Suggestion, Verdict
from orchestrator.check_levers import ordered, values
from orchestrator.check_parameters import parameters
from orchestrator.errors import InvalidValueError

EXTRA = "+"
RULES: tuple[ShapeRule, ...] = tuple(
    ShapeRule(name=name, number=number, title=title, judge=judge)
    for number, name, title, judge in (
        ("1", "vocabulary", "v % 64", check_alignment.vocabulary),
        ("2", "microbatch", "b large", check_capacity.microbatch),
        ("3", "tokens", "b·s power of two", check_alignment.tokens),
        ("3", "head_dim", "h/a power of two", check_alignment.head_dim),
        ("3", "hidden", "h/tp power of two", check_alignment.hidden),
        ("4", "attention_batch", "b·a/tp integer", check_sharding.attention_batch),
        ("5", "tensor_parallel", "tp small", check_capacity.tensor_parallel),
        ("6", "swiglu", "SwiGLU d_ff near 8h/3", check_alignment.swiglu),
        (EXTRA, "d_ff", "d_ff/tp aligned", check_alignment.d_ff),
        (EXTRA, "expert_d_ff", "expert_d_ff/tp aligned", check_alignment.expert_d_ff),
        (EXTRA, "shared_d_ff", "shared_d_ff/tp aligned", check_alignment.shared_d_ff),
        (EXTRA, "expert_tokens", "rows an expert", check_alignment.expert_tokens),
        (EXTRA, "heads", "a/tp integer", check_sharding.heads),
        (EXTRA, "kv_heads", "kv and tp", check_sharding.kv_heads),
        (EXTRA, "attention_kernel", "head_dim has a kernel", check_sharding.attention_kernel),
    )
)
"""The six rules of «The Case for Co-Designing Model Architectures with Hardware», then what they miss."""


def check(case: Case) -> tuple[Finding, ...]:
    """Return a Finding for each verdict of ``judged``, with what would pass where it does not."""
    found = judged(case)
    return tuple(
        Finding(
            rule=rule.name,
            number=rule.number,
            title=rule.title,
            status=verdict.status,
            value=verdict.value,
            reason=verdict.reason,
            suggestions=tuple(_suggestions(case, rule, found)) if verdict.status in (WARN, FAIL) else (),
        )
        for rule, verdict in found.items()
    )


def judged(case: Case) -> dict[ShapeRule, Verdict]:
    """Return the verdict of each rule that is about something this model has, in the order of RULES."""
    return {rule: verdict for rule in RULES if (verdict := rule.judge(case)) is not None}


def _suggestions(case: Case, rule: ShapeRule, found: dict[ShapeRule, Verdict]) -> Iterator[Suggestion]:
    for lever in found[rule].levers:
        now = case.value(lever)
        sides = ordered(found[rule].among, now) if found[rule].among else values(case, lever)
        passing = [value for side in sides if (value := _first(case, rule, found, lever, side)) is not None]
        for value in sorted(passing, key=lambda value: abs(value - now)):
            yield _suggestion(case, lever, value)


def _first(case: Case, rule: ShapeRule, found: dict[ShapeRule, Verdict], lever: str, side: Sequence[int]) -> int | None:
    """Return the nearest value on one side that passes the rule and makes no other rule worse."""
    return next((value for value in side if _helps(_changed(case, lever, value), rule, found)), None)


def _changed(case: Case, lever: str, value: int) -> Case | None:
    try:
        return case.changed(lever, value)
    except InvalidValueError:  # a number of heads that does not fit the others
        return None


def _helps(case: Case | None, rule: ShapeRule, found: dict[ShapeRule, Verdict]) -> bool:
    if case is None:
        return False
    own = rule.judge(case)
    return own is not None and own.status == PASS and not any(_worse(case, found.items()))


def _worse(case: Case, found: Iterable[tuple[ShapeRule, Verdict]]) -> Iterator[bool]:
    for rule, before in found:
        after = rule.judge(case)
        yield after is not None and after.is_worse_than(before)


def _suggestion(case: Case, lever: str, value: int) -> Suggestion:
    before = parameters(case.model)
    changed = case.changed(lever, value).model
    added, family = parameters(changed) - before, case.family(lever)
    gain = None if family is None else family.gain(case.model, changed)
    return Suggestion(dimension=lever, value=value, parameters=added, percent=added / before * 100, gain=gain)
