"""Error rates of sequences of symbols, such as phones or words, between spaces.

An item may have several equally right references (a word with several pronunciations).  Two fields
use "WER" differently: see `ItemErrorRate` (spelling to sound) and `word_error_rate` (speech).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from transduce.metrics.metric import Statistics, check_items


@dataclass(frozen=True)
class ExactMatch:
    """Percentage of items with a hypothesis equal to one of the references."""

    name: str = "accuracy"
    higher_is_better: bool = True

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): 1 if the item is right, and 1.  Raises DataError as `check_items` does."""
        return _matches(hypotheses, references)

    def score(self, sums: Statistics) -> float:
        """Share of right items in percent."""
        return 100 * float(sums[0] / sums[1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Empty: the score has no variants."""
        return ""


@dataclass(frozen=True)
class ItemErrorRate:
    """Percentage of items with a hypothesis equal to none of the references.

    Called word error rate in grapheme-to-phoneme conversion: an item is a word, and one wrong phone
    makes it wrong.  Equals 100 - accuracy.  Not the word error rate of speech.
    """

    name: str = "wer"
    higher_is_better: bool = False

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): 1 if the item is right, and 1.  Raises DataError as `check_items` does."""
        return _matches(hypotheses, references)

    def score(self, sums: Statistics) -> float:
        """Share of wrong items in percent."""
        return 100 * float((sums[1] - sums[0]) / sums[1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Empty: the score has no variants."""
        return ""


@dataclass(frozen=True)
class SymbolErrorRate:
    """Edits per reference symbol, in percent; above 100 with many insertions.

    Edits are the insertions, deletions and substitutions (Levenshtein 1966) to the closest of the
    item's references; both edits and lengths are summed over all items before dividing.  With
    phones it is the phone error rate (PER), with words the word error rate of speech, with
    characters the character error rate (CER).

    units: the symbols of a text.
    """

    name: str
    units: Callable[[str], Sequence[str]] = str.split
    higher_is_better: bool = False

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): edits to the closest reference, and its length.

        Of equally close references the longest counts, so that their order does not matter.  Raises
        DataError as `check_items` does.
        """
        return edit_statistics(hypotheses, references, self.units)

    def score(self, sums: Statistics) -> float:
        """Edits in percent of the references' length, as `edit_rate`."""
        return edit_rate(sums)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Empty: the score has no variants."""
        return ""


def edit_statistics(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    units: Callable[[str], Sequence[str]],
) -> Statistics:
    """(n, 2): edits to the closest reference of each item, and its length, in `units` of a text.

    Of equally close references the longest counts, so that their order does not matter.  Raises
    DataError as `check_items` does.
    """
    check_items(hypotheses, references)
    rows = np.empty((len(hypotheses), 2))
    for i, (hypothesis, item) in enumerate(zip(hypotheses, references, strict=True)):
        written = units(hypothesis)
        choices = [units(reference) for reference in item]
        pairs = ((edit_distance(written, choice), len(choice)) for choice in choices)
        rows[i] = min(pairs, key=lambda pair: (pair[0], -pair[1]))
    return rows


def edit_rate(sums: Statistics) -> float:
    """Edits in percent of the references' length, from their sums (2,).

    If all references are empty: 0 for empty hypotheses, else 100.
    """
    edits, length = sums.tolist()
    if length == 0:
        return 100.0 if edits else 0.0
    return 100 * float(edits / length)


def word_error_rate(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Word error rate of speech recognition: word edits per reference word, in percent.

    Case and punctuation count; the metric "word-error-rate" of `METRICS` normalises both sides.
    Raises DataError as `check_items` does.
    """
    metric = SymbolErrorRate("word_error_rate")
    return metric.score(metric.statistics(hypotheses, references).sum(0))


def edit_distance(a: Sequence[Hashable], b: Sequence[Hashable]) -> int:
    """Minimum number of insertions, deletions and substitutions that turn `a` into `b`."""
    # a common prefix and a common suffix need no edits; in good output that is nearly everything
    start = 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    end = 0
    while end < min(len(a), len(b)) - start and a[-1 - end] == b[-1 - end]:
        end += 1
    a, b = a[start : len(a) - end], b[start : len(b) - end]
    above = list(range(len(b) + 1))  # distances from the part of `a` so far to each prefix of `b`
    for i, x in enumerate(a, start=1):
        row = [i]
        for j, y in enumerate(b):
            row.append(min(above[j] + (x != y), above[j + 1] + 1, row[j] + 1))
        above = row
    return above[-1]


def group_by_source(pairs: Iterable[tuple[str, str]]) -> tuple[list[str], list[list[str]]]:
    """Each source once, in order of first appearance, with the list of its different targets.

    For data with several lines (source, target) for a word with several pronunciations.
    """
    groups: dict[str, dict[str, None]] = {}
    for source, target in pairs:
        groups.setdefault(source, {})[target] = None
    return list(groups), [list(targets) for targets in groups.values()]


def _matches(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Statistics:
    check_items(hypotheses, references)
    rows = np.ones((len(hypotheses), 2))
    for i, (hypothesis, item) in enumerate(zip(hypotheses, references, strict=True)):
        symbols = hypothesis.split()
        rows[i, 0] = any(reference.split() == symbols for reference in item)
    return rows
