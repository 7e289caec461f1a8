"""Formats of other tools: one target a module, behind the contract of ``contract.py``."""

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orchestrator.export.contract import Exporter

TARGETS: Mapping[str, str] = MappingProxyType(
    {
        "aiconfigurator": "a system with our GEMM table (gemm_perf.parquet); or, by --into, a copy of one of its own",
        "calculon": "a copy of a system file (--into) with measured efficiencies of the matrix unit",
        "vidur": "mlp.csv, the layer's linear operators by tokens and tensor-parallel size",
        "llm-analysis": "a GPU file, and the flags with the rate that was achieved",
        "csv": "one row a Gemm, for everyone else",
    }
)
"""Name and one line of help. A target's module is imported only when it is used."""


def exporter(target: str) -> "Exporter":
    """Return the exporter of a target of TARGETS."""
    found: Exporter = importlib.import_module(f"orchestrator.export.{target.replace('-', '_')}").EXPORTER
    return found
