"""Which kernels a Gemm runs, read from a captured graph of one call; no profiler is attached.

A profiler would not be harmless: CUPTI stays attached to the process after it and slows later launches
(github.com/pytorch/pytorch/issues/144455), and tearing it down is known to break captured graphs, of which the visits
of later Bundles are made. A captured graph tells its kernels' names without running, and is gone afterwards.
"""

import re
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from tasks import measure
from tasks.care import Care
from tasks.cuda import capture
from tasks.device import NO_CARE, Device
from tasks.family import Bundle
from tasks.gemm import Gemm
from tasks.measure import OnProgress, Stop
from tasks.records import Measurement
from tasks.settings import Timing

JOIN = " + "

_KERNEL = re.compile(r"\{\s*KERNEL\s*\|\s*\{ID \| \d+(?: \(topoId: (\d+)\))? \| (.+?)\\<\\<\\<", re.DOTALL)
"""A kernel in what cudaGraphDebugDotPrint writes: its place from the end, its name, its launch."""


def measure_bundle(
    device: Device,
    bundle: Bundle,
    timing: Timing,
    on_progress: OnProgress | None = None,
    stop: Stop = lambda: False,
    care: Care = NO_CARE,
) -> Measurement:
    """Measure ``bundle`` as ``tasks.measure`` does, then name the kernels of every Gemm that was measured."""
    measurement = measure.measure_bundle(device, bundle, timing, on_progress, stop, care)
    measured = {facts.gemm_id for facts in measurement.facts if facts.status == "ok"}
    names = kernel_names(device, (gemm for gemm in bundle.gemms if gemm.gemm_id in measured))
    facts = tuple(replace(each, kernel=names.get(each.gemm_id)) for each in measurement.facts)
    return replace(measurement, facts=facts)


def kernel_names(device: Device, gemms: Iterable[Gemm]) -> dict[str, str]:
    """Name the kernels of each Gemm by its id, in their order: ``nvjet_… + void cublasLt::splitKreduce_kernel<…``.

    Memsets and copies are left out. A Gemm that cannot be captured, or for which memory does not suffice, has no name;
    on a CPU, and before torch 2.8, none has.
    """
    if device.info.kind == "cpu" or not _graphs_can_be_kept():
        return {}
    found: dict[str, str] = {}
    with device.session(), warnings.catch_warnings(), TemporaryDirectory() as directory:
        warnings.simplefilter("ignore")  # torch warns that it writes what it is asked to write
        for gemm in gemms:
            name = _kernel_name(device, gemm, Path(directory) / "graph.dot")
            if name is not None:
                found[gemm.gemm_id] = name
    return found


def _graphs_can_be_kept() -> bool:
    try:
        torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        return False
    return True


def _kernel_name(device: Device, gemm: Gemm, path: Path) -> str | None:
    try:
        call = device.one_call(gemm)
        call()  # what the library sets up at its first call cannot be captured
    except torch.OutOfMemoryError:
        return None
    graph = capture(call, torch.cuda.CUDAGraph(keep_graph=True))
    if graph is None:
        return None
    path.unlink(missing_ok=True)
    graph.debug_dump(str(path))
    return names_in(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else None


def names_in(dot: str) -> str | None:
    """The kernels of a graph in the order in which they run, by the text that cudaGraphDebugDotPrint writes of it."""
    nodes = [(int(place or 0), name) for place, name in _KERNEL.findall(dot)]
    ordered = sorted(nodes, key=lambda node: -node[0])  # topoId counts from the end; without it, as they are written
    return JOIN.join(_plain(name) for _, name in ordered) or None


def _plain(name: str) -> str:
    """A name without the escapes of the file, and readable where it is C++'s."""
    return str(torch._C._demangle(re.sub(r"\\(.)", r"\1", name)))
