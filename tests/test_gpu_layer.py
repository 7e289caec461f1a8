"""A layer timed on a real GPU: every backend that exists, captured graphs, operands that are not in the cache.

Runs where torch sees a GPU: ``python -m pytest -m gpu tests/test_gpu_layer.py``.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from orchestrator import cli
from orchestrator.catalogue import match
from orchestrator.layer import LayerCase, layer
from orchestrator.layer_summary import summarise
from orchestrator.model import Model
from tasks.component import Component
from tasks.component_ready import ready
from tasks.component_visit import Flush, kept_outputs
from tasks.cuda import CudaDevice
from tasks.device import GIB, open_device
from tasks.layer_ops import OPS
from tasks.layer_timing import Timings, time_layer
from tasks.settings import Timing

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]

TIMING = Timing(min_rounds=10, max_rounds=10, soak_min_s=0.2, soak_max_s=0.5)
MODEL = Model(name="", h=2048, layers=1, a=16, kv=4, head_dim=128, d_ff=5632, v=64, qk_norm=True)
CASE = LayerCase(model=MODEL, b=1, s=1024, dtype="fp16")


@pytest.fixture(scope="module")
def device() -> Iterator[CudaDevice]:
    made = open_device("auto")
    assert isinstance(made, CudaDevice)
    yield made
    made.close()


@pytest.fixture(scope="module")
def timings(device: CudaDevice) -> Timings:
    return time_layer(device, layer(CASE), TIMING)


def test_every_component_is_timed_and_only_a_backend_may_be_missing(timings: Timings) -> None:
    missing = {facts.gemm_id: facts.status for facts in timings.failures}
    assert set(missing) <= {"sdpa_flash", "sdpa_efficient", "sdpa_cudnn"}
    assert set(missing.values()) <= {"unsupported"}
    for each in layer(CASE).components:
        assert (each.key in timings.samples) != (each.key in missing)
    assert {len(samples) for samples in timings.samples.values()} == {10}


def test_backends_that_torch_has_are_there(timings: Timings) -> None:
    if not torch.version.hip and torch.cuda.get_device_capability() >= (8, 0):
        assert {"sdpa_flash", "sdpa_efficient", "sdpa_math"} <= set(timings.samples)


def test_short_components_and_whole_variants_are_captured(timings: Timings) -> None:
    assert set(timings.launches.values()) <= {"graph", "stream"}
    assert timings.launches["residual"] == timings.launches["rope"] == "graph"
    assert timings.launches["whole flash"] == timings.launches["whole unfused"] == "graph"
    assert set(timings.whole) == {"flash", "unfused"}


def test_the_sum_of_the_components_is_near_the_layer_from_end_to_end(timings: Timings) -> None:
    for variant in summarise(layer(CASE), timings).variants:
        assert variant.missing == ()
        assert variant.apart is not None
        assert -0.3 < variant.apart < 0.5


def test_no_component_is_faster_than_the_memory_that_it_must_read(device: CudaDevice, timings: Timings) -> None:
    """Operands in the cache would come at several times this bandwidth; writes may still be on their way to memory."""
    spec = match(device.info.gpu, device.info.memory_bytes)
    if spec is None:
        pytest.skip("a GPU that the catalogue does not have")
    for each in layer(CASE).components:
        if each.key in timings.samples and each.gemm is None and each.name != "sdpa_math":
            seconds = sorted(timings.samples[each.key])[5]
            assert each.input_bytes / seconds < 1.05 * spec.bandwidth_gb_s * 1e9, each.name


def test_a_visits_calls_read_different_bytes_and_write_different_bytes(device: CudaDevice) -> None:
    small = Component(
        name="residual", dtype="fp16", op="residual", inputs=((256, 1024), (256, 1024)), output=256 * 1024
    )
    with device.session():
        made = ready(device, [small], TIMING)
        visit = made.visits["residual"]
        assert visit.launch == "graph"
        assert (visit.calls + visit.lead_calls) * small.input_bytes >= 3 * device.cache_bytes
        assert kept_outputs(small, device) * small.output_bytes >= 3 * device.cache_bytes
    device.close()


def test_fused_attention_with_grouped_heads_is_what_math_makes_it(device: CudaDevice) -> None:
    found = {each.name: each for each in layer(CASE).components if each.kind == "attention"}
    generator = torch.Generator(device="cuda").manual_seed(0)
    tensors = [
        torch.randn(shape, device="cuda", dtype=torch.float16, generator=generator)
        for shape in found["sdpa_math"].inputs
    ]
    right = OPS["attention"](found["sdpa_math"], device.torch_device)(tensors)
    assert isinstance(right, torch.Tensor)
    with device.session():
        there = ready(device, [found[f"sdpa_{name}"] for name in ("flash", "efficient", "cudnn")], TIMING).calls
    assert there
    for name, call in there.items():
        given = call(tensors)
        assert isinstance(given, torch.Tensor)
        assert (given - right).norm() < 5e-3 * right.norm(), name
    device.close()


def test_dropout_is_captured_too(device: CudaDevice) -> None:
    case = replace(CASE, training=True)
    timings = time_layer(device, layer(case), TIMING)
    assert timings.launches["dropout"] == "graph"
    assert {"dropout", "attn_dropout"} <= set(timings.samples)
    device.close()


def test_scores_that_do_not_fit_are_skipped_and_flash_is_measured(device: CudaDevice) -> None:
    heads = 256 * (device.info.memory_bytes // GIB)  # scores of 2048 tokens take 8 MiB a head: twice the memory
    model = replace(MODEL, h=256, a=heads, kv=heads, head_dim=8, d_ff=256, qk_norm=False)
    found = summarise(wanted := layer(replace(CASE, model=model, s=2048)), time_layer(device, wanted, TIMING))
    unfused, flash = found.variants
    lacking = ["attn_score", "scale_mask", "softmax", "attn_over_value"]
    assert [(row.component.name, row.status) for row in unfused.missing] == [(name, "skipped") for name in lacking]
    assert flash.missing == ()
    device.close()


def test_a_flush_outlasts_the_cache(device: CudaDevice) -> None:
    flush = Flush(device)
    flush()
    assert flush._scratch is not None
    assert flush._scratch.numel() >= 3 * device.cache_bytes
    device.synchronize()


def test_the_verb_measures_on_this_gpu(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["layer", "h=1024", "b=1", "s=512", "rounds=10"]) == 0
    text = capsys.readouterr().out
    assert torch.cuda.get_device_name() in text
    assert "GEMM share" in text
