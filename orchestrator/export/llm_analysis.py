"""llm-analysis: a GPU file for its ``gpu_configs`` folder, and the flags that give it the achieved rate."""

import json
from collections.abc import Sequence

from orchestrator.export.contract import Export, Exporter, kept
from orchestrator.export.facts import Facts
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection

TARGET = "llm-analysis"
DTYPES = {"fp16": "w16a16e16", "bf16": "w16a16e16", "int8": "w8a8e16"}
"""Its names of data types by bits: weights, activations, embeddings."""
FLAGS = "flags.txt"


def export(selection: Selection, request: Request) -> Export:
    """Write ``gpu_configs/NAME.json``, all that its GPUConfig wants, and ``flags.txt``, one line a dtype.

    The achieved rate is that of all the Gemms together: their FLOPs over their time.
    """
    entries, left_out = kept(TARGET, selection.entries, _why_not)
    facts = Facts(target=TARGET, spec=selection.spec, given=request.facts)
    name = request.name or f"measured-{selection.key}"
    gpu = {
        "name": name,
        "mem_per_GPU_in_GB": facts.need("memory_gb"),
        "hbm_bandwidth_in_GB_per_sec": facts.need("bandwidth_gb_s"),
        "intra_node_bandwidth_in_GB_per_sec": facts.need("intra_node_gb_s"),
        "intra_node_min_message_latency": facts.need("p2p_latency_s"),
        "peak_fp16_TFLOPS": facts.need("peak_fp16"),
    }
    optional = {"peak_i8_TFLOPS": "peak_int8", "inter_node_bandwidth_in_GB_per_sec": "inter_node_gb_s"}
    gpu |= {key: value for key, fact in optional.items() if (value := facts.known(fact)) is not None}
    if any(entry.gemm.dtype == "int8" for entry in entries):
        facts.need("peak_int8")
    facts.check()
    dtypes = [dtype for dtype in DTYPES if any(entry.gemm.dtype == dtype for entry in entries)]
    lines = [f"# measured: {selection.origin}"]
    for dtype in dtypes:
        rate = achieved([entry for entry in entries if entry.gemm.dtype == dtype])
        lines += [f"# {dtype}", f"--gpu_name {name} --dtype_name {DTYPES[dtype]} --achieved_tflops {rate}"]
    notes = [f"it finds {name} once {name}.json lies in the gpu_configs folder of its package"]
    notes += [f"no {key}: it puts a figure of its own there" for key in optional if key not in gpu]
    files = {f"gpu_configs/{name}.json": json.dumps(gpu, indent=4) + "\n", FLAGS: "\n".join(lines) + "\n"}
    return Export(
        files={path: text.encode() for path, text in files.items()},
        gemms=len(entries),
        left_out=left_out,
        notes=tuple(notes),
    )


def achieved(entries: Sequence[Entry]) -> float:
    """Return the rate of the Gemms one after another, in TFLOP/s."""
    return sum(entry.gemm.flops for entry in entries) / sum(entry.seconds for entry in entries) / 1e12


def _why_not(entry: Entry) -> str | None:
    if entry.gemm.dtype not in DTYPES:
        return f"Gemms in {entry.gemm.dtype}: it has no name for that"
    return None


EXPORTER = Exporter(
    export=export,
    facts=(
        *("memory_gb", "bandwidth_gb_s", "intra_node_gb_s", "p2p_latency_s", "peak_fp16"),
        *("peak_int8", "inter_node_gb_s"),
    ),
    options=("name",),
    summary=True,
)
