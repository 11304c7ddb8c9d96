"""Scores of rankings, and correlations with the scores that people gave.

With a single right answer per question all three are functions of its rank alone, counted from 1:

    hit rate at k     1 if rank <= k
    NDCG at k         1 / log2(1 + rank) if rank <= k   (Järvelin and Kekäläinen 2002)
    MRR               1 / rank

Ranks are among all candidates.  Scores among a hundred sampled candidates, as reported in much of
the literature, are far higher and may even order systems differently (Krichene and Rendle 2020).

Shape letters: n questions, v candidates.

Spearman's coefficient is Pearson's of the ranks; equal values share the mean of their ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError

UNRANKED = np.inf
"""Rank of a target that is not a candidate: it scores nothing."""


def ranks_of(
    scores: NDArray[np.floating[Any]], targets: NDArray[np.integer[Any]]
) -> NDArray[np.float64]:
    """Rank (n,) of candidate `targets` (n,) by scores (n, v), the highest first, among equal scores
    the lower number; candidates with score -inf are excluded."""
    target_scores = scores[np.arange(len(targets)), targets][:, None]
    lower_number = np.arange(scores.shape[1]) < targets[:, None]
    before = (scores > target_scores) | ((scores == target_scores) & lower_number)
    return np.where(np.isneginf(target_scores[:, 0]), UNRANKED, 1.0 + before.sum(1))


def ranking_scores(ranks: NDArray[np.float64], at: int = 10) -> dict[str, float]:
    """Hit rate and NDCG at `at`, and mean reciprocal rank, in percent, from ranks (n,).  Raises
    DataError."""
    if not len(ranks):
        raise DataError("nothing to measure: there are no rankings")
    hits = ranks <= at
    gains = np.where(hits, 1 / np.log2(1 + ranks), 0.0)
    return {
        f"hit_rate_{at}": 100 * float(hits.mean()),
        f"ndcg_{at}": 100 * float(gains.mean()),
        "mrr": 100 * float((1 / ranks).mean()),
    }


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
