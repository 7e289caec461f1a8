"""What the catalogue's GPUs cannot multiply, before one of them is opened."""

import itertools

import pytest

from orchestrator.architecture import CAPABILITY, GFX, impossible, possible
from orchestrator.catalogue import load
from orchestrator.gemm_columns import table_of
from tasks.gemm import Gemm, kind_of

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


@pytest.mark.parametrize("gpu", ["v100-sxm2-32", "a100-sxm-80", "h200", "b200", "mi250x", "mi300x"])
def test_of_many_as_of_one(gpu: str) -> None:
    dtypes, sizes = ("fp16", "bf16", "tf32", "fp8", "fp8_rowwise", "int8"), (16, 17, 24, 1365)
    gemms = [
        Gemm(kind=kind, b=1, m=m, n=n, k=k, dtype=dtype, layout=layout)
        for dtype, layout, m, n, k in itertools.product(dtypes, ("nt", "nn"), sizes, sizes, sizes)
        for kind in (kind_of(dtype), "bmm")
    ]
    spec = load()[gpu]
    assert possible(table_of(gemms), spec).tolist() == [impossible(gemm, spec) is None for gemm in gemms]
