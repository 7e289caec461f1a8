"""Measurements behind the figures in docs/benchmarks.md. Nothing here is a test: timings are never asserted."""
