"""The GPUs of this node as NVML knows them: who they are, how they are set, how they are, and who uses them.

NVML lists every GPU, also those that CUDA_VISIBLE_DEVICES hides; each is known by its UUID, never by a CUDA index.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from tasks.telemetry import REASONS

EVENT_REASONS = {0x1: "idle", 0x2: "application_clocks", 0x10: "sync_boost", 0x100: "display_clocks", **REASONS}
"""NVML's clock event reasons (nvml.h, nvmlClocksEventReason*), also those that change no measurement."""

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
"""nvml.h, nvmlComputeMode_t."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuProcess:
    """One process on a GPU. graphics: it only draws. Names and memory of other containers' are unknown."""

    pid: int
    name: str | None = None
    memory_bytes: int | None = None
    graphics: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuFacts:
    """One GPU, or one MIG slice of it. Unknown facts are None; clocks are those of the SMs where not said otherwise.

    slices: the MIG slices, which have name, UUID, memory and processes of their own; the rest is the GPU's.
    ecc_volatile, ecc_aggregate: uncorrected errors since the driver was loaded, and ever.
    """

    uuid: str
    name: str | None = None
    pci_id: str | None = None
    memory_bytes: int | None = None
    free_bytes: int | None = None
    clock_mhz: float | None = None
    clock_max_mhz: float | None = None
    memory_clock_mhz: float | None = None
    memory_clock_max_mhz: float | None = None
    application_clock_mhz: float | None = None
    application_clock_default_mhz: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    temperature_c: float | None = None
    utilisation_pct: float | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    display_active: bool | None = None
    ecc: bool | None = None
    ecc_volatile: int | None = None
    ecc_aggregate: int | None = None
    remap_pending: bool | None = None  # of rows or, before Ampere, pages: done when the GPU is reset
    remap_failed: bool | None = None
    reasons: tuple[str, ...] | None = None  # clock event reasons now
    processes: tuple[GpuProcess, ...] | None = None
    mig: bool | None = None
    slices: tuple["GpuFacts", ...] = ()

    @property
    def devices(self) -> tuple["GpuFacts", ...]:
        """What a worker can be given: the GPU or, with MIG on, its slices."""
        return self.slices if self.mig else (self,)


@dataclass(frozen=True, kw_only=True, slots=True)
class NvmlFacts:
    """What NVML tells of this node. error: why it tells nothing; unreadable: GPUs that gave an error, one line each."""

    gpus: tuple[GpuFacts, ...] = ()
    driver: str | None = None
    cuda_driver: str | None = None  # the newest CUDA that the driver runs
    error: str | None = None
    unreadable: tuple[str, ...] = ()


