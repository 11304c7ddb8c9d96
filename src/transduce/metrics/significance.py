"""How sure a score is, and whether one system is better than another or was lucky."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transduce.errors import SettingError
from transduce.metrics.metric import Metric, Statistics


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same items, in percent points of one metric.

    difference: score_b - score_a; which sign is better, the metric's `higher_is_better` says.
    low, high:  95 % confidence interval of the difference.
    p_value:    see `paired_bootstrap`.
    """

    score_a: float
    score_b: float
    difference: float
    low: float
    high: float
    p_value: float


def paired_bootstrap(
    metric: Metric,
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Compare two systems by paired bootstrap resampling (Koehn 2004).

    Each of the `samples` draws n of the n items with replacement, the same items for both
    systems, and takes the difference d_i of the two scores.  The interval runs from the 2.5th to
    the 97.5th percentile of the d_i.  The p-value follows sacreBLEU: with d the difference on the
    whole test set and m the mean of |d_i|,

        p = (c + 1) / (samples + 1),   c = number of samples with |d_i| - m >= |d|

    where sacreBLEU counts `>`, which would call two identical systems different (p = 1/1001).
    For clear differences this is about a one-sided p-value, so close to 0.05 the interval is the
    stricter of the two.

    samples: a thousand settle the second decimal of p.
    seed: the same seed draws the same items; the default is sacreBLEU's.
    Raises SettingError if samples < 1 or seed < 0, DataError as the metric's `statistics` does.
    """
    rows_a = metric.statistics(hypotheses_a, references)
    rows_b = metric.statistics(hypotheses_b, references)
    score_a, score_b = metric.score(rows_a.sum(0)), metric.score(rows_b.sum(0))
    # k may differ between the two, as where one of them answers with labels of its own.
    k = rows_a.shape[1]
    sums = _resample(np.concatenate([rows_a, rows_b], axis=1), samples, seed)
    differences = np.array([metric.score(both[k:]) - metric.score(both[:k]) for both in sums])
    low, high = _middle(differences)
    sizes = np.abs(differences)
    extreme = int(np.count_nonzero(sizes - sizes.mean() >= abs(score_b - score_a)))
    return Comparison(
        score_a=score_a,
        score_b=score_b,
        difference=score_b - score_a,
        low=low,
        high=high,
        p_value=(extreme + 1) / (samples + 1),
    )


def bootstrap_interval(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> tuple[float, float]:
    """95 % confidence interval of one system's score, by the samples of `paired_bootstrap`.

    It covers the luck of the items, not that of the training.  Raises the same.
    """
    sums = _resample(metric.statistics(hypotheses, references), samples, seed)
    return _middle(np.array([metric.score(each) for each in sums]))


def _middle(scores: Statistics) -> tuple[float, float]:
    """Where the middle 95 % of the samples lie."""
    low, high = np.percentile(scores, [2.5, 97.5])
    return float(low), float(high)


def _resample(rows: Statistics, samples: int, seed: int) -> Statistics:
    """Sums (samples, k) of the statistics (n, k) of drawn items."""
    if samples < 1:
        raise SettingError(f"samples is {samples}; a bootstrap needs at least 1, 1000 is usual")
    if seed < 0:
        raise SettingError(f"seed is {seed}; it must not be negative")
    rng = np.random.default_rng(seed)
    n = len(rows)
    sums = np.empty((samples, rows.shape[1]))
    for i in range(samples):
        # how often each item is drawn: n numbers at a time, where samples * n * k would not fit
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        sums[i] = counts @ rows
    return sums
