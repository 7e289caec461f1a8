"""What a sweep would cost: estimates by hand, and a verb that stays light."""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator import cli
from orchestrator.call_time import call_seconds
from orchestrator.catalogue import load
from orchestrator.config import compose
from orchestrator.deadline import deadline_s
from orchestrator.families import Families, Outline
from orchestrator.plan import Estimate, bundle_estimate, plan, reference, total
from orchestrator.schema import Cluster, Config, Space
from orchestrator.space import expand_space
from tasks.family import Bundle, Candidate, Family, Part
from tasks.gemm import Gemm, kind_of
from tasks.settings import Timing
from tests.builders import round_spec
from tests.fakes import device_info

ROOT = Path(cli.__file__).parents[1]

SPEC = round_spec({"fp16": 1000.0, "bf16": None, "fp32": 100.0, "fp8": 2000.0})
"""Round numbers: 700 TFLOP/s and 800 GB/s are what a good call is taken to reach."""


def cube(size: int, dtype: str = "fp16") -> Gemm:
    return Gemm(kind=kind_of(dtype), b=1, m=size, n=size, k=size, dtype=dtype)


def sides(m: int, n: int, k: int, layout: str = "nn") -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype="fp16", layout=layout)


def bundle(*gemms: Gemm) -> Bundle:
    candidates = tuple(Candidate(value=i + 1, parts=(Part(name="up", gemm=g),)) for i, g in enumerate(gemms))
    return Bundle(families=(Family(role="mlp_up", h=1, tp=1, batch=1, seq=1, dtype="fp16", candidates=candidates),))


@pytest.mark.parametrize(
    ("gemm", "microseconds"),
    [
        # 2·10^12 FLOPs at 7·10^14 a second: 2857 µs, against 6·10^8 bytes at 8·10^11: 750 µs; and 2 µs
        (cube(10_000), 2 + 20_000 / 7),
        # 2·10^9 FLOPs: 2.86 µs, against 6·10^6 bytes: 7.5 µs
        (cube(1000), 2 + 7.5),
        (cube(10_000, "fp32"), 2 + 200_000 / 7),  # a tenth of the rate
        (cube(10_001), 2 + 2.5 * 2 * 10_001**3 / 7e8),  # rows of 20002 bytes: not multiples of 16
        (cube(1), 2 + 6 / 800_000),
        (cube(10_000, "fp8"), 2 + 10_000 / 7),  # twice the rate
        (cube(10_000, "fp8_rowwise"), 2 + 10_000 / 7),
        (cube(1008, "fp8"), 2 + 4 * 1008**2 / 800_000),  # one byte of A and of B, two of C: 4·10^6 at 8·10^11
        (sides(m=9999, n=10_000, k=10_000), 2 + 19_998 / 7),  # A's rows are its k
        (sides(m=9999, n=10_000, k=10_000, layout="tn"), 2 + 2.5 * 19_998 / 7),  # here they are its m
        (sides(m=10_000, n=10_000, k=9999, layout="tn"), 2 + 19_998 / 7),
    ],
)
def test_a_call_takes_what_its_flops_or_its_bytes_take(gemm: Gemm, microseconds: float) -> None:
    assert call_seconds(gemm, SPEC) == pytest.approx(microseconds * 1e-6)


LONG_S = 2e-6 + 1e-3 * 20 / 7
"""One call of the cube of 10,000."""


def test_a_long_call_is_a_visit_of_its_own() -> None:
    found = bundle_estimate(bundle(cube(10_000)), SPEC, Timing(min_rounds=10, max_rounds=100, max_seconds=2.5))
    prepare = 0.006 + 3 * LONG_S
    assert found.least_s == pytest.approx(prepare + 10 * LONG_S)
    assert found.most_s == pytest.approx(prepare + 100 * LONG_S)  # 0.29 s: the rounds are the cap
    assert found.samples == 100


def test_short_calls_fill_a_visit_behind_a_lead_call() -> None:
    # 9.5 µs: 111 calls fill 500 µs and as much more as 20 µs is longer, one leads
    found = bundle_estimate(bundle(cube(1000)), SPEC, Timing(min_rounds=10, max_rounds=20))
    assert found.least_s == pytest.approx(0.006 + 3 * 9.5e-6 + 10 * 112 * 9.5e-6)
    assert found.most_s - found.least_s == pytest.approx(10 * 112 * 9.5e-6)


