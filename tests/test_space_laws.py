"""Laws of the expansion, on random small spaces."""

from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.axis import d_ff_values, expand
from orchestrator.errors import SpaceError
from orchestrator.expression import Where
from orchestrator.roles import ROLES
from orchestrator.schema import Config, Space
from orchestrator.space import Expansion, Skip, expand_space
from tasks.family import Family
from tasks.settings import Timing

MLP_ROLES = [name for name, role in ROLES.items() if role.dimensions == ("h", "d_ff")]

Line = tuple[str, int | None, int, int | None, int | None, str]
"""Role, h, tp, batch, seq and dtype: a Family."""


def some(values: list[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(values), min_size=1, max_size=3)


@st.composite
def spaces(draw: st.DrawFn) -> Config:
    """Small spaces; ``where`` only where there is no baseline for it to spare."""
    ratio = draw(st.booleans())
    space = Space(
        roles=draw(st.lists(st.sampled_from(MLP_ROLES), min_size=1, unique=True)),
        h=draw(some([48, 64, 96])),
        tp=draw(some([1, 2, 3, 4])),
        batch=draw(some([1, 2, 4])),
        seq=draw(some([1, 8, 16])),
        dtype=draw(st.lists(st.sampled_from(["fp16", "fp32"]), min_size=1, unique=True)),
        d_ff={"ratio": "8/3", "distance": 8, "step": 4} if ratio else draw(some([24, 32, 36, 48, 64])),
        where="" if ratio else draw(st.sampled_from(["", "d_ff % (8 * tp) == 0", "seq > 1", "h > 48 or tp == 1"])),
    )
    return Config(space=space, timing=Timing(protocol=draw(st.sampled_from(["interleaved", "seed"]))))


def expanded(of: Config) -> Expansion | None:
    try:
        return expand_space(of)
    except SpaceError:
        return None


def d_ffs(family: Family) -> list[int]:
    return [candidate.value for candidate in family.candidates]


def points_of(of: Config) -> list[tuple[Any, ...]]:
    """Every Point that protocol interleaved plans."""
    return [(*line, d_ff) for line in lines(of) for d_ff in d_ff_values(of.space.d_ff, line[1] or 0)[0]]


def lines(of: Config) -> list[Line]:
    space = of.space
    return [
        (role, h, tp, batch, seq, dtype)
        for role, h, tp, batch, dtype in product(
            space.roles, expand(space.h), expand(space.tp), expand(space.batch), space.dtype
        )
        for seq in (expand(space.seq) if ROLES[role].needs_seq else [None])
    ]


def line_of(item: Family | Skip) -> Line:
    return item.role, item.h, item.tp, item.batch, item.seq, item.dtype


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_every_point_is_in_exactly_one_family_or_skipped_for_a_reason(of: Config) -> None:
    if of.timing.protocol == "seed" or (found := expanded(of)) is None:
        return
    measured = [(*line_of(family), d_ff) for family in found.families for d_ff in d_ffs(family)]
    skipped = [(*line_of(skip), skip.value) for skip in found.skips]
    assert sorted(map(str, measured + skipped)) == sorted(map(str, points_of(of)))
    assert found.points == len(points_of(of))
    assert all(skip.reason and skip.kind for skip in found.skips)


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_a_point_is_measured_exactly_if_tp_divides_it_and_where_holds(of: Config) -> None:
    where = Where(of.space.where)
    for family in found.families if (found := expanded(of)) else ():
        for candidate in family.candidates:
            assert candidate.value % family.tp == 0
            assert where.evaluate(h=family.h, tp=family.tp, batch=family.batch, seq=family.seq, d_ff=candidate.value)
    for skip in found.skips if found else ():
        if skip.value is not None and skip.kind == "space.where":
            assert not where.evaluate(h=skip.h, tp=skip.tp, batch=skip.batch, seq=skip.seq, d_ff=skip.value)
        elif skip.value is not None:
            assert skip.value % skip.tp


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_every_family_is_in_one_bundle_that_has_all_its_gemms_once(of: Config) -> None:
    if (found := expanded(of)) is None:
        return
    assert sorted(str(f) for b in found.bundles for f in b.families) == sorted(map(str, found.families))
    for each in found.bundles:
        wanted = {part.gemm for family in each.families for c in family.candidates for part in c.parts}
        assert set(each.gemms) == wanted
        assert len(each.gemms) == len(wanted)
        assert len({gemm.dtype for gemm in each.gemms}) == 1
    assert found.gemms == len({gemm for each in found.bundles for gemm in each.gemms})


@given(spaces())
@settings(max_examples=60, deadline=None)
def test_a_family_has_ordered_candidates_and_at_most_one_baseline(of: Config) -> None:
    for family in found.families if (found := expanded(of)) else ():
        assert d_ffs(family) == sorted(set(d_ffs(family)))
        exact = d_ff_values(of.space.d_ff, family.h or 0)[1]
        below = [d_ff for d_ff in d_ffs(family) if exact is not None and d_ff <= exact]
        assert [c.value for c in family.candidates if c.baseline] == below[-1:]
