"""Distributed sweep orchestrator for GEMM shapes."""

__version__ = "0.1.0"
