"""Devices that benchmarks open; what is measured on is said first."""

import argparse

from benchmarks.families import TOKENS_OF, tokens
from tasks.device import Device, open_device
from tasks.family import Bundle
from tasks.settings import Timing

SMALL_CACHE = 2**20
"""What counts as the last-level cache for the small shapes: to flush a server's takes longer than they do."""


def opened(kind: str = "cuda") -> Device:
    """Open the device of a kind, and print what it is."""
    device = open_device(kind)
    print(f"{device.info.gpu}, torch {device.info.torch}, {device.info.runtime}, driver {device.info.driver}")
    return device


def opened_for_tokens(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, Device, Bundle]:
    """Ask for the shapes that differ in M, on which device, and for how long; open it."""
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--shapes", choices=tuple(TOKENS_OF), default="all", help="small: 8, to try it, any cache")
    parser.add_argument("--warmup-s", type=float, default=Timing().warmup_s, help="of sequential (default: 30)")
    parser.add_argument("--max-seconds", type=float, default=3.0, help="of the rounds, beyond the least")
    asked = parser.parse_args()
    device = opened(asked.device)
    if asked.shapes == "small":
        device.cache_bytes = SMALL_CACHE
    (bundle,) = tokens(asked.shapes)[1]
    return asked, device, bundle