def test_the_time_cap_counts_from_the_least_rounds() -> None:
    # 0.1 s hold 34 rounds of 2.859 ms beyond the first ten
    found = bundle_estimate(bundle(cube(10_000)), SPEC, Timing(min_rounds=10, max_rounds=100, max_seconds=0.1))
    assert found.samples == 44


def test_those_that_stay_get_the_least_rounds_after_the_first_has_left() -> None:
    # two of 2.859 ms: 0.1 s hold 17 rounds beyond the first ten; one may leave then, with one round in flight
    timing = Timing(min_rounds=10, max_rounds=100, max_seconds=0.1)
    found = bundle_estimate(bundle(cube(10_000), cube(10_008)), SPEC, timing)
    assert found.samples == 2 * (10 + 17 + 1 + 10)


def test_a_burst_rests_and_awakes_before_each_visit() -> None:
    timing = Timing(min_rounds=10, max_rounds=10)
    rests = bundle_estimate(bundle(cube(1000)), SPEC, replace(timing, power="burst"))
    assert rests.most_s - bundle_estimate(bundle(cube(1000)), SPEC, timing).most_s == pytest.approx(10 * 0.022)


def test_the_seeds_protocol_makes_150_calls_of_each(capsys: pytest.CaptureFixture[str]) -> None:
    found = bundle_estimate(bundle(cube(10_000), cube(1000)), SPEC, Timing(protocol="seed"))
    drawn = 2 * (10_000**2 + 1000**2) / 1.1e8  # A and B of each, drawn on the CPU
    assert found.least_s == found.most_s == pytest.approx(150 * (LONG_S + 9.5e-6) + drawn)
    assert found.samples == 2
    words = ["conf=h200", "space.roles=seed_bmm", "timing.protocol=seed", "timing.power=burst", "timing.l2=flush"]
    assert "protocol seed, L2 hot, power sustained" in unwrapped(planned(capsys, *words))


def test_one_after_another_150_flushed_calls_are_made_of_each_after_a_warm_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    timing = Timing(protocol="sequential")
    found = bundle_estimate(bundle(cube(10_000), cube(1000)), replace(SPEC, l2_mb=50, llc_mb=200), timing)
    flush = 2e-6 + 3 * 200e6 / 0.8e12
    assert found.least_s == found.most_s == pytest.approx(2 * 0.006 + 150 * (LONG_S + 9.5e-6 + 2 * flush))
    assert found.samples == 200
    words = ["space.h=4096", "space.roles=seed_bmm", "space.tp=1", "timing.protocol=sequential"]
    warm, cold = ([*map(int, walls(capsys, *words, f"timing.warmup_s={s}")[0].split()[2:5:2])] for s in (30, 0))
    assert [a - b for a, b in zip(warm, cold, strict=True)] == pytest.approx([30, 30], abs=1)
    assert warm[0] == warm[1]
    assert "protocol sequential, L2 flush" in unwrapped(planned(capsys, "conf=h200", *words))


def test_a_worker_that_warms_up_may_take_that_much_longer_and_measures_once() -> None:
    device = replace(device_info("A"), gpu="unknown", l2_bytes=50 * 10**6)
    one = bundle(cube(1000))
    long, short = (
        deadline_s(one, device, Timing(protocol="sequential", warmup_s=seconds, redo_throttled=9), 0.0)
        for seconds in (40.0, 10.0)
    )
    assert long - short == pytest.approx(30)
    call, flush = 2e9 / (0.7 * 2e12), 3 * 50e6 / (0.8 * 50e9)  # what such a device does at least
    assert short == pytest.approx(10 + 10 * (0.006 + 150 * (call + flush)), rel=0.02)


def test_bundles_run_one_after_another() -> None:
    one, timing = bundle(cube(10_000)), Timing()
    single = bundle_estimate(one, SPEC, timing)
    both = total([one, one], SPEC, timing)
    assert both.least_s == pytest.approx(2 * single.least_s)
    assert both.most_s == pytest.approx(2 * single.most_s)
    assert both.samples == 2 * single.samples
    assert total([], SPEC, timing) == Estimate(least_s=0.0, most_s=0.0, samples=0)


def config(
    gpu: str = "h100-sxm", reference_gpu: str | None = None, h: int = 4096, timing: Timing | None = None
) -> Config:
    space = Space(roles=["seed_bmm"], h=h, tp=1, batch=4, seq=1, dtype=["fp16"], d_ff=[10920, 10944])
    cluster = Cluster(gpu=gpu, reference_gpu=reference_gpu)
    return Config(space=space, cluster=cluster, timing=timing or Timing())


