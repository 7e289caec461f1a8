"""Tiles and waves, worked out by hand."""

import pytest

from orchestrator.tiles import TILES, Tile, chosen, cost, neighbours, quantise
from tasks.gemm import Gemm

WIDE, TALL, SQUARE, SMALL = TILES
A100_SMS = 108


def mm(m: int, n: int, k: int = 4096) -> Gemm:
    return Gemm(kind="mm", b=1, m=m, n=n, k=k, dtype="fp16", layout="nt")


def bmm(b: int, m: int, n: int, k: int = 64) -> Gemm:
    return Gemm(kind="bmm", b=b, m=m, n=n, k=k, dtype="fp16")


@pytest.mark.parametrize(
    ("gemm", "tile", "sms", "tiles", "waves", "tile_efficiency", "wave_efficiency"),
    [
        # the published cliff: 9 x 12 tiles are one wave of 108 SMs, one more column of C begins a second
        (mm(2304, 1536), WIDE, A100_SMS, 108, 1, 1.0, 1.0),
        (mm(2304, 1537), WIDE, A100_SMS, 117, 2, 1537 / 1664, 117 / 216),
        (mm(256, 128), WIDE, 132, 1, 1, 1.0, 1 / 132),
        (mm(1, 1), SMALL, 10, 1, 1, 1 / 4096, 0.1),
        (mm(257, 129), WIDE, 4, 4, 1, 257 * 129 / (4 * 32768), 1.0),
        (mm(8192, 4096), WIDE, 132, 1024, 8, 1.0, 1024 / 1056),
        (mm(128, 256), TALL, 1, 1, 1, 1.0, 1.0),
        (mm(128, 256), WIDE, 1, 2, 2, 0.5, 1.0),
        # a batch has tiles of its own for every matrix: 128 x 2 x 2
        (bmm(128, 100, 100), SMALL, 100, 512, 6, 100 * 100 / (4 * 4096), 512 / 600),
    ],
)
def test_tiles_and_waves(
    gemm: Gemm, tile: Tile, sms: int, tiles: int, waves: int, tile_efficiency: float, wave_efficiency: float
) -> None:
    found = quantise(gemm, tile, sms)
    assert (found.tiles, found.waves) == (tiles, waves)
    assert found.tile_efficiency == pytest.approx(tile_efficiency)
    assert found.wave_efficiency == pytest.approx(wave_efficiency)
    assert found.efficiency == pytest.approx(tile_efficiency * wave_efficiency)


def test_k_changes_nothing() -> None:
    assert quantise(mm(512, 512, 1), SQUARE, 132) == quantise(mm(512, 512, 8192), SQUARE, 132)


@pytest.mark.parametrize(
    ("gemm", "sms", "tile"),
    [
        (mm(8192, 11008), 132, WIDE),  # 2752 tiles either way: the first of the equals
        (mm(2304, 1536), A100_SMS, WIDE),  # 108 tiles are just enough
        (mm(2304, 1408), A100_SMS, TALL),  # 18 x 6 = 108 of 128x256, where 256x128 has 9 x 11 = 99
        (mm(1024, 1024), 64, SQUARE),  # 32 large tiles, 64 square ones
        (mm(1024, 1024), 65, SMALL),
        (mm(16, 4096), 132, SMALL),  # 64 tiles of the smallest: too few for the SMs, and none is better
    ],
)
def test_the_largest_tile_that_gives_every_sm_one_is_taken(gemm: Gemm, sms: int, tile: Tile) -> None:
    assert chosen(gemm, sms).tile == tile


def test_of_equally_large_tiles_the_one_of_fewer_waves_is_taken() -> None:
    gemm = mm(128 * 3, 256 * 40)  # 256x128: 2 x 80 = 160 tiles, 2 waves; 128x256: 3 x 40 = 120, one
    assert (quantise(gemm, WIDE, 120).waves, quantise(gemm, TALL, 120).waves) == (2, 1)
    assert chosen(gemm, 120).tile == TALL


def test_what_a_gpu_without_idle_places_does_costs_one() -> None:
    assert cost([mm(2304, 1536)], A100_SMS) == pytest.approx(1.0)


def test_parts_count_by_their_flops() -> None:
    full, half = mm(2304, 1536, 3000), mm(2304, 1537, 1000)
    shares = full.flops + half.flops * (2 * A100_SMS * 32768) / (2304 * 1537)  # the second: two waves of 108 tiles
    assert cost([full, half], A100_SMS) == pytest.approx(shares / (full.flops + half.flops))


def test_the_cliff_lies_between_two_neighbours() -> None:
    before, own, *after = neighbours(mm(2304, 1537), A100_SMS, "n")
    assert (before.value, before.waves, before.tiles) == (1536, 1, 108)
    assert before.time == pytest.approx(0.5)
    assert before.cost == pytest.approx(0.5 * 1537 / 1536)
    assert (own.value, own.waves, own.time, own.cost) == (1537, 2, 1.0, 1.0)
    # 13 columns of tiles are full at 1664; two waves of 108 hold 24 columns of 9
    assert [(each.value, each.waves) for each in after] == [(1664, 2), (3072, 2)]
    assert after[-1].cost == pytest.approx(1537 / 3072)


def test_a_gemm_that_fits_exactly_is_its_own_edge() -> None:
    # no wave fits before the first, and none of m's steps is begun
    assert [each.value for each in neighbours(mm(2304, 1536), A100_SMS, "m")] == [2304]


@pytest.mark.parametrize("dimension", ["m", "n"])
@pytest.mark.parametrize("gemm", [mm(1000, 3000), mm(17, 130), bmm(9, 700, 333), mm(8192, 2736)])
def test_one_more_than_an_edge_begins_another_tile_or_wave(gemm: Gemm, dimension: str) -> None:
    for each in neighbours(gemm, 132, dimension):
        if each.value == getattr(gemm, dimension):
            continue
        sizes = {"m": gemm.m, "n": gemm.n, dimension: each.value + 1}
        more = quantise(bmm(gemm.b, sizes["m"], sizes["n"]), chosen(gemm, 132).tile, 132)
        assert more.tiles > each.tiles
