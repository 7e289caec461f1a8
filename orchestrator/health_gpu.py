"""Rules about one GPU: that it is free, and that it runs as fast as its model does."""

from collections.abc import Callable, Iterator

from orchestrator.errors import shorten
from orchestrator.health_records import PROBLEM, WARNING, Finding, counted, model
from tasks.gpu_facts import GpuFacts, GpuProcess

FREE_SHARE = 0.9
BUSY_PCT = 10
POWER_SLACK_W = 1.0
CLOCK_SHARE = 0.9
"""Under a load that needs no power a GPU reaches its highest clock, or its model's boost clock where that is lower."""

SLOWDOWNS = {
    "hw_slowdown": "hardware slowdown",
    "sw_thermal_slowdown": "thermal slowdown by the driver",
    "hw_thermal_slowdown": "thermal slowdown by the hardware",
    "hw_power_brake": "power brake",
}
GIB = 2**30
NAME_LENGTH = 40

Rule = Callable[[GpuFacts], Iterator[Finding]]


def occupied(device: GpuFacts, workers: int = 0) -> Iterator[Finding]:
    """Find what holds a GPU or a MIG slice that the sweep needs for itself. workers: processes that are the sweep's."""
    processes = device.processes or ()
    computing = [process for process in processes if not process.graphics]
    if len(computing) > workers:
        yield Finding(
            severity=PROBLEM,
            rule="gpu_in_use",
            message=f"used by {_many(len(computing), 'other process')}: {counted(map(_process, computing))}",
            advice="end them, or keep the GPU from Ray (CUDA_VISIBLE_DEVICES at `ray start`)",
        )
    elif not computing and (device.utilisation_pct or 0) >= BUSY_PCT:
        yield Finding(
            severity=WARNING,
            rule="gpu_busy",
            message=f"busy {device.utilisation_pct:.0f}% of the time, by no process that can be seen here",
            advice="look for processes outside of this container; where there are none, run doctor again",
        )
    if device.memory_bytes and device.free_bytes is not None and device.free_bytes < FREE_SHARE * device.memory_bytes:
        yield Finding(
            severity=PROBLEM,
            rule="gpu_memory",
            message=f"only {device.free_bytes / GIB:.1f} of {device.memory_bytes / GIB:.1f} GiB are free",
            advice="end what holds the memory: large Gemms would be skipped",
        )


def draws(gpu: GpuFacts) -> Iterator[Finding]:
    """Find a display."""
    drawing = [process for process in gpu.processes or () if process.graphics]
    if gpu.display_active or drawing:
        by = f": {counted(map(_process, drawing))}" if drawing else ""
        yield Finding(
            severity=WARNING,
            rule="gpu_display",
            message=f"draws a display{by}",
            advice="measure without a desktop session on this GPU",
        )


def power_limited(gpu: GpuFacts) -> Iterator[Finding]:
    """Find a power limit below the model's."""
    limit, default = gpu.power_limit_w, gpu.power_limit_default_w
    if limit is not None and default is not None and limit < default - POWER_SLACK_W:
        yield Finding(
            severity=PROBLEM,
            rule="power_limit",
            message=f"the power limit is {limit:.0f} W, {default:.0f} W by default",
            advice=f"nvidia-smi -i {gpu.uuid} -pl {default:.0f}",
        )


def slow_clocks(gpu: GpuFacts, busy_mhz: float | None = None) -> Iterator[Finding]:
    """Find clocks that are held low. busy_mhz: the clock under a load that needs no power."""
    asked, default = gpu.application_clock_mhz, gpu.application_clock_default_mhz
    if asked is not None and default is not None and asked < default:
        yield Finding(
            severity=PROBLEM,
            rule="clocks_low",
            message=f"the application clock is {asked:.0f} MHz, {default:.0f} by default",
            advice=f"nvidia-smi -i {gpu.uuid} -rac",
        )
        return
    spec = model(gpu)
    highest = min(filter(None, (gpu.clock_max_mhz, spec.boost_mhz if spec else None)), default=None)
    if busy_mhz is not None and highest is not None and not gpu.processes and busy_mhz < CLOCK_SHARE * highest:
        yield Finding(
            severity=PROBLEM,
            rule="clocks_low",
            message=f"runs at {busy_mhz:.0f} MHz under a light load, {highest:.0f} MHz can be reached",
            advice=f"nvidia-smi -i {gpu.uuid} -rgc, where the clocks are locked; else look at its cooling and power",
        )


