"""Rules of ``capacity``'s words that are amounts: a number, or one for each GPU model."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator import catalogue
from orchestrator.errors import InvalidValueError, shorten, unknown
from orchestrator.rules import Rule

MOST = 1e30
"""No amount is larger, nor smaller than one part in it: what follows from several of them stays finite."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PerGpu:
    """One amount for all GPU models, or one for each by the catalogue's key or family."""

    every: float | None = None
    by_name: Mapping[str, float]

    def of(self, spec: catalogue.GpuSpec | None) -> float | None:
        """Return the amount of a GPU model, by its key before its family; None where there is none."""
        names = () if spec is None else (spec.key, spec.family)
        return next((self.by_name[name] for name in names if name in self.by_name), self.every)


@dataclass(frozen=True, kw_only=True, slots=True)
class Amount(Rule):
    """A number above 0, such as 2.5 or 15e12."""

    type_text: str = "a number above 0"

    def _check(self, value: object) -> float:
        return _amount(str(value))


@dataclass(frozen=True, kw_only=True, slots=True)
class AmountPerGpu(Rule):
    """A number above 0, or one for each GPU model: ``h100:2.5,h200:3.5``."""

    type_text: str = "a number above 0, or GPU:number,…"

    def _check(self, value: object) -> PerGpu:
        every: float | None = None
        by_name: dict[str, float] = {}
        for part in str(value).split(","):
            name, colon, amount = (each.strip() for each in part.rpartition(":"))
            if name in by_name or (not colon and every is not None):
                raise InvalidValueError(f"'{shorten(part.strip())}' comes second; give one number, or one for each GPU")
            if not colon:
                every = _amount(amount)
            elif name not in catalogue.names():
                raise InvalidValueError(unknown("GPU", name, catalogue.names()))
            else:
                by_name[name] = _amount(amount)
        return PerGpu(every=every, by_name=by_name)


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise InvalidValueError(f"'{shorten(text)}' is not a number above 0, such as 2.5 or 15e12")
    if not 1 / MOST <= value <= MOST:
        raise InvalidValueError(f"{1 / MOST:g} <= value <= {MOST:g} must hold, but got {value:g}")
    return value
