"""Protocol of metrics: statistics per item that add up, and a score of their sum.

The score of a corpus is a function of the *sum* of the items' statistics, never a mean of item
scores.  Items can therefore be counted in any order or in parts, and a bootstrap sample costs an
addition (`significance.paired_bootstrap`), whatever the metric.  For statistics per label, the
items counted together determine the columns.

Shape letters: n items, k statistics per item.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from transduce.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Statistics: TypeAlias = "NDArray[np.float64]"


class TooLongError(DataError):
    """An item is too long for a metric with quadratic cost."""


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
