"""calculon: a copy of a system file with the measured efficiency of the matrix unit by the size of the operation.

Its reader takes ``matrix.<dtype>: {tflops, gflops_efficiency: [[gflop, efficiency], …]}``; the first threshold that an
operation reaches counts, so they fall strictly and end at 0, and 0 < efficiency <= 1.
"""

import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.bounded import read_text
from orchestrator.errors import ExportError, InvalidValueError
from orchestrator.export.contract import Export, Exporter, kept
from orchestrator.export.facts import Facts, peaks
from orchestrator.export.request import Request
from orchestrator.export.selection import Entry, Selection

TARGET = "calculon"
DTYPES = {"fp16": "float16", "bf16": "bfloat16", "fp8": "float8", "fp32": "float32"}
NEEDED = {"vector": dict, "mem1": dict, "mem2": dict, "networks": list}
"""What a system file must say beside the matrix unit, and no run of Gemms knows."""
_JSON = {dict: "object", list: "list"}


def export(selection: Selection, request: Request) -> Export:
    """Write ``NAME.json``: the file of ``--into`` with ``matrix`` replaced."""
    if request.into is None or request.name is None:
        raise ExportError(
            f"calculon's systems also say {', '.join(NEEDED)}, which no run of Gemms knows: give one of its files by "
            "--into systems/….json and the copy's name by --as NAME"
        )
    entries, left_out = kept(TARGET, selection.entries, _why_not)
    base = _base(request.into)
    facts = Facts(target=TARGET, spec=selection.spec, given=request.facts)
    dtypes = [dtype for dtype in DTYPES if any(entry.gemm.dtype == dtype for entry in entries)]
    peak = {dtype: facts.peak(dtype) for dtype in dtypes}
    facts.check()
    matrix = {
        DTYPES[dtype]: {
            "tflops": peak[dtype],
            "gflops_efficiency": curve([entry for entry in entries if entry.gemm.dtype == dtype], peak[dtype]),
        }
        for dtype in dtypes
    }
    # The time of a measured Gemm holds that of its memory: adding it again would count it twice.
    system = {**base, "matrix": matrix, "processing_mode": "roofline"}
    notes = [f"measured: {selection.origin}", "processing_mode is roofline: a Gemm's time holds that of its memory"]
    if lacking := [name for name in matrix if name not in base["vector"]]:
        notes.append(f"{request.into} has no vector unit for {', '.join(lacking)}: calculon cannot run these without")
    try:
        text = json.dumps(system, indent=2) + "\n"
    except RecursionError as error:
        raise _too_deep(request.into) from error
    return Export(
        files={f"{request.name}.json": text.encode()},
        gemms=len(entries),
        left_out=left_out,
        notes=tuple(notes),
        sources=(request.into,),
    )


def curve(entries: Sequence[Entry], peak: float) -> list[list[float]]:
    """Return [[gflop, efficiency], …]: the median efficiency of the Gemms of each power of two of GFLOPs.

    What is smaller than all that was measured has the efficiency of the smallest.
    """
    bins: dict[int, list[float]] = {}
    for entry in entries:
        bins.setdefault(math.floor(math.log2(entry.gemm.flops / 1e9)), []).append(entry.tflops / peak)
    least = min(bins)
    found = {exponent: statistics.median(bins[exponent]) for exponent in sorted(bins, reverse=True)}
    dtype = entries[0].gemm.dtype
    for efficiency in found.values():
        if not 0 < efficiency <= 1:
            raise ExportError(
                f"Gemms reach {efficiency * peak:.4g} TFLOP/s of a peak of {peak:g}: {efficiency:.3g} is no "
                f"efficiency to calculon; give the peak as {peaks((dtype,))[0]}="
            )
    return [[0 if exponent == least else 2.0**exponent, efficiency] for exponent, efficiency in found.items()]


def _why_not(entry: Entry) -> str | None:
    if entry.gemm.dtype not in DTYPES:
        return f"Gemms in {entry.gemm.dtype}: it has no name for that"
    return None


def _base(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(path))
    except OSError as error:
        raise ExportError(f"--into {path}: {error.strerror or error}") from error
    except InvalidValueError as error:
        raise ExportError(f"--into {path} {error}") from error
    except ValueError as error:
        raise ExportError(f"--into {path} is no JSON: {error}") from error
    except RecursionError as error:
        raise _too_deep(path) from error
    missing = [key for key in NEEDED if not isinstance(found, dict) or key not in found]
    if missing:
        raise ExportError(f"--into {path} is no system of calculon: it has no {', '.join(missing)}")
    wrong = [f"{key} is no {_JSON[kind]}" for key, kind in NEEDED.items() if not isinstance(found[key], kind)]
    if wrong:
        raise ExportError(f"--into {path} is no system of calculon: {', '.join(wrong)}")
    return dict(found)


def _too_deep(path: Path) -> ExportError:
    return ExportError(f"--into {path} is nested too deeply")


EXPORTER = Exporter(export=export, facts=peaks(tuple(DTYPES)), options=("into", "name"), summary=True)
