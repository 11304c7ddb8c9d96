"""Protocol of metrics: statistics per item that add up, and a score of their sum; confidence
intervals and the paired bootstrap.

The score of a corpus is a function of the *sum* of the items' statistics, never a mean of item
scores.  Items can therefore be counted in any order or in parts, and a bootstrap sample costs an
addition (`significance.paired_bootstrap`), whatever the metric.  For statistics per label, the
items counted together determine the columns.

Shape letters: n items, k statistics per item.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from transduce.errors import DataError, SettingError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Statistics: TypeAlias = "NDArray[np.float64]"


class TooLongError(DataError):
    """An item is too long for a metric with quadratic cost."""


MAX_COMPARISONS = 10**10
"""Product of the lengths of two sequences for metrics with quadratic cost: a third of a second."""


def check_comparisons(a: Sized, b: Sized, cost: int = 1) -> None:
    """Raise TooLongError for two sequences whose comparison would take too much time.

    cost: of a comparison, in those of rapidfuzz.
    """
    if cost * len(a) * len(b) > MAX_COMPARISONS:
        raise TooLongError(
            f"an item would take too much time: {len(a):,} symbols beside {len(b):,}; split it"
        )


class Metric(Protocol):
    """Compare hypotheses with the references of each item."""

    @property
    def name(self) -> str:
        """Printed name; a key of `METRICS`."""

    @property
    def higher_is_better(self) -> bool:
        """False for the error rates."""

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """Statistics (n, k), one row per item with its acceptable references.  Raises as
        `check_items`."""

    def score(self, sums: Statistics) -> float:
        """The score in percent, from the sum (k,) of the statistics of any set of items."""

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Details of the computation, printed with the score; empty if there is a single way."""


def check_items(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raises DataError unless each hypothesis has a non-empty list of references."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} hypotheses but references for {len(references)} items; "
            "give one hypothesis per item, even if it is empty"
        )
    if not hypotheses:
        raise DataError("nothing to measure: there are no hypotheses and no references")
    for number, item in enumerate(references, start=1):
        if isinstance(item, str):  # a str is a sequence of str too: its letters would be counted
            raise DataError(
                f"the references of item {number} must be a list of strings, not a string"
            )
        if not item:
            raise DataError(f"item {number} has no reference; add one, or leave the item out")


Parts = Callable[[str, Sequence[str]], tuple[float, float]]
"""Numerator and denominator of a hypothesis, given the references of its item."""


@dataclass(frozen=True)
class RatioMetric:
    """Sum of the numerators of all items, in percent of the sum of their denominators.  details:
    the signature, with `{nrefs}` for the number of references."""

    name: str
    parts: Parts
    higher_is_better: bool = False
    details: str = ""

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): `parts` of each item.  Raises DataError as `check_items` does."""
        import numpy as np

        check_items(hypotheses, references)
        pairs = zip(hypotheses, references, strict=True)
        return np.array([self.parts(*pair) for pair in pairs], dtype=np.float64)

    def score(self, sums: Statistics) -> float:
        """The ratio in percent; if all denominators are 0: 0 without a numerator, else 100."""
        numerator, denominator = sums.tolist()
        if denominator == 0:
            return 100.0 if numerator else 0.0
        return 100 * float(numerator / denominator)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Details of the computation; empty if there is a single way."""
        return self.details.format(nrefs=reference_count(references))


def reference_count(references: Sequence[Sequence[str]]) -> str:
    """Number of references of an item, for a signature; `var` if items differ."""
    counts = {len(accepted) for accepted in references}
    return str(counts.pop()) if len(counts) == 1 else "var"


def mean_of_best(compare: Callable[[str, str], float]) -> Parts:
    """Parts of the mean agreement, by `compare` from 0 to 1, with the closest reference."""
    return lambda hypothesis, accepted: (max(compare(hypothesis, text) for text in accepted), 1.0)


ENOUGH_ITEMS = 400
"""A share of n items has a standard error of at most 50 / √n percent points, so its 95 % interval
is ± 98 / √n points: 5 points with these."""
FEW_ITEMS = 100
"""With fewer, the interval is ± 10 points or more."""
ENOUGH_TOKENS = 10_000
FEW_TOKENS = 2_000
SPREAD = 2.5
"""Typical standard deviation of a language model's loss per token, in nats.  The mean of n tokens
has a 95 % interval of ± 1.96 · 2.5 / √n: 0.05 and 0.11."""


def few_items(count: int, what: str = "items") -> str:
    """Message for too few items to trust a score; empty if there are enough."""
    if not 0 < count < FEW_ITEMS:
        return ""
    if count == 1:
        singular = what.removesuffix("s")
        return (
            f"only 1 {singular}, too few for a 95 % interval; with {ENOUGH_ITEMS} it is ± 5 points"
        )
    reach = min(98 / math.sqrt(count), 50)
    return (
        f"only {count} {what}: the 95 % interval of a score of 50 % is ± {reach:.0f} points; "
        f"with {ENOUGH_ITEMS} it is ± 5"
    )


def few_tokens(count: int, what: str = "tokens") -> str:
    """Message for too few tokens to trust a mean loss; empty if there are enough."""
    if not 0 < count < FEW_TOKENS:
        return ""
    reach = 1.96 * SPREAD / math.sqrt(count)
    return (
        f"only {count:,} {what}: the 95 % interval of the loss is about ± {reach:.2f} nats; "
        f"with {ENOUGH_TOKENS:,} it is ± 0.05"
    )


