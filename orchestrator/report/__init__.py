"""Runs to look at: one HTML file, Markdown, or a single plot; one format a module."""

from collections.abc import Mapping
from types import MappingProxyType

FORMATS: Mapping[str, str] = MappingProxyType(
    {
        "html": "one file with everything in it, for a browser, without a network",
        "md": "the same facts as Markdown, to standard output unless --out says otherwise",
        "png": "one plot as pixels",
        "svg": "one plot as vectors",
    }
)
"""Name and one line of help."""

PLOTS: Mapping[str, str] = MappingProxyType(
    {
        "family": "TFLOP/s against what was chosen, of one Family",
        "heatmap": "the best TFLOP/s of each Family over two dimensions",
        "gain": "the gain over the baseline of each Family over two dimensions",
        "roofline": "what was measured under the ceilings of the catalogue",
        "drift": "the devices' clocks, power and temperature over time",
    }
)
"""The single plots of ``png`` and ``svg``."""
