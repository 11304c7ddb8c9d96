"""Limits fitted to a corpus: of a score below which pairs are misaligned, of lengths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from transduce.data.filters import Pair

Floats = NDArray[np.float64]

PRECISION = 0.85
"""Share of misaligned pairs among those reported, as estimated."""
MIN_SHARE = 0.002
"""Share of misaligned pairs in a corpus, at least, to report any by their score."""
QUANTILES = np.linspace(0.5, 0.98, 49)
DEVIATIONS = 5.0
"""Deviations of the length from the median, for pairs of about the same length."""
LEAST_RATIO = 1.8
"""Factor between a length and the expected length, at least, to be reported."""
SPARE = 8
"""Characters added to both lengths: a word more or less says little of a short text."""
BINS = 12


def misaligned_below(scores: Floats, of_strangers: Floats) -> float:
    """Score below which most pairs are as strangers are.

    scores: of a sample.  of_strangers: of its sources with targets of other pairs.  The sample is a
    mixture of both kinds, and nowhere below a score has it fewer pairs than its share of strangers.
    """
    scores, of_strangers = (part[~np.isnan(part)] for part in (scores, of_strangers))
    if not len(scores) or not len(of_strangers):  # nan: too long to be scored
        return -np.inf
    limits = np.quantile(of_strangers, QUANTILES)
    below = np.searchsorted(np.sort(scores), limits) / len(scores)
    share = float((below / QUANTILES).min())
    precise = np.flatnonzero(share * QUANTILES >= PRECISION * below)
    if share < MIN_SHARE or not len(precise):
        return float(np.quantile(of_strangers, 0.02))
    return float(limits[precise[-1]])


class LengthLimits:
    """Median and spread of the log ratio of lengths, by length."""

    def __init__(self, sample: list[Pair]) -> None:
        if not sample:
            sample = [("", "")]
        both = np.array([_lengths(pair) for pair in sample])
        means, ratios = both.sum(axis=1) / 2, both[:, 1] - both[:, 0]
        self._edges = np.quantile(means, np.linspace(0, 1, BINS + 1)[1:-1])
        bins = np.searchsorted(self._edges, means)
        every = float(np.median(ratios))
        inside = [ratios[bins == number] for number in range(BINS)]
        self._medians = [float(np.median(r)) if len(r) else every for r in inside]
        spreads = [
            float(np.median(np.abs(r - m))) if len(r) else 0.0
            for r, m in zip(inside, self._medians, strict=True)
        ]
        least = float(np.log(LEAST_RATIO))
        self._limits = [max(DEVIATIONS * 1.4826 * spread, least) for spread in spreads]

    def fault(self, pair: Pair) -> str | None:
        """Lengths that do not fit each other."""
        source, target = _lengths(pair)
        number = int(np.searchsorted(self._edges, (source + target) / 2))
        if abs(target - source - self._medians[number]) <= self._limits[number]:
            return None
        return f"{len(pair[0])} characters for {len(pair[1])}"


def _lengths(pair: Pair) -> tuple[float, float]:
    return float(np.log(len(pair[0].strip()) + SPARE)), float(np.log(len(pair[1].strip()) + SPARE))
