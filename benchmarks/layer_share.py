"""How much of a layer's time is matrix products, by hidden size: the paper's figure 2 on this GPU.

``python -m benchmarks.layer_share [--mlp swiglu] [--out layer_share.json]``; a GELU layer with learned positions, as
in «The Case for Co-Designing Model Architectures with Hardware», is the default.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.layer_arguments import parse
from orchestrator.layer_result import document, measure, timing_of
from orchestrator.one_gpu import open_one

H = (2560, 4096, 8192, 16384)
LEAST_SHARE = 0.8
"""What the share of the Gemms is to exceed at the largest h."""


def words(mlp: str, batch: int, seq: int, sizes: Sequence[int]) -> list[str]:
    """The layers as the verb ``layer`` takes them: heads of 128, as many key/value heads, no dropout."""
    learned = [f"positions={seq}"] if mlp == "gelu" else []
    return [f"h={','.join(map(str, sizes))}", "head_dim=128", f"mlp={mlp}", f"b={batch}", f"s={seq}", *learned]


def table(layers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table, one per h and variant."""
    yield "| h | attention | sum ms | GEMM share | with fused | TFLOP/s | end to end ms | sum is longer by |"
    yield "|---:|---|---:|---:|---:|---:|---:|---:|"
    for layer in layers:
        for variant in layer["variants"]:
            yield f"| {' | '.join(_cells(layer, variant))} |"


def components(layers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of a Markdown table: the share of each component, one column per h, one row per variant and component."""
    yield f"| attention | component | {' | '.join(str(layer['model']['h']) for layer in layers)} |"
    yield f"|---|---|{'---:|' * len(layers)}"
    for index, variant in enumerate(layers[0]["variants"]):
        names = dict.fromkeys(each["name"] for layer in layers for each in layer["variants"][index]["components"])
        for name in names:
            shares = [_share(layer["variants"][index], name) for layer in layers]
            yield f"| {variant['name']} | {name} | {' | '.join(map(_percent, shares))} |"


def _share(variant: dict[str, Any], name: str) -> float | None:
    return next((each["share"] for each in variant["components"] if each["name"] == name), None)


def _cells(layer: dict[str, Any], variant: dict[str, Any]) -> tuple[str, ...]:
    whole = variant["end_to_end_s"]
    rate = variant["tflops"]
    return (
        str(layer["model"]["h"]),
        variant["name"] + (f" without {', '.join(variant['missing'])}" if variant["missing"] else ""),
        f"{variant['seconds'] * 1e3:.3f}",
        _percent(variant["gemm_share"]),
        _percent(variant["product_share"]),
        "-" if rate is None else f"{rate:.0f}",
        "-" if whole is None else f"{whole['median'] * 1e3:.3f}",
        _percent(variant["apart"]),
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}%"


def verdict(layers: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Whether the share of the Gemms grows with h, and what it is at the largest."""
    for index, variant in enumerate(layers[0]["variants"]):
        shares = [layer["variants"][index]["gemm_share"] or 0.0 for layer in layers]
        grows = all(a < b for a, b in pairwise(shares))
        enough = "more" if shares[-1] > LEAST_SHARE else "no more"
        yield (
            f"{variant['name']}: the GEMM share {'grows' if grows else 'does not grow'} with h; "
            f"{_percent(shares[-1])} at {layers[-1]['model']['h']}, {enough} than {_percent(LEAST_SHARE)}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mlp", choices=("gelu", "swiglu"), default="gelu")
    parser.add_argument("--h", type=int, nargs="+", default=H)
    parser.add_argument("--b", type=int, default=1)
    parser.add_argument("--s", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--out", type=Path, help="write everything, samples too, as JSON")
    arguments = parser.parse_args()
    asked = parse([*words(arguments.mlp, arguments.b, arguments.s, arguments.h), f"rounds={arguments.rounds}"])
    device = open_one()
    info = device.info
    print(
        f"{info.gpu}, torch {info.torch}, {info.runtime}, {info.blas}, driver {info.driver}; {arguments.mlp}\n",
        flush=True,
    )
    timing = timing_of(asked.rounds, asked.seed, on_cpu=info.kind == "cpu")
    results = []
    for case in asked.cases:
        print(f"h={case.model.h} …", file=sys.stderr, flush=True)
        results.append(measure(device, case, timing))
    found = document(results)
    layers = found["layers"]
    print("\n".join([*table(layers), "", *verdict(layers), "", *components(layers)]))
    if arguments.out:
        arguments.out.write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
