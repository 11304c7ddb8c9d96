"""ROUGE of summaries by the package `rouge-score` (Lin 2004).

The score of an item is the F1 of its n-grams, or of its longest common subsequence, with the
closest of its references; the score of a corpus is the mean over the items.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from transduce.errors import SettingError, needs_extra
from transduce.metrics.metric import Statistics, check_items
from transduce.metrics.translation import base_language

PACKAGE = "rouge-score"
_CHARACTERS = (
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # kana and Chinese characters
)
_UNITS = re.compile(rf"{_CHARACTERS}|(?:(?!{_CHARACTERS})\w)+")


class UnicodeUnits:
    """Words in lower case; of Chinese and Japanese, single characters.  No punctuation."""

    def tokenize(self, text: str) -> list[str]:
        """Split a text; the interface of `rouge_score.tokenizers`."""
        return _UNITS.findall(text.lower())


@dataclass(frozen=True)
class Rouge:
    """One kind of ROUGE.  kind: its name in the package.

    English is read by the package's own tokenizer, ASCII letters and digits stemmed by Porter's
    algorithm; other languages by `UnicodeUnits`.
    """

    name: str
    kind: str
    language: str = ""
    higher_is_better: bool = True

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """(n, 2): F1 with the closest reference, and 1.

        Raises DataError as `check_items` does, SettingError if the package is missing.
        """
        check_items(hypotheses, references)
        scorer = self._scorer()
        rows = np.ones((len(hypotheses), 2))
        for i, (hypothesis, item) in enumerate(zip(hypotheses, references, strict=True)):
            rows[i, 0] = scorer.score_multi(item, hypothesis)[self.kind].fmeasure
        return rows

    def score(self, sums: Statistics) -> float:
        """Mean F1 in percent."""
        return 100 * float(sums[0] / sums[1])

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """Number of references, case, units, stemming, version."""
        counts = {len(item) for item in references}
        number = str(counts.pop()) if len(counts) == 1 else "var"
        units = "words|stem:porter" if self._english else "words-and-cjk-characters|stem:none"
        signature = f"nrefs:{number}|case:lower|tok:{units}|mean:f1|version:{PACKAGE}-"
        return signature + version(PACKAGE)

    @property
    def _english(self) -> bool:
        return base_language(self.language) in ("", "en")

    def _scorer(self) -> Any:
        try:
            package = importlib.import_module("rouge_score.rouge_scorer")
        except ImportError:
            raise SettingError(needs_extra(f"the metric {self.name!r}", "rouge")) from None
        tokenizer = None if self._english else UnicodeUnits()
        return package.RougeScorer([self.kind], use_stemmer=self._english, tokenizer=tokenizer)


def rouge_1(language: str = "") -> Rouge:
    """F1 of words."""
    return Rouge("rouge-1", "rouge1", language)


def rouge_2(language: str = "") -> Rouge:
    """F1 of pairs of neighbouring words."""
    return Rouge("rouge-2", "rouge2", language)


def rouge_l(language: str = "") -> Rouge:
    """F1 of the longest common subsequence of words."""
    return Rouge("rouge-l", "rougeL", language)
