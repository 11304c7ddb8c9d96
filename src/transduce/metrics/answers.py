"""Exact match and F1 of answers taken from a passage.

Two conventions, chosen by the language of the answers.  SQuAD (Rajpurkar et al. 2016), for
languages with spaces: lower case, no ASCII punctuation, no articles, and the overlap of bags of
words.  CMRC 2018 (Cui et al. 2019), for Chinese: lower case, without its list of punctuation,
Chinese characters and words of other scripts as units, and the longest common run.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from transduce.metrics.metric import Statistics, check_items
from transduce.metrics.translation import base_language

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# What CMRC 2018 takes out; other punctuation counts there, at both ends.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE_UNITS = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+|[^\w\s]"
)


@dataclass(frozen=True)
class AnswerMetric:
    """Mean agreement of answers with their best references.

    compare: a number from 0 to 1 for an answer and one reference.
    """

    name: str
    compare: Callable[[str, str], float]
    convention: str
    higher_is_better: bool = True

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): agreement with the closest reference, and 1.

        For an unanswerable question the reference is the empty text.  Raises DataError as
        `check_items` does.
        """
        check_items(hypotheses, references)
        rows = np.ones((len(hypotheses), 2))
        for i, (hypothesis, item) in enumerate(zip(hypotheses, references, strict=True)):
            rows[i, 0] = max(self.compare(hypothesis, reference) for reference in item)
        return rows

    def score(self, sums: Statistics) -> float:
        """The mean in percent."""
        return 100 * float(sums[0] / sums[1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """The convention; scores of different conventions cannot be compared."""
        return f"convention:{self.convention}"


def exact_match(language: str = "") -> AnswerMetric:
    """Share of the questions with an answer equal to a reference, except for case and
    punctuation."""
    if base_language(language) == "zh":
        return AnswerMetric("exact_match", _same_chinese, "cmrc2018")
    return AnswerMetric("exact_match", _same, "squad")


def answer_f1(language: str = "") -> AnswerMetric:
    """Harmonic mean of the precision and recall of an answer's units."""
    if base_language(language) == "zh":
        return AnswerMetric("f1", _chinese_overlap, "cmrc2018")
    return AnswerMetric("f1", _overlap, "squad")


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


def _same(hypothesis: str, reference: str) -> float:
    return float(_words(hypothesis) == _words(reference))


def _overlap(hypothesis: str, reference: str) -> float:
    a, b = _words(hypothesis), _words(reference)
    if not a or not b:  # "there is no answer" is right or wrong as a whole
        return float(a == b)
    return _f1((Counter(a) & Counter(b)).total(), len(a), len(b))


def _without_punctuation(text: str) -> str:
    return text.lower().strip().translate(_CHINESE_PUNCTUATION)


def _same_chinese(hypothesis: str, reference: str) -> float:
    return float(_without_punctuation(hypothesis) == _without_punctuation(reference))


def _chinese_overlap(hypothesis: str, reference: str) -> float:
    a = _CHINESE_UNITS.findall(_without_punctuation(hypothesis))
    b = _CHINESE_UNITS.findall(_without_punctuation(reference))
    if not a or not b:
        return float(a == b)
    return _f1(_longest_common_run(a, b), len(a), len(b))


def _longest_common_run(a: Sequence[str], b: Sequence[str]) -> int:
    longest = 0
    above = [0] * (len(b) + 1)  # lengths of the runs that end at each place of b
    for x in a:
        row = [0]
        row += (above[j] + 1 if x == y else 0 for j, y in enumerate(b))
        longest = max(longest, *row)
        above = row
    return longest


def _f1(common: int, n: int, m: int) -> float:
    """Harmonic mean of common / n and common / m."""
    return 2 * common / (n + m)
