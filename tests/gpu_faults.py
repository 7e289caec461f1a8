"""A CUDA device on which some Gemms go wrong for real: n says which."""

import torch

from tasks import bmm
from tasks.cuda import CudaDevice
from tasks.gemm import Gemm
from tasks.pool import Operands

HERE = __name__
ASSERTS = 1088
HANGS = 1152
TOO_LARGE = 2**22
"""n of a Gemm whose index is out of range on the device, of one that never ends, of one that no memory holds."""

_call = bmm.call


class FaultyDevice(CudaDevice):
    """Believes that everything fits, so that what does not is really tried."""

    def free_bytes(self) -> int:
        return 2**50


def call(gemm: Gemm, operands: Operands) -> None:
    """Call the kernel, or what goes wrong in its place."""
    if gemm.n == ASSERTS:
        torch.zeros(4, device="cuda:0")[torch.full((1,), 10**6, device="cuda:0")]
    if gemm.n == HANGS:
        torch.cuda._sleep(10**14)
    _call(gemm, operands)


def open_device(kind: str) -> FaultyDevice:
    """Open the GPU, with the kernel replaced in this process."""
    bmm.call = call
    return FaultyDevice()
