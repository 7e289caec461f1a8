"""The verb ``capacity``: a layer of Llama-3-70B worked out by hand, sums, targets, and runs that its own sweep made."""

import math
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.capacity_amount import PerGpu
from orchestrator.capacity_figure import Source
from orchestrator.capacity_layout import Layout
from orchestrator.capacity_links import link_gb_s
from orchestrator.capacity_work import Work
from orchestrator.catalogue import load
from orchestrator.compare_side import Shape as MeasuredShape
from orchestrator.compare_side import Side, Timing
from orchestrator.config import compose
from orchestrator.models import load_model
from orchestrator.shape import Shape
from orchestrator.space import expand_space
from tasks.gemm import Gemm
from tests.builders import DEVICE, Cost
from tests.commands import called, document
from tests.test_compare import H100_DEVICE, run

DATA = Path(__file__).parent / "data" / "llama-3-70b"
H100, H200 = (str(DATA / name) for name in ("h100_sxm", "h200_sxm"))
TABLES = f"results={H100},{H200}"
LLAMA = ("model=llama-3-70b", "tp=8", "b=4", "s=2048", "dtype=bf16")
MS = 1e-3


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    return called(capsys, "capacity", *words)


def found(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, Any]:
    return document(capsys, "capacity", *words)


def between(at: int, low: tuple[int, float], high: tuple[int, float]) -> float:
    """The power law through two points."""
    exponent = math.log(high[1] / low[1]) / math.log(high[0] / low[0])
    return low[1] * math.pow(at / low[0], exponent)


def swept(path: Path, message: str, cost: Cost, monkeypatch: pytest.MonkeyPatch) -> str:
    """The runs, as ``results=`` takes them, of what the sweeps in an error message measure."""
    lines = [line.strip() for line in message.splitlines() if "python -m orchestrator" in line]
    assert lines
    wanted = [_families(line.removeprefix("python -m orchestrator "), monkeypatch) for line in lines]
    return ",".join(run(path / f"run{i}", *families, cost=cost) for i, families in enumerate(wanted))


# Llama-3-70B: h 8192, 64 heads of 128, 8 key/value heads, d_ff 28672, v 128256, 80 layers; tp 8, 8192 tokens. A rank
# has qkv n = (8 + 2·1)·128 = 1280, attn_out k = 1024, gate_up n = 2·3584 = 7168, down k = 3584; the vocabulary is
# padded to 126·1024 = 129024, 16128 a rank. The milliseconds are rows of the tables.


def test_a_layer_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, *LLAMA, TABLES)
    h100, h200 = document["sides"]
    assert [h100["catalogue"], h200["catalogue"]] == ["h100-sxm", "h200"]
    by_hand = {
        "h100-sxm": (
            between(1280, (1024, 0.159642669889662), (1536, 0.25670933723449707)),
            0.19278489218817818,
            1.0440195931328666,
            1.1342764960394967,
        ),
        "h200": (
            between(1280, (1024, 0.17437156041463217), (1536, 0.2701102097829183)),
            0.19779911306169298,
            1.3785342110527887,
            0.6396737628512913,
        ),
    }
    for side in (h100, h200):
        layer, output = side["blocks"]
        names = [each["name"] for each in layer["gemms"]]
        assert names == ["qkv", "attn_out", "mlp_gate_up", "mlp_down"]
        parts = [each["seconds"] for each in layer["gemms"]]
        assert parts == pytest.approx([ms * MS for ms in by_hand[side["catalogue"]]])
        assert [each["interpolated"] for each in layer["gemms"]] == [{"n": [1024, 1536]}, None, None, None]
        assert layer["times"] == 80
        assert layer["seconds"] == pytest.approx(sum(by_hand[side["catalogue"]]) * MS)
        (logits,) = output["gemms"]
        assert [logits[name] for name in "mnk"] == [4, 16128, 8192]  # the last token of each sequence
    low, high = (12288, 0.0676177806324429), (16384, 0.0888062251938714)
    assert h100["blocks"][1]["seconds"] == pytest.approx(between(16128, low, high) * MS)


