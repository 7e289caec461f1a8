"""The GPU catalogue: published facts of each model with their source, and which device is which model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from orchestrator.errors import InvalidValueError, unknown

WHOLE_DEVICE = 0.7
"""A device with less than this share of the model's memory is a slice of it (MIG, a partition), not the model."""

PEAK_OF = {"fp8_rowwise": "fp8"}
"""The dtype under which an entry has the peak of another one: both use the same units of the chip."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GpuSpec:
    """Published facts of one GPU model; None where a fact is unknown or has not been verified.

    names: regular expressions for the whole name that a device gives itself. sm_count: streaming multiprocessors
    or compute units. peak_tflops: dense peak per dtype, in TFLOP/s (int8: TOP/s); a dtype is None where there is no
    such figure; ``peak`` answers for every dtype.
    llc_mb: last-level cache behind L2. intra_node_gb_s: bandwidth to the other GPUs of a node, of all links, one
    direction. best_bf16_tflops: highest bf16 rate published by a search over shapes.
    """

    key: str
    family: str
    names: tuple[str, ...]
    vendor: str
    sm_count: int
    memory_gb: float
    bandwidth_gb_s: float
    l2_mb: float | None
    llc_mb: float | None
    boost_mhz: float | None
    power_w: float | None
    intra_node_gb_s: float | None
    peak_tflops: Mapping[str, float | None]
    best_bf16_tflops: float | None
    sources: tuple[str, ...]

    def is_name(self, name: str) -> bool:
        """Return whether a device that calls itself ``name`` is this model."""
        return any(re.fullmatch(pattern, name.strip(), re.IGNORECASE) for pattern in self.names)

    def peak(self, dtype: str) -> float | None:
        """Return the dense peak in ``dtype``, in TFLOP/s; None where none is known."""
        return self.peak_tflops.get(PEAK_OF.get(dtype, dtype))


@cache
def load() -> Mapping[str, GpuSpec]:
    """Return the catalogue by key, ordered by key."""
    entries = sorted(files("conf").joinpath("gpu").iterdir(), key=lambda entry: entry.name)
    specs = (_spec(entry.name[:-5], entry.read_text("utf-8")) for entry in entries if entry.name.endswith(".yaml"))
    return MappingProxyType({spec.key: spec for spec in specs})


@cache
def match(name: str, memory_bytes: int | None = None) -> GpuSpec | None:
    """Return the model of a device from its own name and, where known, its memory; None for an unknown or a slice.

    >>> match("NVIDIA H200").key
    'h200'
    """
    found = [spec for spec in load().values() if spec.is_name(name)]
    if memory_bytes is not None:
        found = [spec for spec in found if memory_bytes / 1e9 >= WHOLE_DEVICE * spec.memory_gb]
        found.sort(key=lambda spec: abs(memory_bytes / 1e9 - spec.memory_gb))
    return found[0] if found else None


def names() -> tuple[str, ...]:
    """Return all that ``cluster.gpu`` may name: families first, then keys."""
    families = dict.fromkeys(spec.family for spec in load().values())
    return tuple(dict.fromkeys((*families, *load())))


def family_or_key(text: str) -> tuple[GpuSpec, ...]:
    """Return the models that ``text`` names: one for a key, all of a family; else InvalidValueError."""
    if text in load():
        return (load()[text],)
    family = tuple(spec for spec in load().values() if spec.family == text)
    if not family:
        raise InvalidValueError(unknown("GPU", text, names()))
    return family


def representative(text: str) -> GpuSpec:
    """Return the model that stands for ``text``: of a family the one that its ready-made sweep is planned for.

    >>> representative("h100").key
    'h100-sxm'
    """
    models = family_or_key(text)
    sweep = files("conf").joinpath(f"{text}.yaml")
    if len(models) == 1 or not sweep.is_file():
        return models[0]
    key = (_read(sweep.read_text("utf-8")).get("cluster") or {}).get("reference_gpu")
    return next((spec for spec in models if spec.key == key), models[0])


def _read(text: str) -> dict[str, Any]:
    # libyaml's loader, where PyYAML has it, is five times faster
    facts: dict[str, Any] = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return facts


def _spec(key: str, text: str) -> GpuSpec:
    facts = _read(text)
    facts["names"], facts["sources"] = tuple(facts["names"]), tuple(facts["sources"])
    facts["peak_tflops"] = MappingProxyType(facts["peak_tflops"])
    return GpuSpec(key=key, **facts)
