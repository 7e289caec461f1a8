"""How many GPUs a target needs, and what they cost."""

import math
from dataclasses import dataclass

from orchestrator.capacity_layout import Layout

HOUR, DAY = 3600, 86_400
ROUNDING = 1e-9
"""A quotient this close above a whole number is that number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Tokens a second, or so many tokens in so many days."""

    tokens_per_s: float | None = None
    tokens: float | None = None
    days: float | None = None

    @property
    def rate(self) -> float:
        """Tokens a second."""
        if self.tokens_per_s is not None:
            return self.tokens_per_s
        assert self.tokens is not None
        assert self.days is not None
        return self.tokens / (self.days * DAY)

    def __str__(self) -> str:
        """Return it as a reader would say it."""
        if self.tokens_per_s is not None:
            return f"{_short(self.tokens_per_s)} tokens/s"
        assert self.tokens is not None
        assert self.days is not None
        return f"{_short(self.tokens)} tokens in {_short(self.days)} days"


def _short(value: float) -> str:
    return f"{value:.4g}" if value >= 1e9 or value < 1 else f"{value:,.10g}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Needed:
    """Whole replicas and their GPUs; gpu_hours and cost: of all the tokens, or of an hour where they have no end.

    days: that the tokens then take, None without an end. cost: None without a price.
    """

    replicas: int
    gpus: int
    gpu_hours: float
    days: float | None
    cost: float | None


def needed(layout: Layout, target: Target, tokens_per_gpu_s: float, price: float | None) -> Needed:
    """Return what a target needs at this rate of one GPU."""
    replica_rate = tokens_per_gpu_s * layout.replica_gpus
    replicas = max(1, math.ceil(target.rate / replica_rate * (1 - ROUNDING)))
    gpus = replicas * layout.replica_gpus
    if target.tokens is None:
        hours, days = float(gpus), None
    else:
        hours, days = target.tokens / tokens_per_gpu_s / HOUR, target.tokens / (replica_rate * replicas) / DAY
    cost = None if price is None else hours * price
    return Needed(replicas=replicas, gpus=gpus, gpu_hours=hours, days=days, cost=cost)


def cost_per_million(tokens_per_gpu_s: float, price: float) -> float:
    """Return the price of a million tokens."""
    return 1e6 / tokens_per_gpu_s / HOUR * price
