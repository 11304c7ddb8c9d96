"""Whether one system is better than another, or was lucky in its test set."""

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
    if samples < 1:
        raise SettingError(f"samples is {samples}; a bootstrap needs at least 1, 1000 is usual")
    if seed < 0:
        raise SettingError(f"seed is {seed}; it must not be negative")
    rows_a = metric.statistics(hypotheses_a, references)
    rows_b = metric.statistics(hypotheses_b, references)
    score_a, score_b = metric.score(rows_a.sum(0)), metric.score(rows_b.sum(0))
    sums_a, sums_b = _resample(rows_a, rows_b, samples, seed)
    differences = np.array(
        [metric.score(b) - metric.score(a) for a, b in zip(sums_a, sums_b, strict=True)]
    )
    low, high = np.percentile(differences, [2.5, 97.5])
    sizes = np.abs(differences)
    extreme = int(np.count_nonzero(sizes - sizes.mean() >= abs(score_b - score_a)))
    return Comparison(
        score_a=score_a,
        score_b=score_b,
        difference=score_b - score_a,
        low=float(low),
        high=float(high),
        p_value=(extreme + 1) / (samples + 1),
    )


def _resample(
    rows_a: Statistics, rows_b: Statistics, samples: int, seed: int
) -> tuple[Statistics, Statistics]:
    """Sums (samples, k) of both systems' statistics (n, k) over the same drawn items.

    k may differ between the two, as where one of them answers with labels of its own.
    """
    rng = np.random.default_rng(seed)
    n, k = rows_a.shape
    both = np.concatenate([rows_a, rows_b], axis=1)  # (n, k of a + k of b)
    sums = np.empty((samples, both.shape[1]))
    for i in range(samples):
        # how often each item is drawn: n numbers at a time, where samples * n * k would not fit
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        sums[i] = counts @ both
    return sums[:, :k], sums[:, k:]
