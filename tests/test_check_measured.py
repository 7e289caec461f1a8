"""``check`` with a run's results: what the committed example measured on an H200, and rankings made by hand."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from orchestrator.check_case import Case
from orchestrator.check_finding import PASS, WARN
from orchestrator.check_measured import families
from orchestrator.check_results import Evidence, look_up, sweep_command
from orchestrator.errors import StoreError
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tests.shapes import GPT_3_2_7B, LLAMA_2_7B, MIXTRAL, found, offers, on

RUN = Path(__file__).parents[1] / "results" / "examples" / "h200-seed-and-mlp"


@cache
def example() -> tuple[dict[str, Any], ...]:
    return tuple(rank(RunStore.open(RUN)).table.to_pylist())


def seen(case: Case) -> Evidence:
    return look_up(case, list(example()), "RUN")


def row(d_ff: int, rank: int, relative: float, **others: Any) -> dict[str, Any]:
    return {
        **{
            "gpu": "NVIDIA H200",
            "protocol": "interleaved",
            "protocol_version": 1,
            "l2": "rotate",
            "power": "sustained",
        },
        **{"family_id": "mlp", "role": "mlp", "h": 4096, "tp": 8, "batch": 4, "seq": 2048, "dtype": "fp16"},
        **{"d_ff": d_ff, "rank": rank, "tie_group": rank, "relative": relative},
        **{"relative_low": relative - 0.003, "relative_high": relative + 0.003},
        **others,
    }


BY_HAND = [
    row(11264, 1, 1.0, relative_low=1.0, relative_high=1.0),
    row(11008, 2, 1.012),
    row(10944, 3, 1.05),
]


def test_what_a_change_from_the_baseline_gains_has_that_pairs_own_interval() -> None:
    rows = [
        row(11264, 1, 1.0, relative_low=1.0, relative_high=1.0, speedup=1.012, speedup_low=1.011, speedup_high=1.013),
        row(11008, 2, 1.012, relative_low=0.9, relative_high=1.1, baseline=True, speedup=1.0),
    ]
    case = look_up(Case(model=LLAMA_2_7B, tp=8), rows, "RUN").case
    (suggestion,) = found(case, "swiglu").suggestions
    gain = suggestion.gain
    assert gain is not None
    assert [gain.percent, gain.low, gain.high] == pytest.approx([1.2, 1.1, 1.3])


def test_a_d_ff_that_was_measured_has_its_rank_and_what_a_change_gains() -> None:
    case = look_up(Case(model=LLAMA_2_7B, tp=8), BY_HAND, "RUN").case
    finding = found(case, "swiglu")
    assert finding.status == WARN
    assert finding.reason.startswith("d_ff 11008 at tp 8: measured rank 2 of 3 on NVIDIA H200, 1.2% behind the best")
    (suggestion,) = finding.suggestions
    assert (suggestion.dimension, suggestion.value, suggestion.parameters) == ("d_ff", 11264, 256 * 3 * 4096 * 32)
    assert suggestion.gain is not None
    assert suggestion.gain.percent == pytest.approx(1.2)
    assert suggestion.gain.low == pytest.approx(0.9)
    assert suggestion.gain.high == pytest.approx(1.5)


def test_the_example_puts_11008_first_at_tp_8_and_10944_a_percent_behind() -> None:
    best = found(seen(on(Case(model=LLAMA_2_7B, tp=8), "h200")).case, "swiglu")
    assert best.status == PASS
    assert "measured rank 1 of 25 on NVIDIA H200, cannot be told from the best" in best.reason
    case = seen(on(Case(model=replace(LLAMA_2_7B, d_ff=10944), tp=8), "h200")).case
    finding = found(case, "swiglu")
    assert (finding.status, offers(finding)) == (WARN, [("d_ff", 11008)])
    gain = finding.suggestions[0].gain
    assert gain is not None
    assert gain.percent == pytest.approx(1.0, abs=0.05)
    assert gain.low is not None
    assert gain.high is not None
    assert 0.5 < gain.low < gain.percent < gain.high < 1.5


def test_what_was_not_measured_is_said_with_the_sweep_that_would() -> None:
    evidence = seen(on(Case(model=LLAMA_2_7B, tp=16, s=4096), "h200"))
    assert evidence.case.family("d_ff") is None
    (note,) = evidence.notes
    assert note.startswith("results=RUN has no mlp or mlp_gate_up of h=4096 at tp=16 on h200; to measure it: ")
    assert note.endswith(sweep_command(evidence.case))
    other = seen(Case(model=replace(LLAMA_2_7B, d_ff=14336), tp=8))
    assert "d_ff 14336 was not measured there" in other.notes[1]
    assert "not among the 25 that were measured" in found(other.case, "swiglu").reason


def test_the_sweep_command_plans_a_sweep_with_the_present_d_ff_and_its_aligned_neighbours() -> None:
    import shlex

    from orchestrator.config import compose
    from orchestrator.space import expand_space

    command = sweep_command(on(Case(model=LLAMA_2_7B, tp=16, s=4096), "h200"))
    words = shlex.split(command)
    assert words[:3] == ["python", "-m", "orchestrator"]
    config = compose("auto", words[3:])
    (family,) = expand_space(config).families
    assert (family.h, family.tp, family.seq) == (4096, 16, 4096)
    # 10240 and 11264 are multiples of 16·64 = 1024
    assert {10240, 11008, 11264} <= {candidate.value for candidate in family.candidates}


def test_another_gpu_model_is_not_asked() -> None:
    evidence = seen(on(Case(model=LLAMA_2_7B, tp=8), "a100-sxm-80"))
    assert evidence.case.families == ()
    assert "at tp=8 on a100; to measure it" in evidence.notes[0]


def test_a_run_of_several_gpu_models_needs_gpu() -> None:
    rows = [*BY_HAND, *(entry | {"gpu": "NVIDIA H100 80GB HBM3"} for entry in BY_HAND)]
    with pytest.raises(StoreError, match="NVIDIA H100 80GB HBM3, NVIDIA H200: name one by gpu="):
        look_up(Case(model=LLAMA_2_7B, tp=8), rows, "RUN")
    assert look_up(on(Case(model=LLAMA_2_7B, tp=8), "h100-sxm"), rows, "RUN").case.family("d_ff") is not None


def test_rankings_of_another_dimension_are_left_out_and_those_that_do_not_say_are_of_d_ff() -> None:
    assert len(families(BY_HAND, "swiglu")) == 1
    assert len(families([entry | {"axis": None} for entry in BY_HAND], "swiglu")) == 1
    assert len(families([entry | {"axis": "d_ff"} for entry in BY_HAND], "swiglu")) == 1
    assert families([entry | {"axis": "h"} for entry in BY_HAND], "swiglu") == ()


def test_the_role_that_tells_most_then_the_dtype_then_the_nearest_tokens_count() -> None:
    def of(family_id: str, **others: Any) -> list[dict[str, Any]]:
        return [entry | {"family_id": family_id} | others for entry in BY_HAND]

    rows = [
        *of("a", role="mlp_gate_up"),
        *of("b", dtype="bf16"),
        *of("c", batch=1),
        *of("d", seq=4096),
        *of("e", role="mlp_up"),
        *of("f", rank=None),
    ]
    case = look_up(Case(model=LLAMA_2_7B, tp=8, b=2, s=8192), rows, "RUN").case
    assert len(case.families) == 4
    family = case.family("d_ff")
    assert family is not None
    assert (family.role, family.dtype, family.batch, family.seq) == ("mlp", "fp16", 4, 4096)
    assert [family.role for family in families(rows, "gelu")] == ["mlp_up"]


def test_models_without_dense_layers_have_nothing_to_look_up() -> None:
    evidence = seen(Case(model=MIXTRAL, tp=8))
    assert evidence.notes == ("results=RUN has nothing of this model at tp=8",)


def test_a_gelu_models_d_ff_has_gains_too() -> None:
    rows = [entry | {"role": "mlp_up", "h": 2560} for entry in (row(10240, 2, 1.1), row(10752, 1, 1.0))]
    model = replace(GPT_3_2_7B, d_ff=10240)
    case = look_up(Case(model=model, tp=3), rows, "RUN").case
    assert case.family("d_ff") is None  # of another tp
    case = look_up(Case(model=model, tp=8), rows, "RUN").case
    family = case.family("d_ff")
    assert family is not None
    gain = family.gain(model, replace(model, d_ff=10752))
    assert gain is not None
    assert gain.percent == pytest.approx(10.0)
    assert family.gain(model, replace(model, d_ff=1)) is None


def test_gpt_3_2_7bs_heads_are_answered_with_a_number_where_they_were_measured() -> None:
    def attention(a: int, rank: int, relative: float) -> dict[str, Any]:
        sizes = {"role": "attn", "axis": "a", "a": a, "kv": a, "head_dim": 2560 // a, "h": 2560, "d_ff": None}
        return row(0, rank, relative, tp=1) | sizes

    rows = [attention(20, 1, 1.0), attention(40, 2, 1.1), attention(32, 3, 1.25)]
    finding = found(look_up(Case(model=GPT_3_2_7B), rows, "RUN").case, "head_dim")
    gains = {(s.dimension, s.value): s.gain for s in finding.suggestions if s.dimension == "a"}
    assert {key: gain and round(gain.percent, 1) for key, gain in gains.items()} == {("a", 40): 13.6, ("a", 20): 25.0}
    grouped = replace(GPT_3_2_7B, kv=8)  # these were measured with as many key/value heads as heads
    finding = found(look_up(Case(model=grouped), rows, "RUN").case, "head_dim")
    assert {s.gain for s in finding.suggestions} == {None}


def test_an_expert_is_looked_up_among_experts() -> None:
    sizes = {"role": "experts", "axis": "d_ff", "experts": 8, "topk": 2, "ep": 1}
    rows = [row(14336, 2, 1.02, **sizes), row(14848, 1, 1.0, **sizes)]
    family = look_up(Case(model=MIXTRAL, tp=8), rows, "RUN").case.family("expert_d_ff")
    assert family is not None
    gain = family.gain(MIXTRAL, replace(MIXTRAL, expert_d_ff=14848))
    assert gain is not None
    assert gain.percent == pytest.approx(2.0)
    split = [entry | {"ep": 2} for entry in rows]
    assert look_up(Case(model=MIXTRAL, tp=8), split, "RUN").case.families == ()


def test_backward_passes_are_left_out() -> None:
    assert families([entry | {"passes": "bwd"} for entry in BY_HAND], "swiglu") == ()
    assert len(families([entry | {"passes": "fwd"} for entry in BY_HAND], "swiglu")) == 1
