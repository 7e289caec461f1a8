"""The vectorized statistics against numpy's own, and several devices in one Family."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contest import PERCENTILES, percentiles
from orchestrator.ranking import rank
from orchestrator.store import RunStore
from tests.builders import per_flop, up_family
from tests.fleets import Fake, keep


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=0, max_size=30), min_size=1, max_size=5))
def test_percentiles_skip_missing_rounds_and_agree_with_numpy(columns: list[list[float]]) -> None:
    rounds = max(map(len, columns))
    values = np.full((rounds, len(columns)), np.nan)
    for i, column in enumerate(columns):
        values[rounds - len(column) :, i] = column
    found = percentiles(values, PERCENTILES)
    for i, column in enumerate(columns):
        expected = np.percentile(column, PERCENTILES) if column else np.full(len(PERCENTILES), np.nan)
        assert found[:, i] == pytest.approx(expected, nan_ok=True)


def test_seconds_are_the_median_over_the_devices_however_many_rounds_each_made(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "run", {})
    family = up_family([128])
    for uuid, slower, rounds in (("GPU-0", 1.0, 90), ("GPU-1", 1.02, 10), ("GPU-2", 1.10, 10)):
        keep(store, Fake(uuid=uuid), family, per_flop({}), slower=slower, rounds=rounds)
    (row,) = rank(store).table.to_pylist()
    sound = family.gemms[0].flops * 1e-12
    assert [row[name] / sound for name in ("p5_s", "seconds", "p95_s")] == pytest.approx([1.02] * 3)
    assert row["parts"][0]["seconds"] == pytest.approx(row["seconds"])
    assert row["cv"] == pytest.approx(0.0, abs=1e-9)
    assert (row["rounds"], row["samples"]) == (110, 110)


def test_one_that_failed_on_one_device_is_compared_on_the_other_where_nobody_left(tmp_path: Path) -> None:
    store = RunStore.create(tmp_path, "run", {})
    family = up_family([128, 256, 512])
    cost = per_flop({128: 1.0, 256: 1.1, 512: 1.2})
    failed = {family.gemms[1].gemm_id: ("oom", "needs 3 GiB")}
    keep(store, Fake(uuid="GPU-0"), family, cost, rounds=20, noise=0.001)
    keep(store, Fake(uuid="GPU-1"), family, cost, rounds=20, noise=0.001, slower=1.3, status=failed)
    rows = rank(store).table.to_pylist()
    assert [row["relative"] for row in rows] == pytest.approx([1.0, 1.1, 1.2], abs=0.003)
    assert [row["rounds"] for row in rows] == [40, 20, 40]
    assert all(row["relative_high"] - row["relative_low"] < 0.01 for row in rows)
