"""What is known of why a Gemm takes its time on a GPU: plain records of facts and of the static model's answers."""

from dataclasses import dataclass

from orchestrator.alignment import Alignment, aligned, alignments
from orchestrator.call_time import call_seconds
from orchestrator.catalogue import GpuSpec
from orchestrator.roofline import Roofline, roofline
from orchestrator.tiles import TILES, Neighbour, Quantisation, chosen, neighbours, quantise
from tasks.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """What a run says of one Gemm: the median call, its rate, and the kernels that ran (None: not recorded)."""

    seconds: float
    tflops: float
    kernel: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """The GPU that a Gemm is explained for. spec: its catalogue entry; sms: None where it has no SMs (a CPU)."""

    name: str
    sms: int | None
    spec: GpuSpec | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One Gemm on one GPU.

    quantisations: by tile, empty without SMs; choice: that of the tile that a library would take. estimate_s: what
    ``plan`` takes a call for.
    """

    gemm: Gemm
    gpu: Gpu
    alignments: tuple[Alignment, ...]
    aligned: bool
    quantisations: tuple[Quantisation, ...]
    choice: Quantisation | None
    neighbours: tuple[Neighbour, ...]
    roofline: Roofline | None
    estimate_s: float | None
    measured: Measured | None = None


def explain(gemm: Gemm, gpu: Gpu, measured: Measured | None = None) -> Explanation:
    """Collect what the catalogue and the model say of ``gemm`` on ``gpu``."""
    sms, spec = gpu.sms, gpu.spec
    around = () if sms is None else (*neighbours(gemm, sms, "m"), *neighbours(gemm, sms, "n"))
    return Explanation(
        gemm=gemm,
        gpu=gpu,
        alignments=alignments(gemm),
        aligned=aligned(gemm),
        quantisations=() if sms is None else tuple(quantise(gemm, tile, sms) for tile in TILES),
        choice=None if sms is None else chosen(gemm, sms),
        neighbours=around,
        roofline=None if spec is None else roofline(gemm, spec),
        estimate_s=None if spec is None or not spec.peak_tflops.get(gemm.dtype) else call_seconds(gemm, spec),
        measured=measured,
    )
