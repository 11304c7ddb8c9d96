"""Confidence intervals of scores, and the paired bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transduce.errors import SettingError
from transduce.metrics.metric import Metric, Statistics

ENOUGH_ITEMS = 400
"""A share of n items has a standard error of at most 50 / √n percent points, so its 95 % interval
reaches 98 / √n to either side: 5 points with these."""
FEW_ITEMS = 100
"""With fewer it reaches 10 points or more."""
ENOUGH_TOKENS = 10_000
FEW_TOKENS = 2_000
SPREAD = 2.5
"""Standard deviation of the loss of a token, in nats, as language models have it, about; so the
mean of n has a 95 % interval of 1.96 · 2.5 / √n to either side: 0.05 and 0.11."""


def few_items(count: int, what: str = "items") -> str:
    """Says that so many items are too few to trust a score; empty where they are enough."""
    if not 0 < count < FEW_ITEMS:
        return ""
    if count == 1:
        one = what.removesuffix("s")
        return (
            f"1 {one} has no 95 % interval; that of {ENOUGH_ITEMS} reaches 5 points to either side"
        )
    reach = min(98 / math.sqrt(count), 50)
    return (
        f"{count} {what} are few: the 95 % interval of a score of 50 % reaches {reach:.0f} points "
        f"to either side; with {ENOUGH_ITEMS} it would be 5"
    )


def few_tokens(count: int, what: str = "tokens") -> str:
    """The same of tokens whose mean loss is measured."""
    if not 0 < count < FEW_TOKENS:
        return ""
    reach = 1.96 * SPREAD / math.sqrt(count)
    return (
        f"{count:,} {what} are few: the 95 % interval of the loss reaches some {reach:.2f} nats to "
        f"either side; with {ENOUGH_TOKENS:,} it would be 0.05"
    )


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
    systems, and takes the difference d_i of the two scores.  The interval is the middle 95 % of
    the d_i.  The p-value is two-sided, of the same d_i: with c the number of samples on the rarer
    side of 0, those of exactly 0 included,

        p = min(1, 2 (c + 1) / (samples + 1))

    so that p < 0.05 exactly where the interval leaves out 0 (from 40 samples on), and identical
    systems get 1.  sacreBLEU's p-value is another: of the d_i moved to a mean of 0, and of sizes
    from which their mean is taken off, which for clear differences is about one-sided.  Both
    suppose that the items stand for many more; of a handful neither knows.

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
    rarer = min(np.count_nonzero(differences <= 0), np.count_nonzero(differences >= 0))
    return Comparison(
        score_a=score_a,
        score_b=score_b,
        difference=score_b - score_a,
        low=low,
        high=high,
        p_value=min(1.0, 2 * (int(rarer) + 1) / (samples + 1)),
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
    """Ends of the middle 95 % of the samples: one of them each, so that p-values agree."""
    left_out = max(0, len(scores) // 40 - 1)  # on each side; one more there, and p > 0.05
    ordered = np.sort(scores)
    return float(ordered[left_out]), float(ordered[-1 - left_out])


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