def slowed_down(gpu: GpuFacts) -> Iterator[Finding]:
    """Find a slowdown that is active now."""
    if active := [text for name, text in SLOWDOWNS.items() if name in (gpu.reasons or ())]:
        at = "" if gpu.temperature_c is None else f" at {gpu.temperature_c:.0f} °C"
        yield Finding(
            severity=PROBLEM,
            rule="slowdown",
            message=f"is slowed down now{at}: {', '.join(active)}",
            advice="look at its cooling and its power supply",
        )


def memory_errors(gpu: GpuFacts) -> Iterator[Finding]:
    """Find memory that fails."""
    if gpu.ecc_volatile:
        yield Finding(
            severity=PROBLEM,
            rule="ecc_errors",
            message=f"{_many(gpu.ecc_volatile, 'uncorrected memory error')} since the driver was loaded",
            advice="reset the GPU; where errors come back, have it replaced",
        )
    elif gpu.ecc_aggregate:
        yield Finding(
            severity=WARNING,
            rule="ecc_history",
            message=f"{_many(gpu.ecc_aggregate, 'uncorrected memory error')} in its life, none since the driver was "
            "loaded",
            advice="watch it",
        )
    if gpu.remap_pending:
        yield Finding(
            severity=PROBLEM,
            rule="remap_pending",
            message="failing memory waits to be replaced by spare memory",
            advice="reset the GPU (nvidia-smi -r), or restart the node",
        )
    if gpu.remap_failed:
        yield Finding(
            severity=PROBLEM,
            rule="remap_failed",
            message="failing memory could not be replaced: no spare memory is left",
            advice="have the GPU replaced",
        )


def compute_mode(gpu: GpuFacts) -> Iterator[Finding]:
    """Find a mode that keeps workers out."""
    advice = f"nvidia-smi -i {gpu.uuid} -c DEFAULT"
    if gpu.compute_mode == "prohibited":
        message = "its compute mode prohibits every process"
        yield Finding(severity=PROBLEM, rule="compute_mode", message=message, advice=advice)
    elif gpu.compute_mode in ("exclusive_process", "exclusive_thread"):
        message = "its compute mode lets one process in: a worker is refused while another has not ended"
        yield Finding(severity=WARNING, rule="compute_mode", message=message, advice=advice)


def sliced(gpu: GpuFacts) -> Iterator[Finding]:
    """Find MIG without slices."""
    if gpu.mig and not gpu.slices:
        yield Finding(
            severity=PROBLEM,
            rule="mig_empty",
            message="MIG is on and has no slices: nothing can run on it",
            advice=f"make slices, or nvidia-smi -i {gpu.uuid} -mig 0",
        )


def unlisted(gpu: GpuFacts) -> Iterator[Finding]:
    """Find a model that the catalogue lacks."""
    if model(gpu) is None:
        yield Finding(
            severity=WARNING,
            rule="unlisted_model",
            message=f"{gpu.name or 'a GPU without a name'} is in no conf/gpu/*.yaml: cluster.gpu cannot name it, and "
            "plan cannot estimate it",
            advice="measure it with cluster.gpu=any, or add its file",
        )


GPU_RULES: tuple[Rule, ...] = (
    draws,
    power_limited,
    slowed_down,
    memory_errors,
    compute_mode,
    sliced,
    unlisted,
)
"""What is asked of every GPU by its own facts alone."""


def _process(process: GpuProcess) -> str:
    memory = "" if process.memory_bytes is None else f", {process.memory_bytes / GIB:.1f} GiB"
    return f"{shorten(process.name or 'unnamed', NAME_LENGTH)} (pid {process.pid}{memory})"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 'es' if what.endswith('s') else 's'}"
