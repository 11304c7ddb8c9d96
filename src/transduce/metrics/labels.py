"""Scores of labels, and of answers taken from a passage.

Two conventions, chosen by the language of the answers.  SQuAD (Rajpurkar et al. 2016), for
languages with spaces: lower case, no ASCII punctuation, no articles, and the overlap of bags of
words.  CMRC 2018 (Cui et al. 2019), for Chinese: lower case, without its list of punctuation,
Chinese characters and words of other scripts as units, and the longest common run.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from transduce.metrics.case import lowered
from transduce.metrics.metric import (
    RatioMetric,
    Statistics,
    check_comparisons,
    check_items,
    mean_of_best,
)
from transduce.metrics.translation import base_language


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


Compare = Callable[[str, str], float]
"""Agreement of an answer and a reference, 0 to 1."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
# What CMRC 2018 takes out; other punctuation counts there, at both ends.
_CHINESE_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHINESE_UNITS = re.compile(
    r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\W\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+|[^\w\s]"
)


def exact_match(language: str = "") -> RatioMetric:
    """Share of questions with an answer equal to a reference but for case and punctuation."""
    return _agreement("exact_match", language, _same, _same_chinese)


def answer_f1(language: str = "") -> RatioMetric:
    """Harmonic mean of the precision and recall of an answer's units."""
    return _agreement("f1", language, _overlap, _chinese_overlap)


def _agreement(name: str, language: str, usual: Compare, chinese: Compare) -> RatioMetric:
    """Mean agreement with the closest reference; of an unanswerable question, the empty text."""
    is_chinese = base_language(language) == "zh"
    convention = "cmrc2018" if is_chinese else "squad"
    parts = mean_of_best(chinese if is_chinese else usual)
    return RatioMetric(name, parts, higher_is_better=True, details=f"convention:{convention}")


def _words(text: str) -> list[str]:
    return _ARTICLES.sub(" ", lowered(text).translate(_PUNCTUATION)).split()


def _same(hypothesis: str, reference: str) -> float:
    return float(_words(hypothesis) == _words(reference))


def _overlap(hypothesis: str, reference: str) -> float:
    a, b = _words(hypothesis), _words(reference)
    if not a or not b:  # "there is no answer" is right or wrong as a whole
        return float(a == b)
    return _f1((Counter(a) & Counter(b)).total(), len(a), len(b))


def _without_punctuation(text: str) -> str:
    return lowered(text).strip().translate(_CHINESE_PUNCTUATION)


def _same_chinese(hypothesis: str, reference: str) -> float:
    return float(_without_punctuation(hypothesis) == _without_punctuation(reference))


def _chinese_overlap(hypothesis: str, reference: str) -> float:
    a = _CHINESE_UNITS.findall(_without_punctuation(hypothesis))
    b = _CHINESE_UNITS.findall(_without_punctuation(reference))
    if not a or not b:
        return float(a == b)
    return _f1(_longest_common_run(a, b), len(a), len(b))


def _longest_common_run(a: Sequence[str], b: Sequence[str]) -> int:
    import numpy as np

    check_comparisons(a, b, 50)
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(b))}
    units = np.array([numbers[unit] for unit in b])
    longest = 0
    above = np.zeros(len(b) + 1, np.int64)  # lengths of the runs that end at each place of b
    for unit in a:
        above[1:] = np.where(units == numbers.get(unit, -1), above[:-1] + 1, 0)
        longest = max(longest, int(above.max()))
    return longest


def _f1(common: int, n: int, m: int) -> float:
    return 2 * common / (n + m)