def read_nvml() -> NvmlFacts:
    """Read all GPUs of this node; without the library or the driver the facts say so."""
    try:
        import pynvml
    except ImportError:
        return NvmlFacts(error="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlFacts(error=f"NVML does not start: {error}")
    try:
        return _Reader(pynvml).node()
    finally:
        pynvml.nvmlShutdown()


class _Reader:
    """Asks NVML, which is open."""

    def __init__(self, nvml: ModuleType) -> None:
        self._nvml = nvml

    def node(self) -> NvmlFacts:
        gpus: list[GpuFacts] = []
        unreadable: list[str] = []
        for index in range(self._ask(self._nvml.nvmlDeviceGetCount) or 0):
            try:
                handle = self._nvml.nvmlDeviceGetHandleByIndex(index)
                gpus.append(self._gpu(handle, self._nvml.nvmlDeviceGetUUID(handle)))
            except self._nvml.NVMLError as error:
                # A GPU that has fallen off the bus still counts, and says nothing but this.
                unreadable.append(f"NVML's GPU {index}: {error}")
        cuda = self._ask(self._nvml.nvmlSystemGetCudaDriverVersion_v2)
        return NvmlFacts(
            gpus=tuple(gpus),
            driver=self._text(self._nvml.nvmlSystemGetDriverVersion),
            cuda_driver=None if cuda is None else f"{cuda // 1000}.{cuda % 1000 // 10}",
            unreadable=tuple(unreadable),
        )

    def _gpu(self, handle: Any, uuid: str | bytes) -> GpuFacts:
        nvml = self._nvml
        mode = self._ask(nvml.nvmlDeviceGetMigMode, handle)
        compute = self._ask(nvml.nvmlDeviceGetComputeMode, handle)
        utilisation = self._ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        mig = None if mode is None else bool(mode[0])
        return GpuFacts(
            uuid=_decoded(uuid),
            **self._own(handle),
            **self._clocks(handle),
            **self._errors(handle),
            pci_id=self._pci_id(handle),
            power_w=self._watts(nvml.nvmlDeviceGetPowerUsage, handle),
            power_limit_w=self._watts(nvml.nvmlDeviceGetEnforcedPowerLimit, handle),
            power_limit_default_w=self._watts(nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle),
            temperature_c=self._ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            utilisation_pct=None if utilisation is None else utilisation.gpu,
            persistence=self._flag(nvml.nvmlDeviceGetPersistenceMode, handle),
            compute_mode=None if compute is None else COMPUTE_MODES.get(compute, str(compute)),
            display_active=self._flag(nvml.nvmlDeviceGetDisplayActive, handle),
            reasons=self._reasons(handle),
            mig=mig,
            slices=tuple(self._slices(handle)) if mig else (),
        )

    def _own(self, handle: Any) -> dict[str, Any]:
        """What a MIG slice, too, has of its own."""
        memory = self._ask(self._nvml.nvmlDeviceGetMemoryInfo, handle)
        return {
            "name": self._text(self._nvml.nvmlDeviceGetName, handle),
            "memory_bytes": None if memory is None else memory.total,
            "free_bytes": None if memory is None else memory.free,
            "processes": self._processes(handle),
        }

    def _clocks(self, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
        return {
            "clock_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, sm),
            "clock_max_mhz": self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, sm),
            "memory_clock_mhz": self._ask(nvml.nvmlDeviceGetClockInfo, handle, memory),
            "memory_clock_max_mhz": self._ask(nvml.nvmlDeviceGetMaxClockInfo, handle, memory),
            "application_clock_mhz": self._ask(nvml.nvmlDeviceGetApplicationsClock, handle, sm),
            "application_clock_default_mhz": self._ask(nvml.nvmlDeviceGetDefaultApplicationsClock, handle, sm),
        }

    def _errors(self, handle: Any) -> dict[str, Any]:
        nvml = self._nvml
        mode = self._ask(nvml.nvmlDeviceGetEccMode, handle)
        uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
        rows = self._ask(nvml.nvmlDeviceGetRemappedRows, handle)  # corrected, uncorrected, pending, failed
        pages = self._flag(nvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)
        return {
            "ecc": None if mode is None else bool(mode[0]),
            "ecc_volatile": self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle, uncorrected, nvml.NVML_VOLATILE_ECC),
            "ecc_aggregate": self._ask(nvml.nvmlDeviceGetTotalEccErrors, handle, uncorrected, nvml.NVML_AGGREGATE_ECC),
            "remap_pending": pages if rows is None else bool(rows[2]) or bool(pages),
            "remap_failed": None if rows is None else bool(rows[3]),
        }

    def _slices(self, handle: Any) -> Iterator[GpuFacts]:
        for index in range(self._ask(self._nvml.nvmlDeviceGetMaxMigDeviceCount, handle) or 0):
            part = self._ask(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex, handle, index)
            if part is not None:  # a place for a slice that was not made
                yield GpuFacts(uuid=self._text(self._nvml.nvmlDeviceGetUUID, part) or "MIG-unknown", **self._own(part))

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...] | None:
        compute = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle)
        graphics = self._ask(self._nvml.nvmlDeviceGetGraphicsRunningProcesses, handle)
        if compute is None and graphics is None:
            return None
        drawing = {found.pid: self._process(found, graphics=True) for found in graphics or ()}
        working = {found.pid: self._process(found, graphics=False) for found in compute or ()}
        return tuple((drawing | working).values())

    def _process(self, found: Any, *, graphics: bool) -> GpuProcess:
        name = self._text(self._nvml.nvmlSystemGetProcessName, found.pid)
        return GpuProcess(pid=found.pid, name=name or None, memory_bytes=found.usedGpuMemory, graphics=graphics)

    def _reasons(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        return None if bits is None else tuple(name for bit, name in EVENT_REASONS.items() if bits & bit)

    def _pci_id(self, handle: Any) -> str | None:
        found = self._ask(self._nvml.nvmlDeviceGetPciInfo, handle)
        return None if found is None else f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}"

    def _watts(self, question: Callable[..., int], handle: Any) -> float | None:
        milliwatts = self._ask(question, handle)
        return None if milliwatts is None else milliwatts / 1e3

    def _flag(self, question: Callable[..., int], handle: Any) -> bool | None:
        answer = self._ask(question, handle)
        return None if answer is None else bool(answer)

    def _text(self, question: Callable[..., str | bytes], *arguments: Any) -> str | None:
        answer = self._ask(question, *arguments)
        return None if answer is None else _decoded(answer)

    def _ask(self, question: Callable[..., T], *arguments: Any) -> T | None:
        """Answer, or None where the GPU, the driver or this permission does not give one."""
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def _decoded(text: str | bytes) -> str:
    return text.decode(errors="replace") if isinstance(text, bytes) else text
