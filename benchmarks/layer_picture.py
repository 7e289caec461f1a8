"""Draw what ``benchmarks.layer_share --out`` wrote: where a layer's time goes, by hidden size, as an SVG.

``python -m benchmarks.layer_picture layer_share.json docs/layer_share.svg``
"""

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

NAMES = {"unfused": "without FlashAttention", "flash": "with FlashAttention"}
GROUPS = ("GEMMs of MLP and projections", "attention GEMMs", "fused attention", "softmax and mask", "everything else")
COLOURS = ("#1f4e79", "#5b9bd5", "#f2a33a", "#c0504d", "#a6a6a6")
ATTENTION = ("attn_score", "attn_over_value")
SCORES = ("softmax", "scale_mask", "attn_dropout")


def group(component: dict[str, Any]) -> str:
    """The part of the bar that a component belongs to."""
    if component["kind"] == "attention":
        return GROUPS[2]
    if component["kind"] == "gemm":
        return GROUPS[1] if component["name"] in ATTENTION else GROUPS[0]
    return GROUPS[3] if component["name"] in SCORES else GROUPS[4]


def shares(variant: dict[str, Any]) -> dict[str, float]:
    """Share of each group of one variant, in percent."""
    found = dict.fromkeys(GROUPS, 0.0)
    for component in variant["components"]:
        found[group(component)] += 100 * (component["share"] or 0.0)
    return found


def draw(found: dict[str, Any], out: Path) -> None:
    """Write one panel per variant, one bar per h, with the GEMM share above it."""
    layers = found["layers"]
    labels = [str(layer["model"]["h"]) for layer in layers]
    figure, axes = plt.subplots(1, 2, figsize=(9, 4), sharey=True, layout="constrained")
    for index, axis in enumerate(axes):
        variants = [layer["variants"][index] for layer in layers]
        bottom = [0.0] * len(variants)
        for name, colour in zip(GROUPS, COLOURS, strict=True):
            heights = [shares(variant)[name] for variant in variants]
            axis.bar(labels, heights, bottom=bottom, color=colour, label=name, width=0.7)
            bottom = [low + high for low, high in zip(bottom, heights, strict=True)]
        for place, variant in enumerate(variants):
            axis.text(place, 101, f"GEMM {100 * (variant['gemm_share'] or 0):.0f}%", ha="center", fontsize=8)
        axis.set(title=NAMES[variants[0]["name"]], xlabel="h", ylim=(0, 108))
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].set_ylabel("share of the layer's latency, %")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, fontsize=8, frameon=False)
    first, gpu = layers[0], found["device"]["gpu"]
    run = f"{first['model']['mlp']} layer, b={first['b']}, s={first['s']}, {first['dtype']}"
    figure.suptitle(f"{gpu}: {run}", fontsize=10)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("svg", type=Path)
    arguments = parser.parse_args()
    draw(json.loads(arguments.json.read_text(encoding="utf-8")), arguments.svg)


if __name__ == "__main__":
    main()
