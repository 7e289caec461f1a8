"""A made-up pynvml: GPUs as dictionaries of answers by NVML's own function names; what is not in one is refused.

Put at the boundary, in place of the module: ``sys.modules["pynvml"]``.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType, SimpleNamespace
from typing import Any

GIB = 2**30
Answers = Mapping[str, Any]


class NVMLError(Exception):
    """As NVML's own."""


def h200(number: int, **changes: Any) -> Answers:
    """Answers of an idle H200; ``changes`` by function name without ``nvmlDeviceGet``."""
    answers = {
        "UUID": f"GPU-{number:08x}-1111-2222-3333-444444444444",
        "Name": "NVIDIA H200",
        "PciInfo": SimpleNamespace(domain=0, bus=0x1B + number, device=0),
        "MemoryInfo": SimpleNamespace(total=140 * GIB, free=139 * GIB, used=GIB),
        "ClockInfo": {1: 345, 2: 3201},
        "MaxClockInfo": {1: 1980, 2: 3201},
        "ApplicationsClock": {1: 1980},
        "DefaultApplicationsClock": {1: 1980},
        "PowerUsage": 76_500,
        "EnforcedPowerLimit": 700_000,
        "PowerManagementDefaultLimit": 700_000,
        "Temperature": {0: 31},
        "UtilizationRates": SimpleNamespace(gpu=0, memory=0),
        "PersistenceMode": 1,
        "ComputeMode": 0,
        "DisplayActive": 0,
        "EccMode": (1, 1),
        "TotalEccErrors": {(1, 0): 0, (1, 1): 0},
        "RemappedRows": (0, 0, 0, 0),
        "CurrentClocksEventReasons": 1,
        "ComputeRunningProcesses": [],
        "GraphicsRunningProcesses": [],
        "MigMode": (0, 0),
    }
    return answers | changes


def process(pid: int, memory_bytes: int | None = None) -> SimpleNamespace:
    """A process as NVML lists it."""
    return SimpleNamespace(pid=pid, usedGpuMemory=memory_bytes)


class FakeNvml(ModuleType):
    """Answers for these GPUs; an exception among them is a GPU that cannot be opened.

    ``asked`` holds every name of the library that was used.
    """

    VALUES: Mapping[str, int] = {
        "NVML_CLOCK_SM": 1,
        "NVML_CLOCK_MEM": 2,
        "NVML_TEMPERATURE_GPU": 0,
        "NVML_MEMORY_ERROR_TYPE_UNCORRECTED": 1,
        "NVML_VOLATILE_ECC": 0,
        "NVML_AGGREGATE_ECC": 1,
    }

    def __init__(
        self, gpus: Sequence[Answers | Exception] = (), processes: Mapping[int, str] | None = None, **system: Any
    ) -> None:
        super().__init__("pynvml")
        self.NVMLError = NVMLError
        self.gpus = gpus
        self.processes = processes or {}
        self.system = {"Init": None, "SystemGetDriverVersion": "580.95.05", "SystemGetCudaDriverVersion_v2": 13000}
        self.system |= system
        self.asked: set[str] = set()
        self.opened = 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self.asked.add(name)
        if name in self.VALUES:
            return self.VALUES[name]
        if name.startswith("nvmlDeviceGet"):
            return self._of_device(name.removeprefix("nvmlDeviceGet"))
        return lambda: self._answer(self.system, name.removeprefix("nvml"))

    def nvmlInit(self) -> None:
        self._answer(self.system, "Init")
        self.opened += 1

    def nvmlShutdown(self) -> None:
        self.opened -= 1

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        return str(self._answer(self.processes, pid))

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Answers:
        found = self.gpus[index]
        if isinstance(found, Exception):
            raise found
        return found

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: Answers) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: Answers, index: int) -> Answers:
        slices: Sequence[Answers] = handle["slices"]
        if index >= len(slices):
            raise NVMLError("Not Found")
        return slices[index]

    def _of_device(self, what: str) -> Callable[..., Any]:
        def question(handle: Answers, *arguments: int) -> Any:
            assert self.opened, "NVML was not started"
            answer = self._answer(handle, what)
            return answer if not arguments else self._answer(answer, arguments if len(arguments) > 1 else arguments[0])

        return question

    @staticmethod
    def _answer(answers: Mapping[Any, Any], key: Any) -> Any:
        if key not in answers:
            raise NVMLError("Not Supported")
        if isinstance(answers[key], Exception):
            raise answers[key]
        return answers[key]
