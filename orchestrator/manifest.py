"""What a run's manifest must be where it is read again, for it may have been written by hand."""

from collections.abc import Mapping
from typing import Any

TYPES = {"config": dict, "conf": str, "overrides": list, "resumed": list, "seconds": dict, "status": str}
"""What of a manifest is read again, and what it must be."""
SECTIONS_READ = ("space", "timing", "rank")
"""Sections of its configuration that are read without being composed again."""


def wrong_in(manifest: Mapping[str, Any]) -> list[str]:
    """What of a manifest is not what is read again."""
    kinds = TYPES.items()
    wrong = [
        f"{name} is no {kind.__name__}" for name, kind in kinds if not isinstance(manifest.get(name, kind()), kind)
    ]
    if wrong:
        return wrong
    config = manifest.get("config", {})
    wrong = [f"config.{name} is no dict" for name in SECTIONS_READ if not isinstance(config.get(name, {}), dict)]
    top = config["rank"].get("top", 1) if isinstance(config.get("rank"), dict) else 1
    if type(top) is not int or top < 1:
        wrong.append("config.rank.top is no int >= 1")
    if not all(isinstance(word, str) for word in manifest.get("overrides", [])):
        wrong.append("overrides are not all str")
    if not all(isinstance(value, (int, float)) for value in manifest.get("seconds", {}).values()):
        wrong.append("seconds are not all numbers")
    return wrong
