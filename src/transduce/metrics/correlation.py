"""Rank and linear correlation of scores with the scores that people gave.

Spearman's coefficient is Pearson's of the ranks; equal values share the mean of their ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError

Floats = NDArray[np.floating[Any]]


def correlation_scores(predicted: Floats, right: Floats) -> dict[str, float]:
    """Spearman's and Pearson's coefficients of two arrays (n,), times 100; 0 if an array has
    equal values alone.  Raises DataError for fewer than two items."""
    if len(right) < 2:
        raise DataError(f"a correlation needs two items or more, but there are {len(right)}")
    return {
        "spearman": 100 * pearson(ranks(predicted), ranks(right)),
        "pearson": 100 * pearson(predicted, right),
    }


def pearson(a: Floats, b: Floats) -> float:
    """Pearson's coefficient of two arrays (n,); 0 where all values of an array are equal."""
    a, b = a.astype(np.float64) - a.mean(), b.astype(np.float64) - b.mean()
    scale = np.sqrt((a @ a) * (b @ b))
    return float(a @ b / scale) if scale else 0.0


def ranks(values: Floats) -> NDArray[np.float64]:
    """Rank (n,) of each value from 0; equal values have their mean."""
    _, group, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = (ends - (counts + 1) / 2)[group]
    return means
