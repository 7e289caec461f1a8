"""Families of every kind, for tests that compare many at once with each alone. coarse: with equal Candidates."""

from typing import Any

from hypothesis import strategies as st

KINDS: dict[str, st.SearchStrategy[Any]] = {
    "candidates": st.integers(2, 7),
    "noise": st.sampled_from([0.0, 1e-4, 3e-3, 0.05]),
    "tie_pct": st.sampled_from([0.0, 0.5, 2.0]),
    "looks": st.sampled_from([1, 5]),
    "coarse": st.booleans(),
    "seed": st.integers(0, 2**32 - 1),
}
