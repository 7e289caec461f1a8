"""The rules of ``check``: verdicts and suggestions worked out by hand."""

from dataclasses import replace

import pytest

from orchestrator.check import RULES, check
from orchestrator.check_case import Case
from orchestrator.check_finding import FAIL, PASS, SKIP, WARN
from orchestrator.check_memory import largest_batch, sequence_bytes, static_bytes
from orchestrator.check_parameters import parameters, shard
from orchestrator.model import Model
from orchestrator.reshape import reshaped
from orchestrator.shape import padded_vocabulary
from tests.shapes import GPT_3_2_7B, LLAMA_2_7B, LLAMA_3_8B, MIXTRAL, found, offers, on


def test_llama_2_7b_at_tp_8_is_told_about_1376() -> None:
    finding = found(Case(model=LLAMA_2_7B, tp=8, s=4096), "d_ff")
    assert (finding.status, finding.value) == (WARN, 1376)
    assert "d_ff/tp = 1376, whose largest power of two is 32 (64 bytes in fp16)" in finding.reason
    # 11008 lies between 21 and 22 times 8·64; 256 columns of three h x d_ff matrices in 32 layers
    below, above, tp = finding.suggestions
    cost = 256 * 3 * 4096 * 32
    assert (below.dimension, below.value, below.parameters) == ("d_ff", 10752, -cost)
    assert (above.dimension, above.value, above.parameters) == ("d_ff", 11264, cost)
    assert above.percent == pytest.approx(100 * 100_663_296 / 6_738_415_616)
    assert (tp.dimension, tp.value, tp.parameters) == ("tp", 4, 0)  # 11008/4 = 2752 = 64·43


def test_at_tp_16_it_is_688_of_16() -> None:
    finding = found(Case(model=LLAMA_2_7B, tp=16), "d_ff")
    assert (finding.status, finding.value) == (WARN, 688)
    assert "largest power of two is 16 (32 bytes" in finding.reason


def test_an_aligned_model_passes_every_rule_that_needs_no_gpu() -> None:
    model = replace(LLAMA_3_8B, d_ff=10752)
    findings = check(Case(model=model, tp=2))
    assert {finding.status for finding in findings if finding.rule not in ("microbatch", "tensor_parallel")} == {PASS}
    assert all(not finding.suggestions for finding in findings)


@pytest.mark.parametrize(
    ("v", "tp", "status", "value", "offered"),
    [
        (32000, 1, PASS, 32000, []),
        (32000, 4, PASS, 8000, []),
        (32000, 8, WARN, 4000, [("v", 32256)]),  # 4000 = 32·125; 32256 = 63·512
        (128256, 8, WARN, 16032, [("v", 128512)]),  # 251·512
        (50257, 1, FAIL, 50257, [("v", 50304)]),  # 786·64
        (50304, 2, PASS, 25152, []),  # 64·393
        (32000, 3, FAIL, 32000 / 3, [("v", 32064)]),  # 167·192
    ],
)
def test_the_vocabulary(v: int, tp: int, status: str, value: float, offered: list[tuple[str, int]]) -> None:
    finding = found(Case(model=replace(LLAMA_2_7B, v=v), tp=tp), "vocabulary")
    assert (finding.status, finding.value, offers(finding)) == (status, value, offered)


def test_the_padded_vocabulary_and_its_cost_are_told() -> None:
    assert padded_vocabulary(32000, 8) == 32768
    # 768 rows of the embedding and 768 of the output layer
    assert "Megatron pads to 32768" in found(Case(model=LLAMA_2_7B, tp=8), "vocabulary").reason
    assert f"{768 * 4096 * 2:+,} parameters" in found(Case(model=LLAMA_2_7B, tp=8), "vocabulary").reason
    tied = replace(LLAMA_2_7B, tied=True)
    assert f"{768 * 4096:+,} parameters" in found(Case(model=tied, tp=8), "vocabulary").reason


@pytest.mark.parametrize(
    ("b", "s", "status", "offered"),
    [
        (4, 2048, PASS, []),
        (1, 2000, WARN, [("b", 4), ("s", 1984), ("s", 2048)]),  # 2000 = 16·125
        (3, 2047, WARN, [("b", 64), ("s", 1984), ("s", 2048)]),
        (1, 64, PASS, []),
        (1, 32, WARN, [("b", 2), ("s", 64)]),
    ],
)
def test_tokens(b: int, s: int, status: str, offered: list[tuple[str, int]]) -> None:
    finding = found(Case(model=LLAMA_2_7B, b=b, s=s), "tokens")
    assert (finding.status, finding.value) == (status, b * s)
    assert sorted(offers(finding)) == sorted(offered)


