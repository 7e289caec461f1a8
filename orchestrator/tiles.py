"""The static model of a Gemm on a GPU: output tiles, waves of tiles over the SMs, and what both leave idle.

Source: NVIDIA, «Matrix Multiplication Background User's Guide», sections on tile and wave quantization. It knows
nothing of k, of alignment, and of kernels that share a tile between SMs (split-K, stream-K) or are persistent: explain
with it, see how well it fits a GPU's own measurements (``orchestrator.fit``), never rank by it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tasks.gemm import Gemm


@dataclass(frozen=True, kw_only=True, slots=True)
class Tile:
    """The part of C that one thread block computes: ``m`` rows and ``n`` columns."""

    m: int
    n: int

    @property
    def name(self) -> str:
        """As it is written in kernels' names: ``256x128``."""
        return f"{self.m}x{self.n}"

    @property
    def area(self) -> int:
        """Elements of C."""
        return self.m * self.n


TILES = (Tile(m=256, n=128), Tile(m=128, n=256), Tile(m=128, n=128), Tile(m=64, n=64))
"""Common tiles of cuBLAS, the largest first: a larger one reads less for each FLOP, a smaller one makes more tiles."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Quantisation:
    """How a Gemm's C falls into tiles, and the tiles into waves of one tile per SM.

    tile_efficiency: share of the tiles' area that is C. wave_efficiency: share of the waves' places that hold a tile.
    """

    tile: Tile
    tiles: int
    waves: int
    tile_efficiency: float
    wave_efficiency: float

    @property
    def efficiency(self) -> float:
        """Share of the SMs' work that is wanted."""
        return self.tile_efficiency * self.wave_efficiency


def quantise(gemm: Gemm, tile: Tile, sms: int) -> Quantisation:
    """Count tiles and waves of ``gemm`` over ``sms`` SMs: C = b·ceil(m/Tm)·ceil(n/Tn), W = ceil(C/S).

    >>> gemm = Gemm(kind="mm", b=1, m=2304, n=1537, k=4096, dtype="fp16")
    >>> (found := quantise(gemm, TILES[0], 108)).tiles, found.waves
    (117, 2)
    """
    tiles = gemm.b * -(-gemm.m // tile.m) * -(-gemm.n // tile.n)
    waves = -(-tiles // sms)
    return Quantisation(
        tile=tile,
        tiles=tiles,
        waves=waves,
        tile_efficiency=gemm.b * gemm.m * gemm.n / (tiles * tile.area),
        wave_efficiency=tiles / (waves * sms),
    )


def chosen(gemm: Gemm, sms: int) -> Quantisation:
    """Choose a tile as a library's heuristics would: the largest of which there is one for every SM, else the smallest.

    Of those equally large the one of fewer waves.
    """
    found = [quantise(gemm, tile, sms) for tile in TILES]
    full = [each for each in found if each.tiles >= sms]
    return max(full, key=lambda each: (each.tile.area, -each.waves)) if full else found[-1]


def cost(gemms: Sequence[Gemm], sms: int) -> float:
    """Predicted cost per FLOP of Gemms one after another, in units of a GPU without idle places."""
    total = sum(gemm.flops for gemm in gemms)
    return sum(gemm.flops / chosen(gemm, sms).efficiency for gemm in gemms) / total


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """The same Gemm with another ``m`` or ``n``. time, cost: predicted seconds, and seconds per FLOP, over its own."""

    dimension: str
    value: int
    tiles: int
    waves: int
    time: float
    cost: float


def neighbours(gemm: Gemm, sms: int, dimension: str) -> tuple[Neighbour, ...]:
    """The values of ``dimension`` around the Gemm's own at which its tiles or waves are just full, in order.

    The tile stays that of the Gemm.
    """
    own = chosen(gemm, sms)
    size, step = getattr(gemm, dimension), getattr(own.tile, dimension)
    across = own.tiles // -(-size // step)  # tiles of one step along the dimension
    edges = [size // step * step, -(-size // step) * step]
    edges += [waves * sms // across * step for waves in (own.waves - 1, own.waves)]
    around = sorted({edge for edge in edges if edge > 0} | {size})
    return tuple(_neighbour(gemm, own, sms, dimension, value) for value in around)


def _neighbour(gemm: Gemm, own: Quantisation, sms: int, dimension: str, value: int) -> Neighbour:
    other = replace(gemm, m=value) if dimension == "m" else replace(gemm, n=value)
    found = quantise(other, own.tile, sms)
    return Neighbour(
        dimension=dimension,
        value=value,
        tiles=found.tiles,
        waves=found.waves,
        time=found.waves / own.waves,
        cost=own.efficiency / found.efficiency,
    )
