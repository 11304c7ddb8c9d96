"""Accuracy and macro-F1 of labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from transduce.metrics.metric import Statistics, check_items


@dataclass(frozen=True)
class MacroF1:
    """Mean of the F1 of all labels among the references or the hypotheses, as in scikit-learn."""

    name: str = "macro-f1"
    higher_is_better: bool = True

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2 l): for each of the l labels, correct predictions and occurrences.  Of several
        references, the predicted label counts, or else the first."""
        import numpy as np

        check_items(hypotheses, references)
        pairs = []
        for hypothesis, item in zip(hypotheses, references, strict=True):
            answer, *right = (" ".join(text.split()) for text in (hypothesis, *item))
            pairs.append((answer, answer if answer in right else right[0]))
        labels = dict.fromkeys(label for pair in pairs for label in pair)
        column = {label: 2 * i for i, label in enumerate(labels)}
        rows = np.zeros((len(pairs), 2 * len(labels)))
        for i, (answer, right_one) in enumerate(pairs):
            rows[i, column[answer]] = answer == right_one
            rows[i, column[answer] + 1] += 1
            rows[i, column[right_one] + 1] += 1
        return rows

    def score(self, sums: Statistics) -> float:
        """The mean F1 in percent."""
        right, occurring = sums.reshape(-1, 2).T
        there = occurring > 0  # a bootstrap may draw none of a label
        return 100 * float((2 * right[there] / occurring[there]).mean())

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Empty: the score has no variants."""
        return ""