def test_what_follows_from_a_layer_by_hand(capsys: pytest.CaptureFixture[str]) -> None:
    side = found(capsys, *LLAMA, TABLES, "intra_node_gb_s=450")["sides"][0]
    layer, output = (block["seconds"] for block in side["blocks"])
    step = 80 * layer + output
    assert side["step_s"] == pytest.approx(step)
    assert side["stage_s"] == pytest.approx(step)
    # a rank: 2·8192·8192·(1280 + 1024 + 7168 + 3584) FLOPs a layer, and 2·4·16128·8192 for the logits
    flops = 80 * 2 * 8192 * 8192 * 13056 + 2 * 4 * 16128 * 8192
    assert side["tflops"] == pytest.approx(flops / step / 1e12)
    assert side["peak_share"] == pytest.approx(flops / step / 989e12)
    assert side["tokens_per_gpu_s"] == pytest.approx(8192 / step / 8)
    # 8192 tokens of 8192 elements of 2 bytes; 2·7/8 of them at 450 GB/s, twice a layer
    reduce = 2 * 1.75 * 8192 * 8192 * 2 / 450e9
    assert side["all_reduce_estimate"]["per_layer"] == 2
    assert side["all_reduce_estimate"]["layer_s"] == pytest.approx(reduce)
    assert side["all_reduce_estimate"]["step_s"] == pytest.approx(80 * reduce)
    assert side["all_reduce_estimate"]["tokens_per_gpu_s"] == pytest.approx(8192 / (step + 80 * reduce) / 8)