def test_a_plan_counts_flops_bytes_and_what_is_too_large() -> None:
    small = config()
    found = plan(small, expand_space(small))
    # 2·4·4096²·(10920 + 10944) = 2^27·21864
    assert found.flops == 2**27 * 21864
    # b·(2·m·k + m·n) elements of 2 bytes
    assert found.largest_gemm.k == 10944
    assert found.largest_bytes == 2 * 4 * (2 * 4096 * 10944 + 4096**2)
    assert (found.spec, found.too_large) == (load()["h100-sxm"], 0)
    large = config(h=131_072)  # C alone takes 137 GB of the 80
    assert plan(large, expand_space(large)).too_large == 2


def test_what_does_not_fit_costs_nothing_for_a_run_skips_it() -> None:
    space = Space(
        roles=["mlp"], h=[4096, 131_072], tp=1, batch=4, seq=2048, dtype=["fp16"], d_ff=[128, 256, 400_000]
    )  # of h=131072 both parts of d_ff=400000 take more than 80 GB
    every = Config(space=space, cluster=Cluster(gpu="h100-sxm"))
    fitting = [
        replace(every, space=replace(space, h=4096)),
        replace(every, space=replace(space, h=131_072, d_ff=[128, 256])),
    ]
    found = plan(every, expand_space(every))
    least = sum(known.least_s for of in fitting if (known := plan(of, expand_space(of)).estimate) is not None)
    assert found.too_large == 2
    assert found.estimate is not None
    assert found.estimate.least_s == pytest.approx(least)
    assert found.unsupported == 0
    none = replace(every, space=replace(space, h=131_072, d_ff=400_000))
    assert plan(none, expand_space(none)).estimate == Estimate(least_s=0.0, most_s=0.0, samples=0)


def test_what_the_gpu_cannot_multiply_costs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    space = Space(roles=["mlp"], h=4096, tp=1, batch=4, seq=2048, dtype=["fp8"], d_ff=[1024, 1040])
    known = Config(space=space, cluster=Cluster(gpu="h200"))
    more = replace(known, space=replace(space, roles=["seed_bmm", "mlp"], d_ff=[1020, 1024, 1040]))  # fp8: no batches
    found = plan(more, expand_space(more))
    # three of seed_bmm; both of d_ff=1020, for neither it nor 2040 is a multiple of 16
    assert found.unsupported == 5
    assert found.estimate == plan(known, expand_space(known)).estimate
    words = ["conf=h200", "space.h=4096", "space.tp=1", "space.dtype=fp8", "space.d_ff=1020,1024,1040"]
    assert "5 Gemms cannot be multiplied by h200: a run says why of each" in unwrapped(planned(capsys, *words))


def test_a_dtype_that_the_gpu_does_not_multiply_needs_no_published_peak() -> None:
    found, alone = (
        plan(of, expand_space(of)) for of in (compose("a100", [f"space.dtype={each}"]) for each in ("fp8,bf16", "bf16"))
    )
    assert (found.unknown, alone.unsupported) == ((), 0)
    assert found.unsupported > 0
    assert found.estimate == alone.estimate


def test_a_plan_is_the_estimate_of_its_bundles() -> None:
    of = config()
    expansion = expand_space(of)
    assert plan(of, expansion).estimate == bundle_estimate(expansion.bundles[0], load()["h100-sxm"], of.timing)


@pytest.mark.parametrize(
    ("gpu", "reference_gpu", "key"),
    [
        ("cpu", "h200", None),
        ("any", None, None),
        ("any", "h200", "h200"),
        ("auto", "l40s", "l40s"),
        ("h100-pcie", None, "h100-pcie"),
        ("h100-pcie", "h200", "h100-pcie"),  # the GPU that is asked for counts
    ],
)
def test_which_gpu_is_estimated_for(gpu: str, reference_gpu: str | None, key: str | None) -> None:
    spec = reference(config(gpu, reference_gpu))
    assert (None if spec is None else spec.key) == key


def test_a_family_is_estimated_by_its_reference_model() -> None:
    spec = reference(compose("a100"))
    assert spec is not None
    assert spec.key == "a100-sxm-80"


