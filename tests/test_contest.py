"""The vectorized statistics against numpy's own, column by column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.contest import PERCENTILES, percentiles


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