@pytest.mark.parametrize("words", [["mode=prefill"], ["mode=training"], ["mode=training", "pp=4"], ["mode=decode"]])
def test_the_total_is_the_sum_of_its_parts(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    for side in found(capsys, *LLAMA, TABLES, *words)["sides"]:
        parts = [block["times"] * each["seconds"] for block in side["blocks"] for each in block["gemms"]]
        assert side["step_s"] == pytest.approx(sum(parts))


def test_training_adds_two_gradients_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    side = found(capsys, *LLAMA, TABLES, "mode=training", "intra_node_gb_s=450")["sides"][1]
    layer, output = ({each["name"]: each for each in block["gemms"]} for block in side["blocks"])
    assert len(layer) == 12
    sizes = {name: [each[size] for size in "mnk"] for name, each in {**layer, **output}.items()}
    assert sizes["mlp_down.dgrad"] == [8192, 3584, 8192]
    assert sizes["mlp_down.wgrad"] == [8192, 3584, 8192]
    assert sizes["qkv.wgrad"] == [1280, 8192, 8192]
    assert sizes["logits"] == [8192, 16128, 8192]  # all tokens
    # 16128 is more rows than the table has, but the transposed product is there: n between 12288 and 16384
    assert sizes["logits.wgrad"] == [16128, 8192, 8192]
    assert output["logits.wgrad"]["m_n_swapped"]
    assert output["logits.wgrad"]["seconds"] == output["logits"]["seconds"]
    assert side["all_reduce_estimate"]["per_layer"] == 4


def test_in_decode_a_step_is_one_token_of_each_sequence(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, *LLAMA, TABLES, "mode=decode")
    assert document["tokens_per_step"] == 4
    side = document["sides"][0]
    assert {each["m"] for block in side["blocks"] for each in block["gemms"]} == {4}
    assert side["tokens_per_gpu_s"] == pytest.approx(4 / side["step_s"] / 8)


def test_the_slowest_stage_sets_the_pace(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = (found(capsys, *LLAMA, TABLES, f"pp={pp}", "dp=2") for pp in (1, 4))
    layer, output = (block["seconds"] for block in four["sides"][0]["blocks"])
    assert four["sides"][0]["stage_s"] == pytest.approx(20 * layer + output)
    assert four["sides"][0]["step_s"] == one["sides"][0]["step_s"]
    assert four["sides"][0]["tokens_per_gpu_s"] == pytest.approx(8192 / (20 * layer + output) / 32)
    assert (one["gpus"], four["gpus"]) == (16, 64)
    # 80 layers in 3 stages: 27, 27, 26 and the output layer, which takes less than a layer
    three = found(capsys, *LLAMA, TABLES, "pp=3", "intra_node_gb_s=450")["sides"][0]
    assert output < layer
    assert three["stage_s"] == pytest.approx(27 * layer)
    reduce = three["all_reduce_estimate"]
    assert reduce["tokens_per_gpu_s"] == pytest.approx(8192 / (27 * (layer + reduce["layer_s"])) / 24)


# Targets


def test_gpus_for_tokens_a_second_and_their_cost(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tokens_per_s=1e6", "price_per_gpu_hour=h100:2.5,h200:3.5")
    h100, h200 = found(capsys, *LLAMA, TABLES, *words)["sides"]
    # a replica of 8 GPUs takes 8192 tokens in 206.36 ms, 39,697 a second: 25.2, so 26 replicas; H200: 41,990, 23.8
    assert (h100["needed"]["replicas"], h100["needed"]["gpus"]) == (26, 208)
    assert (h200["needed"]["replicas"], h200["needed"]["gpus"]) == (24, 192)
    assert (h100["needed"]["cost"], h200["needed"]["cost"]) == (208 * 2.5, 192 * 3.5)
    assert (h100["needed"]["gpu_hours"], h100["needed"]["days"]) == (208, None)
    # 4,962 tokens a second and GPU are 17.86 million an hour
    assert h100["cost_per_million_tokens"] == pytest.approx(2.5 / (8192 / h100["step_s"] / 8 * 3600 / 1e6))


def test_gpus_for_tokens_in_days(capsys: pytest.CaptureFixture[str]) -> None:
    side = found(capsys, *LLAMA, TABLES, "tokens=15e12", "days=30", "price_per_gpu_hour=2")["sides"][0]
    # 15e12 tokens in 2,592,000 s are 5.787 million a second, 145.8 replicas of 39,697
    assert side["needed"]["gpus"] == 146 * 8
    hours = 15e12 / (8192 / side["step_s"] / 8) / 3600
    assert side["needed"]["gpu_hours"] == pytest.approx(hours)
    assert side["needed"]["cost"] == pytest.approx(2 * hours)
    assert side["needed"]["days"] == pytest.approx(hours / (146 * 8) / 24)
    assert 29 < side["needed"]["days"] <= 30


def test_nothing_is_invented_where_nothing_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, *LLAMA, TABLES, "price_per_gpu_hour=h200:3")
    assert [side["needed"] for side in document["sides"]] == [None, None]
    assert document["sides"][0]["cost_per_million_tokens"] is None
    assert document["sides"][1]["cost_per_million_tokens"] > 0
    assert document["target"] is None


def test_links_are_the_catalogues_where_none_are_given(capsys: pytest.CaptureFixture[str]) -> None:
    """450 GB/s one direction by the data sheets of both; what is given replaces that of one."""
    known, given = (
        found(capsys, *LLAMA, TABLES, *words)["sides"] for words in ((), ("intra_node_gb_s=h100:225,h200:450",))
    )
    assert [side["all_reduce_estimate"]["intra_node_gb_s"] for side in known] == [450, 450]
    assert [side["all_reduce_estimate"]["intra_node_gb_s"] for side in given] == [225, 450]
    _, out, _ = call(capsys, *LLAMA, TABLES, "intra_node_gb_s=h100:225")
    assert "A 225 (given); B 450 (its data sheet)." in " ".join(out.split())


def test_where_no_link_is_known_nothing_is_estimated() -> None:
    spec = load()["mi250x"]
    assert link_gb_s(PerGpu(by_name={}), spec) is None
    assert link_gb_s(PerGpu(by_name={}), None) is None
    assert link_gb_s(PerGpu(by_name={"mi250x": 100.0}), spec) == 100.0


# How far to believe it


def test_the_error_is_measured_on_the_same_table(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, *LLAMA, TABLES)
    text = " ".join(out.split())
    error, few, many = found(capsys, *LLAMA, TABLES)["sides"][1]["interpolation"]
    assert [(each["axes"], each["dtype"]) for each in (error, few, many)] == 3 * [(["n"], "bf16")]
    assert [each["near_m"] for each in (error, few, many)] == [None, 4, 8192]
    # 5 m and 11 k, each with the 9 inner ones of 11 n, whose neighbours are at most 4 times apart
    assert error["shapes"] == 5 * 11 * 9
    assert f"misses what was measured by {error['median']:.1%} (median) and {error['p90']:.1%} (p90)" in text
    assert 0 < error["median"] < 0.05
    # m 4 alone is near 4; 2048, 4096 and 8192 are near 8192
    assert (few["shapes"], many["shapes"]) == (11 * 9, 3 * 11 * 9)
    assert "of 99 bf16 shapes with m within 4 times of 4." in text


def test_a_row_that_its_neighbours_contradict_is_marked(capsys: pytest.CaptureFixture[str]) -> None:
    h100, h200 = found(capsys, *LLAMA, TABLES)["sides"]
    doubtful = {each["name"]: each["departure"] for each in h100["blocks"][0]["gemms"] if each["departure"]}
    # 8192 x 8192 x 3584 runs at 424 TFLOP/s, and takes longer than k 3072 and k 4096
    along_k = between(3584, (3072, 0.9393146302964953), (4096, 0.6563084390428331))
    assert doubtful == {"mlp_down": pytest.approx(1.1342764960394967 / along_k)}
    assert not any(each["departure"] for each in h200["blocks"][0]["gemms"])
    _, out, _ = call(capsys, *LLAMA, TABLES)
    assert "!1134.3" in out
    assert "A: ! mlp_down takes 1.5 times what its measured neighbours give" in " ".join(out.split())


def test_only_a_table_may_have_a_weights_gradient_the_other_way_round() -> None:
    gemm = Gemm(kind="mm", b=1, m=1024, n=2048, k=512, dtype="bf16", layout="tn")
    work = Work(name="qkv.wgrad", role="qkv", shape=Shape(tp=1, batch=1, dtype="bf16"), gemm=gemm)
    turned = MeasuredShape("mm", 1, 2048, 1024, 512, "bf16", None)
    parts: dict[str, Any] = {"name": "x", "path": "x", "gpu": "h200", "spec": None, "environment": {}}
    table = Side(timings={turned: Timing(seconds=1.0)}, **parts)
    measured = {turned._replace(layout="tn"): Timing(seconds=1.0)}  # a tn of another shape is another Gemm
    found = Source.of(table).figure(work)
    assert found is not None
    assert found.turned
    assert Source.of(Side(timings=measured, protocol={}, **parts)).figure(work) is None


def test_pipeline_stages_share_the_weights() -> None:
    layout = Layout(model=load_model("llama-3-70b"), tp=2, pp=4, dp=3)
    assert layout.weight_gb == pytest.approx(2 * 70_553_706_496 / 8 / 1e9)  # bf16; replicas hold them all


def test_tables_have_no_attention(capsys: pytest.CaptureFixture[str]) -> None:
    document = found(capsys, *LLAMA, TABLES)
    assert document["left_out"] == ["attn_over_value", "attn_score"]
    _, out, _ = call(capsys, *LLAMA, TABLES)
    assert "The attention GEMMs are left out of all sums" in out


# Runs: measured by the sweeps that the error names


def test_the_sweeps_of_the_message_fill_the_gap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("model=llama-3-8b", "tp=2", "b=2", "s=512", "mode=training")
    seed = run(tmp_path / "other", *_families("space.roles=mlp_up space.d_ff=256 space.h=64", monkeypatch), cost=_cost)
    code, out, err = call(capsys, *words, f"results={seed}")
    assert (code, out) == (2, "")
    path = swept(tmp_path / "swept", err, _cost, monkeypatch)
    document = found(capsys, *words, f"results={path}")
    (side,) = document["sides"]
    assert side["imported"] is False
    assert side["protocol"]["l2"] == "rotate"
    assert all(each["interpolated"] is None for block in side["blocks"] for each in block["gemms"])
    assert side["tflops"] == pytest.approx(100)  # every Gemm runs at 100 TFLOP/s


FP8 = f"results={Path(__file__).parents[1] / 'results' / 'examples' / 'h200-fp8'}"


@pytest.mark.parametrize(
    ("words", "reasons", "roles"),
    [
        (
            ("model=llama-3-8b", "mode=training"),
            {
                "qkv.dgrad, attn_out.dgrad, mlp_gate_up.dgrad, mlp_down.dgrad, logits.dgrad": "needs layout nt",
                "qkv.wgrad, attn_out.wgrad, mlp_gate_up.wgrad, mlp_down.wgrad, logits.wgrad": "needs layout nt",
            },
            ["qkv,attn_out,mlp_down"],  # gate_up, logits: between measured ones
        ),
        (
            ("model=mixtral-8x7b",),
            {"router": "multiples of 16, not n=8", "expert_gate_up, expert_down": "no batched product in fp8"},
            ["qkv,attn_out", "logits"],
        ),
    ],
)
def test_no_sweep_is_proposed_for_what_the_gpu_cannot_multiply(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], reasons: dict[str, str], roles: list[str]
) -> None:
    code, _, err = call(capsys, *words, "tp=8", "dtype=fp8", FP8)
    assert code == 2
    told = dict(
        line.removeprefix("no sweep can measure ").split(": ", 1) for line in err.splitlines() if "no sw" in line
    )
    assert list(told) == list(reasons)
    assert all(reason in told[names] for names, reason in reasons.items())
    assert "without them there is no plan in fp8 on h200: give another dtype=" in err
    sweeps = [line for line in err.splitlines() if "python -m orchestrator" in line]
    assert [part.removeprefix("space.roles=") for line in sweeps for part in line.split() if "roles" in part] == roles
    assert "space.pass" not in err


def test_a_run_that_has_attention_counts_it_unless_another_side_lacks_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = "space.h=8192 space.a=64 space.kv=8 space.d_ff=28672 space.tp=8 space.batch=4 space.seq=2048"
    roles = "qkv,attn_score,attn_over_value,attn_out,mlp_gate_up,mlp_down"
    families = [
        *_families(f"space.roles={roles} {layer} space.dtype=bf16", monkeypatch),
        *_families(
            "space.roles=logits space.h=8192 space.v=128256 space.tp=8 space.batch=4 space.seq=1 space.dtype=bf16",
            monkeypatch,
        ),
    ]
    path = run(tmp_path / "run", *families, cost=_cost, device=H100_DEVICE)
    alone = found(capsys, *LLAMA, f"results={path}")
    assert alone["left_out"] == []
    gemms = {each["name"]: each for each in alone["sides"][0]["blocks"][0]["gemms"]}
    assert [gemms["attn_score"][size] for size in "bmnk"] == [32, 2048, 2048, 128]
    _, out, _ = call(capsys, *LLAMA, f"results={path}")
    assert "as without FlashAttention" in " ".join(out.split())
    both = found(capsys, *LLAMA, f"results={path},{H200}")
    assert [len(side["blocks"][0]["gemms"]) for side in both["sides"]] == [4, 4]
    assert both["left_out"] == ["attn_over_value", "attn_score"]


def test_experts_and_dense_layers_are_blocks_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = (
        "h=1024",
        "a=8",
        "v=32000",
        "layers=6",
        "d_ff=4096",
        "experts=8",
        "topk=2",
        "expert_d_ff=512",
        "shared_d_ff=256",
        "dense_layers=2",
        "tp=2",
        "b=1",
        "s=512",
        "pp=3",
    )
    seed = run(tmp_path / "other", *_families("space.roles=mlp_up space.d_ff=256 space.h=64", monkeypatch), cost=_cost)
    _, _, err = call(capsys, *words, f"results={seed}")
    path = swept(tmp_path / "swept", err, _cost, monkeypatch)
    (side,) = found(capsys, *words, f"results={path}")["sides"]
    dense, experts, output = side["blocks"]
    assert [(each["name"], each["times"]) for each in side["blocks"]] == [
        ("dense layer", 2),
        ("layer", 4),
        ("output", 1),
    ]
    names = [each["name"] for each in experts["gemms"]]
    assert names == ["qkv", "attn_out", "router", "expert_gate_up", "expert_down", "shared_gate_up", "shared_down"]
    gate_up = experts["gemms"][3]
    assert [gate_up[size] for size in "bmnk"] == [8, 512 * 2 // 8, 2 * 256, 1024]
    # stages: two dense layers; two with experts; two with experts and the output
    assert side["stage_s"] == pytest.approx(max(2 * dense["seconds"], 2 * experts["seconds"] + output["seconds"]))


def test_runs_of_one_gpu_are_joined_and_the_first_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = _families(
        "space.roles=qkv,attn_out,mlp_gate_up,mlp_down space.h=1024 space.a=8 space.d_ff=4096 space.tp=1 "
        "space.batch=1 space.seq=256 space.dtype=bf16",
        monkeypatch,
    )
    output = _families(
        "space.roles=logits space.h=1024 space.v=32000 space.tp=1 space.batch=1 space.seq=1 space.dtype=bf16",
        monkeypatch,
    )
    a, c = run(tmp_path / "a", *layer, cost=_cost), run(tmp_path / "c", *layer, cost=lambda gemm, _: 1.0)
    b = run(tmp_path / "b", *output, cost=_cost, device=replace(DEVICE, driver="600.1"))
    words = ("h=1024", "a=8", "v=32000", "layers=2", "d_ff=4096", "b=1", "s=256")
    assert call(capsys, *words, f"results={a}")[0] == 2
    (side,) = found(capsys, *words, f"results={a},{b},{c}")["sides"]
    assert side["tflops"] == pytest.approx(100)  # c is a thousand times slower
    assert side["name"] == f"{a} + {b} + {c}"
    assert side["notes"] == ["the runs of NVIDIA H200 that are joined differ in driver (580.159; 600.1; 580.159)"]
    # a table of the same GPU model stays apart
    code, _, err = call(capsys, *words, f"results={a},{b},{H200}")
    assert code == 2
    assert f"'{H200}' has no timing" in err
    assert f"'{a} + {b}'" not in err


def _cost(gemm: Any, number: int) -> float:
    return float(gemm.flops / 100e12)


def _families(words: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    return list(expand_space(compose("auto", shlex.split(words))).families)
