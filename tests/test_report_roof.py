"""The roofline of a report."""

import pytest

from orchestrator.report import roof as module
from orchestrator.report.family import families
from orchestrator.report.roof import roof
from tests.reports import candidates, made_run, part


def test_gemms_stand_under_the_ceilings_of_their_gpu_and_dtype() -> None:
    run = made_run(candidates(0, 2))
    found = roof([run], families([run]))
    (ceiling,) = found.ceilings
    assert (ceiling.name, ceiling.tflops) == ("NVIDIA H200 bf16: 989 TFLOP/s", 989)
    assert ceiling.ridge == pytest.approx(989e12 / 4800e9)
    assert [spots.name for spots in found.spots] == ["mlp.gate_up bf16, NVIDIA H200", "mlp.down bf16, NVIDIA H200"]
    assert found.spots[0].value == [6464, 6400]
    assert (found.whole, found.without) == (True, ())


def test_dtypes_of_one_peak_share_their_ceiling() -> None:
    fp8 = {**part("up", 4096, 1e-3), "kind": "scaled_mm"}
    rows = [*candidates(0, 1), {**candidates(1, 1)[0], "dtype": "fp16"}]
    rows.append({**candidates(2, 1)[0], "dtype": "fp8", "parts": [fp8]})
    run = made_run(rows)
    assert [(line.dtypes, line.tflops) for line in roof([run], families([run])).ceilings] == [
        (("bf16", "fp16"), 989),
        (("fp8",), 1979),
    ]


def test_intensity_counts_every_matrix_once() -> None:
    run = made_run([{**candidates(0, 1)[0], "parts": [part("up", 4096, 1e-3)]}])
    (spots,) = roof([run], families([run])).spots
    flops, moved = 2 * 8192 * 4096 * 4096, 2 * (8192 * 4096 + 4096 * 4096 + 8192 * 4096)
    assert spots.intensity == [pytest.approx(flops / moved)]
    assert spots.share == [pytest.approx(flops / 989e12 / 1e-3)]
    assert spots.name == "mlp bf16, NVIDIA H200"


def test_a_gpu_that_the_catalogue_lacks_has_no_ceiling() -> None:
    run = made_run(candidates(0, 2, gpu="Mystery"), shards=[{"gpu": "Mystery"}])
    found = roof([run], families([run]))
    assert (found.ceilings, found.without) == ((), ("Mystery",))
    assert found.spots[0].share == [None, None]


def test_of_very_many_candidates_the_best_and_the_baseline_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_POINTS", 10)
    run = made_run(candidates(0, 9))
    found = roof([run], families([run]))
    assert (found.whole, found.spots[0].value) == (False, [64 * 108, 6400])