@dataclass(frozen=True)
class Comparison:
    """Two systems on the same items, in percent points of a metric.

    difference: score_b - score_a; the metric's `higher_is_better` gives the better sign.
    low, high:  95 % confidence interval of the difference.
    p_value:    see `paired_bootstrap`.
    """

    score_a: float
    score_b: float
    difference: float
    low: float
    high: float
    p_value: float

    def as_dict(self) -> dict[str, float]:
        """The difference as in JSON."""
        names = ("difference", "low", "high", "p_value")
        return {name: getattr(self, name) for name in names}


def paired_bootstrap(
    metric: Metric,
    hypotheses_a: Sequence[str],
    hypotheses_b: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Compare two systems by paired bootstrap resampling (Koehn 2004).

    Each of the `samples` draws n of the n items with replacement, the same items for both systems,
    and takes the difference d_i of the two scores.  The interval is the middle 95 % of the d_i.
    The p-value is two-sided, from the same d_i: with c the number of samples on the rarer side of
    0, including exact zeros,

        p = min(1, 2 (c + 1) / (samples + 1))

    so that p < 0.05 exactly if the interval excludes 0 (from 40 samples on), and identical systems
    get 1.  sacreBLEU's p-value differs: it uses d_i shifted to a mean of 0, and absolute values
    minus their mean, which for clear differences is about one-sided.  Both assume that the items
    represent many more; with a handful, neither is reliable.

    hypotheses_a, hypotheses_b: outputs of the two systems.  references: correct texts of each item.
    samples: a thousand settle the second decimal of p.  seed: the same seed draws the same items;
    the default is sacreBLEU's.  Raises SettingError if samples < 1 or seed < 0, DataError as the
    metric's `statistics` does.
    """
    import numpy as np

    rows_a = metric.statistics(hypotheses_a, references)
    rows_b = metric.statistics(hypotheses_b, references)
    score_a, score_b = metric.score(rows_a.sum(0)), metric.score(rows_b.sum(0))
    # k may differ between the two, as where one of them answers with labels of its own.
    k = rows_a.shape[1]
    sums = _resample(np.concatenate([rows_a, rows_b], axis=1), samples, seed)
    differences = np.array([metric.score(both[k:]) - metric.score(both[:k]) for both in sums])
    return _comparison(score_a, score_b, differences)


def bootstrap_over_runs(
    metric: Metric,
    hypotheses_a: Sequence[Sequence[str]],
    hypotheses_b: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> Comparison:
    """Compare two settings by several runs of each, such as with other seeds.

    Each sample draws items as in `paired_bootstrap`, and the runs of each setting with replacement;
    a setting's score is the mean over its runs.  With few runs their spread is underestimated, by a
    factor of √(2/3) with three.  Raises the same errors.

    metric: to compare by.  hypotheses_a, hypotheses_b: outputs of each run of the two settings.
    references: correct texts of each item.  samples, seed: as in `paired_bootstrap`.
    """
    import numpy as np

    runs = [metric.statistics(outputs, references) for outputs in (*hypotheses_a, *hypotheses_b)]
    count = len(hypotheses_a)
    whole = np.array([metric.score(rows.sum(0)) for rows in runs])
    # the same seed draws the same items for every run
    drawn = np.array(
        [[metric.score(sums) for sums in _resample(rows, samples, seed)] for rows in runs]
    )
    rng = np.random.default_rng(seed)
    means_a, means_b = (
        np.take_along_axis(part, rng.integers(len(part), size=part.shape), axis=0).mean(0)
        for part in (drawn[:count], drawn[count:])
    )
    return _comparison(whole[:count].mean(), whole[count:].mean(), means_b - means_a)


def bootstrap_interval(
    metric: Metric,
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    samples: int = 1000,
    seed: int = 12345,
) -> tuple[float, float]:
    """95 % confidence interval of a system's score, by the samples of `paired_bootstrap`: of the
    random choice of items, not of training.

    metric: of the score.  hypotheses: outputs.  references: correct texts of each item.  seed: of
    the samples.
    """
    sums = _resample(metric.statistics(hypotheses, references), samples, seed)
    return _middle([metric.score(each) for each in sums])


def _comparison(score_a: float, score_b: float, differences: Statistics) -> Comparison:
    """Interval and p-value of the differences of the samples, as in `paired_bootstrap`."""
    low, high = _middle(differences.tolist())
    rarer = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
    p_value = min(1.0, 2 * (rarer + 1) / (len(differences) + 1))
    return Comparison(float(score_a), float(score_b), float(score_b - score_a), low, high, p_value)


def _middle(scores: list[float]) -> tuple[float, float]:
    """Ends of the middle 95 % of the samples, themselves samples, so that p-values agree."""
    left_out = max(0, len(scores) // 40 - 1)  # on each side; one more there, and p > 0.05
    ordered = sorted(scores)
    return ordered[left_out], ordered[-1 - left_out]


def _resample(rows: Statistics, samples: int, seed: int) -> Statistics:
    """Sums (samples, k) of the statistics (n, k) of drawn items."""
    import numpy as np

    if samples < 1:
        raise SettingError(f"samples must be at least 1, not {samples}; 1000 is usual")
    if seed < 0:
        raise SettingError(f"seed must not be negative, but is {seed}")
    rng = np.random.default_rng(seed)
    n = len(rows)
    sums = np.empty((samples, rows.shape[1]))
    for i in range(samples):
        # how often each item is drawn: n numbers at a time, where samples * n * k would not fit
        counts = np.bincount(rng.integers(n, size=n), minlength=n)
        sums[i] = counts @ rows
    return sums
