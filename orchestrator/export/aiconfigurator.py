"""aiconfigurator: a system of its own with our GEMM table, or a copy of a shipped one with the table replaced.

The format is that of aiconfigurator-core 0.12.0: ``gemm_perf.parquet`` with whole numbers of 64 bits and latencies in
milliseconds as doubles, zstd; other types and compressions are refused there.
"""

from collections.abc import Sequence
from typing import Any

import yaml

from orchestrator.errors import ExportError
from orchestrator.export.aiconfigurator_system import shipped
from orchestrator.export.contract import Export, Exporter, kept
from orchestrator.export.facts import Facts, peaks
from orchestrator.export.request import FRAMEWORKS, Request
from orchestrator.export.selection import Entry, Selection

TARGET = "aiconfigurator"
DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}
"""Its names of ours. It has others (fp8_block, int8_wo, nvfp4, …) of which nothing is measured here."""
FLOPS = {"bf16": "bfloat16_tc_flops", "fp8": "fp8_tc_flops", "int8": "int8_tc_flops"}
TABLE, META = "gemm_perf.parquet", "collection_meta.yaml"
KERNEL_SOURCE = "torch"
NODE = {
    "num_gpus_per_node": ("gpus_per_node", 1),
    "inter_node_bw": ("inter_node_gb_s", 1e9),
    "intra_node_bw": ("intra_node_gb_s", 1e9),
    "pcie_bw": ("pcie_gb_s", 1e9),
    "p2p_latency": ("p2p_latency_s", 1),
}
"""Its keys of a node: our fact and what it is multiplied with."""


def export(selection: Selection, request: Request) -> Export:
    """Write a system's description, its GEMM table and what says that the table is complete."""
    entries, left_out = kept(TARGET, selection.entries, _why_not)
    if request.into is not None:
        return _into(selection, request, entries, left_out)
    if request.framework is None or request.version is None:
        raise ExportError(
            "aiconfigurator keeps its tables by the framework that ran them, and ours ran in torch: give "
            f"--framework {'|'.join(FRAMEWORKS)} and --version, under which the planner shall look for them"
        )
    name = request.name or f"measured_{selection.key.replace('-', '_')}"
    system = _system(selection, request, name, entries)
    folder = f"data/{name}/gemm/{request.framework}/{request.version}"
    files = {
        f"{folder}/{TABLE}": _table(selection, entries, request.framework, request.version),
        f"{folder}/{META}": _meta(selection, request.framework, request.version),
        f"{name}.yaml": system,
    }
    note = "it has no tables but this one: for a whole plan copy a shipped system by --into SYSTEM --as NAME"
    return Export(files=files, gemms=len(entries), left_out=left_out, notes=(note,))


def _into(selection: Selection, request: Request, entries: Sequence[Entry], left_out: dict[str, int]) -> Export:
    assert request.into is not None
    if request.name is None:
        raise ExportError("--into copies a system: give the copy a name by --as NAME")
    system = shipped(request.into, TABLE)
    framework, version = system.place(request.framework, request.version)
    folder = f"data/{request.name}/gemm/{framework}/{version}"
    files = system.copied(request.name, without=f"gemm/{framework}/{version}")
    files[f"{folder}/{TABLE}"] = _table(selection, entries, framework, version)
    files[f"{folder}/{META}"] = _meta(selection, framework, version)
    note = (
        f"a copy of {system.name} with the GEMM table of {framework} {version} replaced; where that has no near shape, "
        "aiconfigurator may answer from the tables of its other versions and frameworks"
    )
    return Export(files=files, gemms=len(entries), left_out=left_out, notes=(note,), sources=system.sources)


def _why_not(entry: Entry) -> str | None:
    gemm = entry.gemm
    if gemm.kind == "bmm":
        return "batched Gemms (bmm): it has no table for them"
    if gemm.dtype not in DTYPES:
        return f"Gemms in {gemm.dtype}: it has no name for that"
    if gemm.layout != "nt":
        return f"Gemms of layout {gemm.layout}: its table is of nn.Linear's product, nt"
    return None


def _table(selection: Selection, entries: Sequence[Entry], framework: str, version: str) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = {
        "framework": framework,
        "version": version,
        "device": selection.gpu,
        "op_name": "gemm",
        "kernel_source": KERNEL_SOURCE,
    }
    columns: dict[str, Any] = {name: pa.array([text] * len(entries), pa.string()) for name, text in texts.items()}
    columns["gemm_dtype"] = pa.array([DTYPES[entry.gemm.dtype] for entry in entries], pa.string())
    for name in ("m", "n", "k"):
        columns[name] = pa.array([getattr(entry.gemm, name) for entry in entries], pa.int64())
    columns["latency"] = pa.array([entry.seconds * 1e3 for entry in entries], pa.float64())
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, compression="zstd")
    return bytes(sink.getvalue().to_pybytes())


def _meta(selection: Selection, framework: str, version: str) -> bytes:
    facts = {
        "schema_version": 1,
        "runtime": {"framework": framework, "version": version},
        "tables": {"gemm_perf": {"status": "complete"}},
    }
    return _yaml(selection, facts)


def _system(selection: Selection, request: Request, name: str, entries: Sequence[Entry]) -> bytes:
    facts = Facts(target=TARGET, spec=selection.spec, given=request.facts)
    for dtype in {entry.gemm.dtype for entry in entries}:
        facts.peak(dtype)  # the planner wants a peak for what the table has; others only where they are known
    memory = request.facts.get("memory_gb")
    capacity = selection.memory_bytes if memory is None and selection.memory_bytes else facts.need("memory_gb") * 1e9
    peaks_known = {key: facts.known(f"peak_{dtype}") for dtype, key in FLOPS.items()}
    gpu = {
        "mem_bw": facts.need("bandwidth_gb_s") * 1e9,
        "mem_bw_empirical_scaling_factor": facts.need("mem_bw_scaling"),
        "mem_empirical_constant_latency": facts.need("mem_latency_s"),
        "mem_capacity": capacity,
        **{key: peak * 1e12 for key, peak in peaks_known.items() if peak is not None},
        "power": facts.need("power_w"),
        "sm_version": facts.need("sm_version"),
    }
    node = {key: facts.need(fact) * factor for key, (fact, factor) in NODE.items()}
    facts.check()
    described = {"data_dir": f"data/{name}", "gpu": gpu, "node": node}
    return _yaml(selection, {part: _whole(values) for part, values in described.items()})


def _whole(values: Any) -> Any:
    """Numbers that are whole as such: its readers compare some of them as integers."""
    if isinstance(values, dict):
        return {key: _whole(value) for key, value in values.items()}
    return int(values) if isinstance(values, float) and values.is_integer() else values


def _yaml(selection: Selection, values: dict[str, Any]) -> bytes:
    return f"# measured: {selection.origin}\n{yaml.safe_dump(values, sort_keys=False)}".encode()


EXPORTER = Exporter(
    export=export,
    facts=(
        *peaks(tuple(FLOPS)),
        *("memory_gb", "bandwidth_gb_s", "power_w", "mem_bw_scaling", "mem_latency_s", "sm_version"),
        *(fact for fact, _ in NODE.values()),
    ),
    options=("into", "name", "framework", "version"),
)
