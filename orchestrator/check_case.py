"""What ``check`` judges: a model as it would run, and what a run measured of its dimensions."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.catalogue import GpuSpec
from orchestrator.check_measured import MeasuredFamily
from orchestrator.model import Model
from orchestrator.reshape import reshaped
from tasks.gemm import ELEMENT_BYTES

RUNNING = ("tp", "b", "s")
LEAST_BYTES = 16
"""Tensor cores need operands whose rows are aligned to this (NVIDIA's matmul guide: 8 elements of fp16)."""
FULL_BYTES = 128
"""Where the gains of alignment end on A100 (NVIDIA's matmul guide: 64 elements of fp16); later chips: taken as A100."""
FULL_BYTES_OF: Mapping[str, int] = {"v100": 16}


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """A model and how it runs.

    tp: tensor-parallel size; b: microbatch, in sequences; s: tokens of a sequence. gpu: None where it is not known.
    families: what a run measured, on this GPU.
    """

    model: Model
    tp: int = 1
    b: int = 4
    s: int = 2048
    gpu: GpuSpec | None = None
    training: bool = True
    dtype: str = "fp16"
    families: tuple[MeasuredFamily, ...] = ()

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.dtype]

    @property
    def least(self) -> int:
        """Elements of the least alignment that tensor cores take."""
        return max(1, LEAST_BYTES // self.element_bytes)

    @property
    def full(self) -> int:
        """Elements of the alignment at which the gains end."""
        full = FULL_BYTES if self.gpu is None else FULL_BYTES_OF.get(self.gpu.family, FULL_BYTES)
        return max(1, full // self.element_bytes)

    def family(self, dimension: str) -> MeasuredFamily | None:
        """Return what was measured of a dimension for this model and tp, as nearly as there is; else None."""
        found = [
            family
            for family in self.families
            if (family.dimension, family.tp) == (dimension, self.tp) and family.is_about(self.model)
        ]

        def distance(family: MeasuredFamily) -> tuple[int, bool, int]:
            rows = family.batch * (family.seq or 1)
            return family.preference, family.dtype != self.dtype, abs(rows - self.b * self.s)

        return min(found, key=distance, default=None)

    def value(self, dimension: str) -> int:
        """Return a dimension of the model, or tp, b or s."""
        return int(getattr(self if dimension in RUNNING else self.model, dimension))

    def changed(self, dimension: str, value: int) -> "Case":
        """Return the case with another value of one dimension; raise InvalidValueError where it does not fit."""
        if dimension in RUNNING:
            running: dict[str, Any] = {dimension: value}
            return replace(self, **running)
        return replace(self, model=reshaped(self.model, {dimension: value}))
