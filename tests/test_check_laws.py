"""What ``check`` promises of its suggestions, for all kinds of models."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator import catalogue
from orchestrator.check import check, judged
from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, SKIP, WARN
from orchestrator.check_parameters import parameters
from orchestrator.model import Model
from orchestrator.reshape import conflicts
from tasks.gemm import ELEMENT_BYTES

BADNESS = {SKIP: 0, PASS: 0, WARN: 1, FAIL: 2}


@st.composite
def models(draw: st.DrawFn) -> Model:
    kv = draw(st.integers(1, 16))
    a = kv * draw(st.integers(1, 8))
    head_dim = draw(st.sampled_from([16, 40, 63, 64, 80, 96, 100, 128, 160, 192, 256, 320]) | st.integers(1, 300))
    h = a * head_dim if draw(st.booleans()) else draw(st.integers(1, 20000))
    experts = draw(st.sampled_from([0, 0, 8, 60, 128]))
    layers = draw(st.integers(1, 100))
    size = st.integers(1, 40000) | st.integers(1, 300).map(lambda i: 64 * i)
    return Model(
        name="any",
        h=h,
        layers=layers,
        a=a,
        kv=kv,
        head_dim=head_dim,
        d_ff=draw(size),
        v=draw(st.integers(1, 260000) | st.sampled_from([32000, 50257, 128256, 152064])),
        mlp=draw(st.sampled_from(["swiglu", "gelu"])),
        tied=draw(st.booleans()),
        experts=experts,
        topk=draw(st.integers(1, 8)) if experts else 0,
        expert_d_ff=draw(size) if experts else 0,
        shared_d_ff=draw(st.just(0) | size) if experts else 0,
        dense_layers=draw(st.integers(0, layers)) if experts else 0,
        linear_bias=draw(st.booleans()),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(
        model=draw(models()),
        tp=draw(st.sampled_from([1, 2, 4, 8, 16]) | st.integers(1, 24)),
        b=draw(st.integers(1, 600)),
        s=draw(st.integers(1, 9000) | st.sampled_from([2048, 4096, 8192])),
        gpu=draw(st.none() | st.sampled_from(list(catalogue.load().values()))),
        training=draw(st.booleans()),
        dtype=draw(st.sampled_from(list(ELEMENT_BYTES))),
    )


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_suggestion_passes_its_rule_makes_no_other_worse_and_costs_what_it_says(case: Case) -> None:
    before = check(case)
    for finding in before:
        for suggestion in finding.suggestions:
            changed = case.changed(suggestion.dimension, suggestion.value)
            assert conflicts(changed.model) == []
            after = {rule.name: verdict.status for rule, verdict in judged(changed).items()}
            assert after[finding.rule] == PASS
            assert all(BADNESS[after[other.rule]] <= BADNESS[other.status] for other in before)
            added = parameters(changed.model) - parameters(case.model)
            assert suggestion.parameters == added
            assert suggestion.percent == added / parameters(case.model) * 100


@settings(max_examples=100, deadline=None)
@given(cases())
def test_suggestions_are_the_nearest_below_and_above_for_those_that_do_not_pass(case: Case) -> None:
    for finding in check(case):
        assert finding.status in (WARN, FAIL) or not finding.suggestions
        for dimension in {suggestion.dimension for suggestion in finding.suggestions}:
            now = case.value(dimension)
            offered = [s.value for s in finding.suggestions if s.dimension == dimension]
            assert now not in offered
            assert [abs(value - now) for value in offered] == sorted(abs(value - now) for value in offered)
            assert sum(value < now for value in offered) <= 1
            assert sum(value > now for value in offered) <= 1


@settings(max_examples=200, deadline=None)
@given(cases())
def test_d_ff_is_judged_by_the_share_of_a_rank(case: Case) -> None:
    verdict = {finding.rule: finding for finding in check(replace(case, gpu=None))}.get("d_ff")
    if verdict is None:
        assert case.model.experts
        assert case.model.dense_layers == 0
        return
    elements = ELEMENT_BYTES[case.dtype]
    share, rest = divmod(case.model.d_ff, case.tp)
    whole = rest == 0
    expected = PASS if whole and share * elements % 128 == 0 and share % (128 // elements) == 0 else None
    if expected is None:
        expected = WARN if whole and share % (16 // elements) == 0 else FAIL
    assert verdict.status == expected