def test_gpt_3_2_7bs_heads_of_80_become_64_or_128_without_a_parameter() -> None:
    finding = found(Case(model=GPT_3_2_7B), "head_dim")
    assert (finding.status, finding.value) == (WARN, 80)
    by_heads = [s for s in finding.suggestions if s.dimension == "a"]
    assert [(s.value, s.parameters) for s in by_heads] == [(40, 0), (20, 0)]
    assert reshaped(GPT_3_2_7B, {"a": 40}).head_dim == 64
    assert (
        "runs head_dim 80 as 96: 17% of the work is padding" in found(Case(model=GPT_3_2_7B), "attention_kernel").reason
    )


def test_a_head_that_is_not_h_over_a_changes_by_itself() -> None:
    model = replace(LLAMA_3_8B, head_dim=80)
    assert offers(found(Case(model=model), "head_dim")) == [("head_dim", 64), ("head_dim", 128)]


@pytest.mark.parametrize(
    ("dtype", "gpu", "d_ff", "status"),
    [
        ("fp16", None, 4096 + 64, PASS),
        ("fp16", None, 4096 + 32, WARN),
        ("fp16", None, 4096 + 4, FAIL),
        ("fp16", "v100-sxm2-32", 4096 + 8, PASS),  # gains end at 16 bytes there
        ("fp16", "v100-sxm2-32", 4096 + 4, FAIL),
        ("fp32", None, 4096 + 32, PASS),
        ("tf32", None, 4096 + 4, WARN),
        ("tf32", None, 4096 + 2, FAIL),
    ],
)
def test_alignment_is_of_bytes(dtype: str, gpu: str | None, d_ff: int, status: str) -> None:
    case = Case(model=replace(LLAMA_2_7B, d_ff=d_ff, layers=1), dtype=dtype)
    assert found(on(case, gpu) if gpu else case, "d_ff").status == status


@pytest.mark.parametrize(
    ("kv", "tp", "status", "offered"),
    [
        (8, 8, PASS, []),
        (8, 16, WARN, [("tp", 8), ("kv", 16)]),
        (4, 8, WARN, [("tp", 4), ("kv", 8)]),
        (8, 4, PASS, []),
        (1, 8, WARN, [("tp", 1), ("kv", 8)]),
    ],
)
def test_key_value_heads(kv: int, tp: int, status: str, offered: list[tuple[str, int]]) -> None:
    finding = found(Case(model=replace(LLAMA_3_8B, kv=kv), tp=tp), "kv_heads")
    assert (finding.status, offers(finding)) == (status, offered)


def test_heads_that_can_be_neither_split_nor_replicated_fail() -> None:
    model = Model(name="x", h=6144, layers=2, a=48, kv=6, head_dim=128, d_ff=16384, v=32768)
    finding = found(Case(model=model, tp=4), "kv_heads")
    assert (finding.status, finding.value) == (FAIL, 1.5)
    assert ("tp", 3) not in offers(finding)  # v and d_ff would be worse
    assert ("tp", 2) in offers(finding)


def test_what_tp_does_not_divide_fails_and_says_which_tp_does() -> None:
    case = Case(model=GPT_3_2_7B, tp=3)
    assert (found(case, "heads").status, found(case, "heads").value) == (FAIL, 32 / 3)
    assert offers(found(case, "heads")) == [("tp", 2), ("tp", 4)]
    assert (found(case, "attention_batch").status, found(case, "attention_batch").value) == (FAIL, 4 * 32 / 3)
    assert offers(found(case, "attention_batch"))[:2] == [("b", 3), ("b", 6)]
    assert found(case, "hidden").status == FAIL
    assert found(case, "d_ff").status == FAIL


def test_the_attention_batch_is_exact() -> None:
    finding = found(Case(model=LLAMA_2_7B, tp=8, b=3), "attention_batch")
    assert (finding.status, finding.value) == (PASS, 12)


