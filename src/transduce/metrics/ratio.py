"""Metrics that are the ratio of two sums over the items, such as edits and reference lengths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.metrics.metric import Statistics, check_items

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
