"""``layer`` as a user runs it: on this machine's CPU, its tables within 80 columns, JSON, exit codes."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator import cli
from orchestrator.layer import LayerCase, layer
from orchestrator.layer_result import LayerResult, document
from orchestrator.layer_summary import summarise
from orchestrator.layer_tables import show
from orchestrator.model import Model
from tasks.layer_timing import Timings
from tasks.records import GemmFacts
from tests.builders import DEVICE, TELEMETRY

ROOT = Path(cli.__file__).parents[1]
SMALL = ("h=256", "a=4", "b=1", "s=64", "rounds=10")
LARGE = Model(
    name="a-model-of-a-long-name", h=16384, layers=100, a=128, kv=8, head_dim=128, d_ff=65536, v=1, qk_norm=True
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "orchestrator", "layer", *words]
    environment = {
        **{"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "COLUMNS": "80", "CUDA_VISIBLE_DEVICES": ""},
        "OMP_WAIT_POLICY": os.environ["OMP_WAIT_POLICY"],
    }
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)


def test_a_small_layer_is_timed_on_the_cpu() -> None:
    done = run(*SMALL, "kv=2")
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    lines = done.stdout.splitlines()
    assert lines[0] == "h=256 a=4 kv=2 head_dim=64 d_ff=768 swiglu, tp=1 b=1 s=64 bf16"
    tables = done.stdout.split("FlashAttention")
    for component in ("rms_norm", "qkv", "rope", "attn_score", "softmax", "attn_over_value", "mlp_down"):
        assert f"\n{component} " in tables[1]
    assert "\nsdpa_flash " in tables[2]
    assert "\nsoftmax " not in tables[2]
    assert "GEMM share " in tables[1]
    assert "run from end to end" in tables[2]
    assert "sdpa_cudnn: unsupported: PyTorch has no such kernel for this device (cpu)" in done.stdout


def test_json_holds_every_component_with_its_samples() -> None:
    done = run(*SMALL, "mlp=gelu", "positions=64", "dtype=fp32", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["layers"]
    assert found["whole"] is True
    unfused, flash = found["variants"]
    assert [each["name"] for each in flash["components"]] == [
        *("layer_norm", "qkv", "sdpa_flash", "attn_out", "residual", "mlp_up", "gelu", "mlp_down")
    ]
    for variant in (unfused, flash):
        parts = variant["components"]
        total = sum(each["times"] * each["seconds"]["median"] for each in parts)
        assert total == pytest.approx(variant["seconds"])
        assert sum(each["share"] for each in parts) == pytest.approx(1)
        gemms = sum(each["share"] for each in parts if each["gemm_id"])
        assert gemms == pytest.approx(variant["gemm_share"])
        assert {len(each["samples"]) for each in parts} == {found["rounds"]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["h=256", "a=3"], "argument 'h=256' and argument 'a=3': a (3) must divide h (256)"),
        (["tp"], "argument 'tp': is not of the form key=value"),
        (["h=0", "b=-1"], "argument 'h=0': h: 0 is too small; it must be >= 1\nargument 'b=-1': b: -1 is too small"),
    ],
)
def test_a_users_mistake_is_exit_code_2(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["layer", *words]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_mistakes_are_found_without_torch() -> None:
    code = "import sys; from orchestrator import cli; cli.main(['layer', 'h=1']); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True)


def result(model: Model, *failures: GemmFacts, **running: Any) -> LayerResult:
    """A layer in which every call takes 12.3456 ms."""
    case = LayerCase(model=model, b=4, s=2048, **running)
    wanted = layer(case)
    failed = {facts.gemm_id for facts in failures}
    samples = {each.key: (12.3456e-3,) * 10 for each in wanted.components if each.key not in failed}
    timings = Timings(
        samples=samples,
        whole={"flash": (0.1,) * 10},
        taken={},
        launches=dict.fromkeys(samples, "stream"),
        failures=failures,
        device=DEVICE,
        telemetry=replace(TELEMETRY, throttled=True, reasons=("hw_slowdown",)),
        rounds=10,
        prepare_s=1.0,
        soak_s=1.0,
        measuring_s=1.0,
    )
    return LayerResult(case=case, summary=summarise(wanted, timings), timings=timings)


def drawn(*results: LayerResult, width: int = 80) -> str:
    out = StringIO()
    show(results, Console(file=out, width=width))
    return out.getvalue()


MIXTURE = replace(LARGE, experts=128, topk=8, expert_d_ff=65536, shared_d_ff=65536)
SKIPPED = GemmFacts(gemm_id="softmax", status="skipped", message="needs 12.00 GiB, 3.00 free")


@pytest.mark.parametrize("width", [80, 60])
def test_the_widest_tables_fit_the_terminal(width: int) -> None:
    text = drawn(result(LARGE, SKIPPED, training=True, tp=8), result(MIXTURE, training=True), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text


def test_a_sum_that_lacks_a_component_says_so_in_the_table_and_the_summary() -> None:
    found = result(LARGE, SKIPPED)
    text = drawn(found, result(LARGE))
    assert "the sum lacks softmax: skipped: needs 12.00 GiB, 3.00 free" in text
    assert " * " in text
    assert not found.whole
    assert document([found])["layers"][0]["variants"][0]["missing"] == ["softmax"]


def test_where_nothing_was_measured_there_is_no_sum() -> None:
    nothing = [replace(SKIPPED, gemm_id=each.key) for each in layer(LayerCase(model=LARGE, b=4, s=2048)).components]
    lines = [line.split() for line in drawn(result(LARGE, *nothing), result(LARGE, *nothing)).splitlines()]
    assert [line for line in lines if line[:1] == ["sum"]] == [["sum", "-", "-", "-", "-"]] * 4
    assert [str(LARGE.h), "unfused", "-", "*", "-", "-", "-"] in lines


def test_a_throttled_device_is_told() -> None:
    assert "the device was throttled (hw_slowdown)" in drawn(result(LARGE))
