"""What an export is made from: the Gemms of one GPU model that were measured, each once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from orchestrator.catalogue import GpuSpec
from tasks.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """How the samples of one Gemm lie, in seconds per call; ``std`` is that of single visits at their round's pace."""

    least: float
    most: float
    mean: float
    std: float
    samples: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Use:
    """One place of a Gemm in the ranking: ``point`` is the ranking's row, ``part`` the Gemm's name in its role."""

    part: str
    point: Mapping[str, Any]

    @property
    def best(self) -> bool:
        """Whether it cannot be told from the best of its Family."""
        return bool(self.point["tie_group"] == 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One Gemm. seconds: of a call, the median; energy_j: of a call, None where it is unknown."""

    gemm: Gemm
    seconds: float
    spread: Spread
    energy_j: float | None
    uses: tuple[Use, ...]

    @property
    def tflops(self) -> float:
        """Rate in TFLOP/s."""
        return self.gemm.flops / self.seconds / 1e12

    @property
    def best(self) -> bool:
        """Whether some Family's best Candidates have it."""
        return any(use.best for use in self.uses)


@dataclass(frozen=True, kw_only=True, slots=True)
class Selection:
    """The Gemms of one GPU model in one regime, in a fixed order.

    gpu: the name that the device gives itself. spec: its entry in the catalogue. memory_bytes: as the device says.
    regime: protocol, l2 and power. software: versions that measured, such as ``torch 2.11.0``. left_out: how many of
    what is not among the entries, by reason.
    """

    run: str
    gpu: str
    spec: GpuSpec | None
    memory_bytes: int | None
    regime: Mapping[str, Any]
    software: tuple[str, ...]
    entries: tuple[Entry, ...]
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def key(self) -> str:
        """The GPU's short name: that of the catalogue, or its own in words joined by ``-``."""
        from orchestrator.store import safe_name

        return safe_name(self.gpu) if self.spec is None else self.spec.key

    @property
    def origin(self) -> str:
        """One line on where the figures are from."""
        regime = ", ".join(f"{name} {value}" for name, value in self.regime.items())
        return f"run {self.run} on {self.gpu} ({', '.join(self.software)}; {regime})"