def test_swiglu_is_not_asked_of_gelu_or_of_experts() -> None:
    assert found(Case(model=GPT_3_2_7B), "swiglu").status == SKIP
    assert found(Case(model=MIXTRAL), "swiglu").status == SKIP
    finding = found(Case(model=LLAMA_3_8B), "swiglu")
    assert finding.status == PASS
    assert "31.2% above 8h/3 = 10922.7" in finding.reason  # 14336·3/(8·4096) = 1.3125


def test_experts() -> None:
    rules = {finding.rule for finding in check(Case(model=MIXTRAL))}
    assert {"expert_d_ff", "expert_tokens"} <= rules
    assert not {"d_ff", "shared_d_ff"} & rules
    assert found(Case(model=MIXTRAL, b=4, s=2048), "expert_tokens").value == 2048  # 8192·2/8
    decode = found(Case(model=MIXTRAL, b=4, s=2048, training=False), "expert_tokens")
    assert (decode.status, decode.value, offers(decode)) == (WARN, 1, [("b", 256)])  # 256·2/8 = 64
    shared = found(Case(model=replace(MIXTRAL, shared_d_ff=1000), tp=2), "shared_d_ff")
    assert (shared.status, shared.value) == (FAIL, 500)  # a multiple of 4
    assert offers(shared)[:2] == [("shared_d_ff", 1024), ("shared_d_ff", 896)]


def test_parameters_are_the_published_counts() -> None:
    assert parameters(LLAMA_2_7B) == 6_738_415_616
    assert parameters(LLAMA_3_8B) == 8_030_261_248
    assert parameters(MIXTRAL) == 46_702_792_704
    h, layers, v, s = 2560, 32, 50257, 2048  # 12h²L + 13hL + (v+s)h, and the last norm
    assert parameters(GPT_3_2_7B) == 12 * h * h * layers + 13 * h * layers + (v + s) * h + 2 * h


def test_a_rank_holds_its_share() -> None:
    part = shard(LLAMA_3_8B, 16)
    assert (part.a, part.kv, part.d_ff, part.v) == (2, 1, 896, 8016)  # a key/value head on two ranks


def test_memory_for_training_by_hand() -> None:
    model = Model(name="x", h=256, layers=2, a=4, kv=2, head_dim=64, d_ff=512, v=1024)
    case = Case(model=model, tp=2, s=128)
    # attention (2+2·1)·64·256 + 2·64·256, MLP 3·256·256, norms 2·256, a layer; embeddings 2·512·256; last norm
    weights = 2 * (4 * 64 * 256 + 2 * 64 * 256 + 3 * 256 * 256 + 512) + 2 * 512 * 256 + 256
    assert static_bytes(case) == 16 * weights
    # norms and block inputs 4·256; q and the output's input 2·2·64; k and v 2·64; gate, up, product 3·256; two layers
    elements = 2 * (4 * 256 + 2 * 2 * 64 + 2 * 64 + 3 * 256)
    assert sequence_bytes(case) == 128 * (elements * 2 + 512 * (2 + 4))


def test_what_experts_keep_for_the_backward_pass_by_hand() -> None:
    model = Model(
        name="x", h=256, layers=3, a=4, kv=2, head_dim=64, d_ff=512, v=512, dense_layers=1,
        experts=8, topk=2, expert_d_ff=128, shared_d_ff=64,
    )  # fmt: skip
    # every layer: 4·256, q and the output's input 2·256, k and v 2·128; the dense one: gate, up, product 3·512; the two
    # others: for each of 2 experts its input of 256 and 3·128, and 3·64 of the shared ones
    elements = 3 * (4 * 256 + 2 * 256 + 2 * 128) + 3 * 512 + 2 * (2 * (256 + 3 * 128) + 3 * 64)
    assert sequence_bytes(Case(model=model, s=128)) == 128 * (elements * 2 + 512 * (2 + 4))


def test_memory_for_inference_by_hand() -> None:
    case = on(Case(model=LLAMA_2_7B, b=1, s=4096, training=False), "a100-sxm-80")
    assert case.gpu is not None
    assert sequence_bytes(case) == 2 * 32 * 32 * 128 * 2 * 4096  # 2 GiB of keys and values
    assert static_bytes(case) == 2 * 6_738_415_616
    assert largest_batch(case, case.gpu) == 27  # (72e9 - 13.48e9) / 2 GiB = 27.25


