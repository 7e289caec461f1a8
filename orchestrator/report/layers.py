"""Measured layers in a report: the JSON that the verb ``layer`` prints, as shares of each component."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.bounded import read_text
from orchestrator.errors import InvalidValueError, each_of, shorten

VARIANTS = {"unfused": "without FlashAttention", "flash": "with FlashAttention"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """One component's share of a variant's latency. seconds: of one call; times: calls in a layer."""

    name: str
    kind: str
    share: float
    seconds: float
    times: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """One way to run one layer. gemm_share: of the Gemms alone."""

    title: str
    gpu: str
    seconds: float
    gemm_share: float | None
    components: tuple[Component, ...]


def read_layers(paths: Sequence[str]) -> list[Bar]:
    """Read the output of ``layer --json``, a bar for each layer and variant.

    Raises:
        InvalidValueError: a file cannot be read, or is something else; SeveralErrors where that is so of several.
    """
    return [bar for bars in each_of(_file, paths) for bar in bars]


def _file(path: str) -> list[Bar]:
    try:
        found = json.loads(read_text(Path(path)))
    except OSError as error:
        raise InvalidValueError(f"--layer {shorten(path)}: {error.strerror}") from error
    except InvalidValueError as error:
        raise InvalidValueError(f"--layer {shorten(path)} {error}") from error
    except (ValueError, RecursionError) as error:
        raise InvalidValueError(f"--layer {shorten(path)} is no JSON: {shorten(str(error))}") from error
    try:
        return list(_bars(found))
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise InvalidValueError(f"--layer {shorten(path)} is not what `layer --json` prints: {error!r}") from error


def _bars(document: Mapping[str, Any]) -> Iterator[Bar]:
    gpu = str(document["device"]["gpu"]) if document["device"] else ""
    for layer in document["layers"]:
        for variant in layer["variants"]:
            components = tuple(_component(each) for each in variant["components"] if each["share"] is not None)
            if components:
                share = variant["gemm_share"]
                yield Bar(
                    title=f"{_title(layer)}, {VARIANTS.get(variant['name'], str(variant['name']))}",
                    gpu=gpu,
                    seconds=float(variant["seconds"]),
                    gemm_share=None if share is None else float(share),
                    components=components,
                )


def _component(each: Mapping[str, Any]) -> Component:
    return Component(
        name=str(each["name"]),
        kind=str(each["kind"]),
        share=float(each["share"]),
        seconds=float(each["seconds"]["median"]),
        times=int(each["times"]),
    )


def _title(layer: Mapping[str, Any]) -> str:
    model = layer["model"]
    name = f"{model['name']} " if model.get("name") else ""
    return f"{name}h={model['h']} tp={layer['tp']} b={layer['b']} s={layer['s']} {layer['dtype']}"
