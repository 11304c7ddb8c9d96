"""Protocol of metrics: statistics per item that add up, and a score of their sum.

The score of a corpus is a function of the *sum* of the items' statistics, never a mean of
scores of items.  So items can be counted in any order or in parts, and drawing a bootstrap
sample costs one addition (`significance.paired_bootstrap`), whatever the metric.  Where there are
statistics of each label, the items counted at once decide what the columns are.

Shape letters: n items, k statistics per item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from transduce.errors import DataError

Statistics: TypeAlias = NDArray[np.float64]


class TooLongError(DataError):
    """An item is too long for a metric whose cost grows with the square of the length."""


class Metric(Protocol):
    """Compares hypotheses with the references of each item."""

    @property
    def name(self) -> str:
        """What the figure is called where it is printed; a key of `METRICS`."""

    @property
    def higher_is_better(self) -> bool:
        """False for the error rates."""

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """Statistics (n, k), one row per item.

        references: for each item the list of its acceptable references, at least one.
        Raises DataError when there are no items, when the counts differ, or when an item has
        no reference.
        """

    def score(self, sums: Statistics) -> float:
        """The score in percent, from the sum (k,) of the statistics of any set of items."""

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """How the figure was computed, to print beside it; empty where there is one way only."""


def check_items(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    """Raise DataError unless each hypothesis has its non-empty list of references."""
    if len(hypotheses) != len(references):
        raise DataError(
            f"{len(hypotheses)} hypotheses but references for {len(references)} items; "
            "give one hypothesis for each item, empty ones included"
        )
    if not hypotheses:
        raise DataError("nothing to measure: there are no hypotheses and no references")
    for number, item in enumerate(references, start=1):
        if isinstance(item, str):  # a str is a sequence of str too: its letters would be counted
            raise DataError(f"the references of item {number} are a string; give a list of strings")
        if not item:
            raise DataError(f"item {number} has no reference; give it one, or leave the item out")