def test_the_microbatch_against_the_memory() -> None:
    case = on(Case(model=LLAMA_2_7B, s=4096, training=False), "a100-sxm-80")
    for b, status, offered in (
        (4, WARN, [("b", 16)]),
        (16, PASS, []),
        (27, PASS, []),
        (28, FAIL, [("b", 27)]),  # at tp=2 28 would be few
    ):
        finding = found(replace(case, b=b), "microbatch")
        assert (finding.status, finding.value) == (status, 27)
        assert offers(finding) == offered


def test_the_smallest_tp() -> None:
    case = on(Case(model=LLAMA_2_7B, b=1, s=2048), "a100-sxm-80")
    fails = found(case, "tensor_parallel")  # 107.8 GB of 72
    assert (fails.status, fails.value, offers(fails)) == (FAIL, 2, [("tp", 2)])
    assert "at 16 bytes a parameter: 107.8 GB a rank at tp=1 of 72.0 GB" in fails.reason
    assert found(replace(case, tp=2), "tensor_parallel").status == PASS
    assert found(replace(case, tp=4), "tensor_parallel").status == WARN


def test_a_kv_cache_that_does_not_fit_may_be_made_smaller() -> None:
    case = on(Case(model=LLAMA_2_7B, b=28, s=4096, training=False), "a100-sxm-80")
    finding = found(case, "tensor_parallel")
    assert (finding.status, finding.value) == (FAIL, 2)
    assert offers(finding) == [("tp", 2), ("b", 27)]


def test_a_model_that_no_tp_can_hold() -> None:
    huge = Model(name="x", h=16384, layers=500, a=128, kv=8, head_dim=128, d_ff=65536, v=131072)
    finding = found(on(Case(model=huge, tp=8), "l4"), "tensor_parallel")
    assert (finding.status, finding.value, finding.suggestions) == (FAIL, None, ())
    assert "no tp that splits the model evenly is enough" in finding.reason


def test_the_smallest_tp_is_one_by_which_the_model_can_be_split() -> None:
    # Mistral-Large's shape: 122.6e9 parameters, 245 GB in 127: tp 3 would do, but divides neither kv nor d_ff
    large = Model(name="x", h=12288, layers=88, a=96, kv=8, head_dim=128, d_ff=28672, v=32768)
    case = on(Case(model=large, tp=4, b=4, s=8192, training=False), "h200")
    assert (found(case, "tensor_parallel").status, found(case, "tensor_parallel").value) == (PASS, 4)
    # 11.8e9 parameters · 16 bytes on 43.2 GB: 5 of 40 heads would do, but v=50688 is 64·792, which 5 does not divide
    pythia = Model(name="y", h=5120, layers=36, a=40, kv=40, head_dim=128, d_ff=20480, v=50688, mlp="gelu")
    assert found(on(Case(model=pythia, tp=8), "l40s"), "tensor_parallel").value == 8
    assert found(on(Case(model=replace(pythia, v=50257), tp=8), "l40s"), "tensor_parallel").value == 5  # padded


@pytest.mark.parametrize(
    ("model", "value"),
    [
        (MIXTRAL, 2),
        (replace(MIXTRAL, expert_d_ff=14335), None),
        (replace(MIXTRAL, shared_d_ff=7), None),
        (replace(MIXTRAL, d_ff=14335), 2),
    ],
)
def test_experts_are_split_too_and_a_dense_mlp_only_where_there_is_one(model: Model, value: int | None) -> None:
    case = on(Case(model=model, training=False, b=1), "h100-sxm")  # 93.4 GB in 72
    assert found(case, "tensor_parallel").value == value


def test_without_a_gpu_the_rules_of_memory_say_so() -> None:
    for rule in ("microbatch", "tensor_parallel"):
        finding = found(Case(model=LLAMA_2_7B), rule)
        assert (finding.status, finding.value, finding.suggestions) == (SKIP, None, ())
        assert "gpu=" in finding.reason


def test_the_six_rules_come_first_and_names_differ() -> None:
    numbers = [rule.number for rule in RULES]
    assert numbers == sorted(numbers, key=lambda number: (number == "+", number))
    assert set(numbers) == {"1", "2", "3", "4", "5", "6", "+"}
    assert len({rule.name for rule in RULES}) == len(RULES)