def test_a_dtype_without_a_published_peak_is_not_guessed_at(capsys: pytest.CaptureFixture[str]) -> None:
    of = compose("b200", ["space.dtype=fp32"])
    found = plan(of, expand_space(of))
    assert (found.estimate, found.unknown) == (None, ("fp32",))
    assert "not estimated: no published peak for fp32 on b200" in planned(capsys, "conf=b200", "space.dtype=fp32")


def test_fp8_and_int8_are_estimated_where_their_peaks_are_published() -> None:
    of = compose("h200", ["space.dtype=fp8,fp8_rowwise,int8", "space.roles=mlp_gate_up"])
    found = plan(of, expand_space(of))
    assert found.unknown == ()
    assert found.estimate is not None
    of = compose("b200", ["space.dtype=fp8_rowwise,int8", "space.roles=mlp_gate_up"])
    assert plan(of, expand_space(of)).unknown == ("int8",)


def test_a_cpu_is_not_estimated() -> None:
    of = config("cpu")
    found = plan(of, expand_space(of))
    assert (found.spec, found.estimate, found.too_large) == (None, None, 0)


def test_gemms_that_several_bundles_have_are_counted_with_the_flops_of_each(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["conf=h200", "space.roles=seed_bmm", "space.h=8192", "space.batch=1", "space.d_ff=4096,8192"]
    # at tp=1 and 2: reduced over 4096 and 8192, and over 2048 and 4096; 2·8192²·18432 FLOPs
    text = unwrapped(planned(capsys, *words, "space.tp=1,2"))
    assert "gemms 3 distinct, 4 with those that several bundles have, 2.5 TFLOP for one call of each" in text
    assert "gemms 2 distinct, 1.6 TFLOP" in unwrapped(planned(capsys, *words, "space.tp=1"))


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert cli.main(["plan", *words]) == 0
    return capsys.readouterr().out


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def test_the_verb_prints_counts_skips_memory_and_cost(capsys: pytest.CaptureFixture[str]) -> None:
    text = planned(capsys, "conf=h200", "space.h=4096", "space.roles=seed_bmm", "space.tp=1,4")
    assert "conf=h200: space.h=4096 space.roles=seed_bmm space.tp=1,4" in text
    assert "104" in text  # 2 x 52 points
    assert re.search(r"families\s+2, measured in 2 bundles", text)
    assert re.search(r"gemms\s+103 distinct", text)
    # the largest: 2·4·(2·4096·11020 + 4096²) bytes = 0.797 GiB
    assert "bmm-4x4096x4096x11020-fp16-nn: 0.80 GiB" in text
    assert re.search(r"seed_bmm-h4096-tp1-b4-fp16\s+52\s+d_ff 10820…11020\s+10922\n", text)
    skipped = "1 x tp does not divide d_ff; first: seed_bmm h=4096 tp=4: tp=4 does not divide d_ff=10922"
    assert skipped in unwrapped(text)
    assert "estimated for h200" in unwrapped(text)
    assert "GPU-seconds" in text


def test_the_verb_says_what_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    text = planned(capsys, "conf=h100", "space.h=131072", "space.d_ff=1024", "space.roles=seed_bmm", "space.tp=1")
    assert "1 Gemms do not fit in 80 GB" in text


def test_a_plan_for_the_cpu_says_that_it_is_not_estimated(capsys: pytest.CaptureFixture[str]) -> None:
    assert "a CPU is not estimated" in unwrapped(planned(capsys, "conf=cpu"))


def test_a_plan_for_any_gpu_says_how_one_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    any_gpu = ("conf=h200", "cluster.gpu=any", "cluster.reference_gpu=null")
    for more in ((), ("timing.protocol=seed",)):
        text = unwrapped(planned(capsys, *any_gpu, *more))
        assert "cluster.gpu=any names no GPU to estimate for, cluster.reference_gpu=h100-sxm does" in text
        assert "CPU" not in text
    assert "estimated for h100-sxm" in unwrapped(planned(capsys, *any_gpu, "cluster.reference_gpu=h100-sxm"))


def test_more_gpus_than_bundles_do_not_help(capsys: pytest.CaptureFixture[str]) -> None:
    text = planned(capsys, "conf=h200", "space.h=4096", "space.roles=seed_bmm", "space.tp=1")
    one, eight = re.findall(r"GPUs?: (\S+ to \S+) s", text)
    assert one == eight


def walls(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    return re.findall(r"(\d+ GPUs?: .*) s", planned(capsys, "conf=h200", *words))


def test_where_every_gpu_measures_everything_more_of_them_do_not_help(capsys: pytest.CaptureFixture[str]) -> None:
    one, eight = walls(capsys, "cluster.placement=replicate")
    assert one.removeprefix("1 GPU") == eight.removeprefix("8 GPUs")
    assert "GPU-seconds of each device" in unwrapped(planned(capsys, "conf=h200", "cluster.placement=replicate"))


def test_no_more_gpus_are_counted_than_may_be_used(capsys: pytest.CaptureFixture[str]) -> None:
    assert [each.partition(":")[0] for each in walls(capsys, "cluster.max_gpus=3")] == ["1 GPU", "3 GPUs"]
    assert [each.partition(":")[0] for each in walls(capsys, "cluster.max_gpus=1")] == ["1 GPU"]


def test_a_burst_has_no_soak(capsys: pytest.CaptureFixture[str]) -> None:
    def least(*words: str) -> float:
        (found,) = re.findall(r"^1 GPU: (\d+) to", "\n".join(walls(capsys, *words)), re.MULTILINE)
        return float(found)

    few = ("space.tp=1", "space.h=4096", "space.d_ff=11008", "space.roles=mlp_up", "timing.min_rounds=4")
    assert least(*few) - least(*few, "timing.power=burst") == pytest.approx(3, abs=1)


HEAVY = {"torch", "ray", "pyarrow", "numpy", "rich", "argcomplete"}


@pytest.mark.parametrize(
    ("words", "beside"),
    [
        (["plan", "conf=a100"], {"numpy"}),  # the Points are columns
        (["--help"], set()),
        (["plan", "conf=nope"], set()),
        (["conf=a100", "space.hh=1"], set()),
        (["--version"], set()),
    ],
    ids=str,
)
def test_nothing_heavy_is_imported(words: list[str], beside: set[str]) -> None:
    code = (
        f"import sys; from orchestrator.cli import main; main({words!r}); print(sorted({HEAVY!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == str(sorted(beside))


def test_a_plan_does_not_depend_on_where_the_results_go() -> None:
    of = config()
    moved = replace(of, conf_name="other")
    assert plan(of, expand_space(of)) == plan(moved, expand_space(moved))


def test_the_columns_of_families_stand_under_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["space.around=experts", "space.ep=1,8", "space.roles=router,experts"]
    assert cli.main(["plan", "conf=h200", "model=mixtral-8x7b", *words]) == 0
    head, *lines = capsys.readouterr().out.split("\n\n")[1].splitlines()
    end = head.index("candidates") + len("candidates")
    assert len(lines) > 8
    assert all(line[:end].split()[-1].isdecimal() and line[end : end + 1] in ("", " ") for line in lines)


@pytest.mark.parametrize(
    ("width", "columns"),
    [
        (120, "family candidates values baseline"),
        (80, "family candidates values baseline"),
        (60, "family candidates"),
        (20, "family"),  # an id is never cut
    ],
)
def test_a_plan_fits_the_terminal_and_loses_its_tables_last_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = planned(capsys, "conf=h200", "space.roles=mlp_gate_up", "space.dtype=fp16", "model=gpt-3-2.7b", "space.a=32")
    lines = text.splitlines()
    ids = [line.split()[0] for line in lines if line.startswith("mlp_gate_up-")]
    assert [line.split() for line in lines if line.split()[:1] == ["family"]] == [columns.split()]
    assert max(map(len, lines)) <= max(width, *map(len, ids), len("memory    mm-1x8192x20480x2560-fp16-nt:"))
    assert ids == [f"mlp_gate_up-h2560-tp{tp}-b4-s2048-fp16" for tp in (1, 2, 4, 8)]


def test_a_plan_looks_at_no_more_families_than_it_shows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    every, seen = Families.outlines, []

    def outlines(self: Families, count: int | None = None) -> Iterator[Outline]:
        for outline in every(self, count):
            seen.append(outline)
            yield outline

    monkeypatch.setattr(Families, "outlines", outlines)
    words = [
        "plan",
        "conf=h200",
        "space.h={start: 1024, stop: 8192, step: 128}",
        "space.batch={start: 1, stop: 20, step: 1}",
    ]
    assert cli.main(words) == 0
    families = int(re.search(r"families +([\d,]+),", capsys.readouterr().out)[1].replace(",", ""))  # type: ignore[index]
    assert len(seen) < 50 < families
