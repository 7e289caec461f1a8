"""Quantiles of Student's T for many pairs at once."""

import numpy as np
from numpy.typing import NDArray

from tasks.location import Floats, t_quantile


def quantiles(alpha: float, df: NDArray[np.int64]) -> Floats:
    """Return t with P(|T| > t) == alpha for each number of degrees of freedom; infinite for none."""
    there = np.bincount(df.reshape(-1), minlength=1) > 0
    table = [t_quantile(alpha, each) if each and found else np.inf for each, found in enumerate(there.tolist())]
    return np.asarray(np.array(table)[df])
