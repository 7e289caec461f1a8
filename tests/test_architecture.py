"""What the catalogue's GPUs cannot multiply, before one of them is opened."""

import pytest

from orchestrator.architecture import CAPABILITY, GFX, impossible
from orchestrator.catalogue import load
from tasks.gemm import Gemm

NN = Gemm(kind="scaled_mm", b=1, m=32, n=32, k=32, dtype="fp8", layout="nn")


def test_every_gpu_of_the_catalogue_has_an_architecture() -> None:
    for spec in load().values():
        assert spec.family in (GFX if spec.vendor == "amd" else CAPABILITY)


@pytest.mark.parametrize(
    ("gpu", "reason"),
    [
        ("a100-sxm-80", "fp8 needs compute capability 8.9, a100-sxm-80 has 8.0"),
        ("h200", "fp8 needs layout nt"),
        ("b200", None),
        ("mi250x", "fp8 needs an MI300 or later"),
        ("mi300x", "fp8 needs layout nt"),
    ],
)
def test_fp8_in_another_layout(gpu: str, reason: str | None) -> None:
    found = impossible(NN, load()[gpu])
    assert found is None if reason is None else found is not None and found.startswith(reason)
