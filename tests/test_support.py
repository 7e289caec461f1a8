"""What a device is known to be unable to multiply: each rule at its edge, with its reason."""

import pytest

from tasks.gemm import ELEMENT_BYTES, Gemm, kind_of
from tasks.support import Architecture, unsupported


def nvidia(major: int, minor: int) -> Architecture:
    return Architecture(kind="cuda", gpu="Chip", capability=(major, minor))


def amd(gfx: str) -> Architecture:
    return Architecture(kind="rocm", gpu="Card", gfx=gfx)


CPU = Architecture(kind="cpu", gpu="Processor")
V100, TURING, A100, L4, H200 = nvidia(7, 0), nvidia(7, 5), nvidia(8, 0), nvidia(8, 9), nvidia(9, 0)
B200, RTX_5090 = nvidia(10, 0), nvidia(12, 0)
MI250X, MI300X, MI355X, RDNA4 = amd("gfx90a"), amd("gfx942"), amd("gfx950"), amd("gfx1201")


def gemm(dtype: str, m: int = 32, n: int = 32, k: int = 32, layout: str = "nt", b: int | None = None) -> Gemm:
    kind = kind_of(dtype, batched=b is not None)
    return Gemm(kind=kind, b=b or 1, m=m, n=n, k=k, dtype=dtype, layout=layout)


FINE = [
    (gemm("fp16"), (CPU, V100, TURING, A100, H200, MI250X)),
    (gemm("fp32", 1, 1, 1, "tn"), (CPU, V100, H200, MI300X)),
    (gemm("bf16", b=3), (CPU, A100, L4, MI250X)),
    (gemm("tf32"), (A100, MI300X)),
    (gemm("fp8"), (CPU, L4, H200, B200, RTX_5090, MI300X, MI355X, RDNA4)),
    (gemm("fp8", m=1, n=16, k=16), (H200, MI300X)),
    (gemm("fp8_rowwise"), (CPU, L4, H200, B200, MI300X, MI355X)),
    (gemm("fp8", layout="nn"), (CPU, B200, RTX_5090)),
    (gemm("fp8", m=3, n=7, k=5, layout="tn"), (CPU,)),
    (gemm("int8", m=17, n=8, k=8), (CPU, V100, A100, H200, MI250X, MI300X)),
    (gemm("int8", layout="nn"), (CPU, H200)),
    (gemm("int8", m=1, n=1, k=1), (CPU,)),
]


@pytest.mark.parametrize(("gemm", "devices"), FINE, ids=lambda value: getattr(value, "gemm_id", ""))
def test_what_may_be_tried(gemm: Gemm, devices: tuple[Architecture, ...]) -> None:
    assert [unsupported(gemm, device) for device in devices] == [None] * len(devices)


REFUSED = [
    (gemm("bf16"), V100, "bf16 needs compute capability 8.0, Chip has 7.0"),
    (gemm("bf16", b=2), TURING, "bf16 needs compute capability 8.0, Chip has 7.5"),
    (gemm("tf32"), V100, "tf32 needs compute capability 8.0, Chip has 7.0"),
    (gemm("tf32"), CPU, "a CPU has no TensorFloat-32"),
    (gemm("fp8"), A100, "fp8 needs compute capability 8.9, Chip has 8.0"),
    (gemm("fp8_rowwise"), A100, "fp8_rowwise needs compute capability 8.9, Chip has 8.0"),
    (gemm("fp8"), MI250X, "fp8 needs an MI300 or later (gfx942, gfx950), Card is gfx90a"),
    (gemm("fp8", layout="nn"), H200, "fp8 needs layout nt (A stored by rows, B by columns), not nn"),
    (gemm("fp8_rowwise", layout="tn"), L4, "fp8_rowwise needs layout nt (A stored by rows, B by columns), not tn"),
    (gemm("fp8", layout="nn"), MI300X, "fp8 needs layout nt (A stored by rows, B by columns), not nn"),
    (gemm("fp8", n=1376 // 16 + 1), H200, "fp8 needs n and k to be multiples of 16, not n=87"),
    (gemm("fp8", k=24), B200, "fp8 needs n and k to be multiples of 16, not k=24"),
    (gemm("fp8_rowwise", n=8, k=15), MI355X, "fp8_rowwise needs n and k to be multiples of 16, not n=8, k=15"),
    (gemm("int8", m=16), H200, "int8 needs m > 16, not 16"),
    (gemm("int8", m=16), MI300X, "int8 needs m > 16, not 16"),
    (gemm("int8", n=12), A100, "int8 needs n and k to be multiples of 8, not n=12"),
    (gemm("int8", n=20, k=4), V100, "int8 needs n and k to be multiples of 8, not n=20, k=4"),
    (gemm("fp8", b=1), H200, "torch has no batched product in fp8: torch._scaled_mm takes two matrices"),
    (gemm("fp8_rowwise", b=4), CPU, "torch has no batched product in fp8_rowwise: torch._scaled_mm takes two matrices"),
    (gemm("int8", b=4), MI300X, "torch has no batched product in int8: torch._int_mm takes two matrices"),
]


@pytest.mark.parametrize(("gemm", "device", "reason"), REFUSED, ids=lambda value: getattr(value, "gemm_id", ""))
def test_what_need_not_be_tried_has_its_reason(gemm: Gemm, device: Architecture, reason: str) -> None:
    assert unsupported(gemm, device) == reason


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("kind", ["cuda", "rocm"])
def test_a_device_of_which_nothing_is_known_may_try_all_dtypes(kind: str, dtype: str) -> None:
    assert unsupported(gemm(dtype), Architecture(kind=kind, gpu="?")) is None
