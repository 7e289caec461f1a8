"""What another tool wants to know of a GPU or a model and no run can tell: from the user, else from the catalogue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from orchestrator.catalogue import PEAK_OF, GpuSpec
from orchestrator.errors import ExportError

FACTS: Mapping[str, str] = MappingProxyType(
    {
        "memory_gb": "memory of the GPU, in GB",
        "bandwidth_gb_s": "bandwidth of its memory, in GB/s",
        "power_w": "power limit, in W",
        "peak_fp16": "dense peak in fp16, in TFLOP/s",
        "peak_bf16": "dense peak in bf16, in TFLOP/s",
        "peak_fp8": "dense peak in fp8, in TFLOP/s",
        "peak_int8": "dense peak in int8, in TOP/s",
        "peak_fp32": "peak in fp32, in TFLOP/s",
        "sm_version": "compute capability as one number, such as 90",
        "gpus_per_node": "GPUs of a node",
        "intra_node_gb_s": "bandwidth of a GPU to the others of its node, one direction, in GB/s",
        "inter_node_gb_s": "bandwidth of a GPU to other nodes, one direction, in GB/s",
        "pcie_gb_s": "bandwidth of a GPU to its host, one direction, in GB/s",
        "p2p_latency_s": "latency of a message between two GPUs, in seconds",
        "mem_bw_scaling": "share of the memory bandwidth that kernels reach (aiconfigurator's correction)",
        "mem_latency_s": "constant latency of a memory access, in seconds (aiconfigurator's correction)",
        "a": "attention heads of the model, where the role that was measured does not tell",
        "kv": "key/value heads of the model, likewise",
        "v": "vocabulary of the model, likewise",
    }
)
"""Keys and one line of help. All of them are numbers above 0."""

COUNTS = ("sm_version", "gpus_per_node", "a", "kv", "v")
"""Facts that are whole numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """Answers of one export; ``check`` reports all that had none at once."""

    target: str
    spec: GpuSpec | None
    given: Mapping[str, float]
    _missing: list[str] = field(default_factory=list)

    def known(self, key: str) -> float | None:
        """Return a fact, None where neither the user nor the catalogue gives it."""
        if key in self.given:
            return self.given[key]
        if self.spec is None:
            return None
        if key.startswith("peak_"):
            return self.spec.peak(key.removeprefix("peak_"))
        value: float | None = getattr(self.spec, key, None)
        return value

    def need(self, key: str) -> float:
        """Return a fact; where there is none it is noted for ``check``, and NaN stands for it."""
        value = self.known(key)
        if value is None:
            self._missing.append(key)
            return float("nan")
        return value

    def known_peak(self, dtype: str) -> float | None:
        """Return the dense peak of a dtype, in TFLOP/s, as ``known`` does."""
        return self.known(f"peak_{PEAK_OF.get(dtype, dtype)}")

    def peak(self, dtype: str) -> float:
        """Return the dense peak of a dtype, in TFLOP/s, as ``need`` does."""
        return self.need(f"peak_{PEAK_OF.get(dtype, dtype)}")

    def check(self) -> None:
        """Raise ExportError where something is missing."""
        if self._missing:
            lines = "".join(f"\n  {key}=  {FACTS.get(key, '')}" for key in dict.fromkeys(self._missing))
            raise ExportError(
                f"{self.target} wants to know what neither the run nor the catalogue (conf/gpu) says; give:{lines}"
            )


def peaks(dtypes: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the peaks of these dtypes."""
    return tuple(dict.fromkeys(f"peak_{PEAK_OF.get(dtype, dtype)}" for dtype in dtypes))
