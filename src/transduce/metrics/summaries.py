"""ROUGE of summaries by the package `rouge-score` (Lin 2004).

The score of an item is the F1 of its n-grams, or of its longest common subsequence, with the
closest of its references; the score of a corpus is the mean over the items.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version

from transduce.errors import SettingError, extra_module
from transduce.metrics.ratio import RatioMetric, mean_of_best
from transduce.metrics.translation import base_language

PACKAGE = "rouge-score"
KINDS = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL"}
"""Names in the package."""
_CHARACTERS = (
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # kana and Chinese characters
)
_UNITS = re.compile(rf"{_CHARACTERS}|(?:(?!{_CHARACTERS})\w)+")


class UnicodeUnits:
    """Words in lower case; of Chinese and Japanese, single characters.  No punctuation."""

    def tokenize(self, text: str) -> list[str]:
        """Split a text; the interface of `rouge_score.tokenizers`."""
        return _UNITS.findall(text.lower())


def rouge(name: str, language: str = "") -> RatioMetric:
    """A kind of ROUGE, by a key of `KINDS`.  Raises SettingError if the package is missing.

    English is read by the package's own tokenizer, ASCII letters and digits stemmed by Porter's
    algorithm; other languages by `UnicodeUnits`.
    """
    from rapidfuzz.distance import LCSseq

    who = f"the metric {name!r}"
    package = extra_module("rouge_score.rouge_scorer", who, "rouge", SettingError)
    is_english = base_language(language) in ("", "en")
    kind = KINDS[name]
    tokenizer = None if is_english else UnicodeUnits()
    scorer = package.RougeScorer([kind], use_stemmer=is_english, tokenizer=tokenizer)
    units = "words|stem:porter" if is_english else "words-and-cjk-characters|stem:none"

    def by_n_grams(hypothesis: str, accepted: Sequence[str]) -> tuple[float, float]:
        return scorer.score_multi(accepted, hypothesis)[kind].fmeasure, 1.0

    def by_subsequence(hypothesis: str, reference: str) -> float:
        pair = [scorer._tokenizer.tokenize(text) for text in (hypothesis, reference)]
        return 2 * LCSseq.similarity(*pair) / max(sum(map(len, pair)), 1)

    return RatioMetric(
        name,
        mean_of_best(by_subsequence) if kind == "rougeL" else by_n_grams,
        higher_is_better=True,
        details=f"nrefs:{{nrefs}}|case:lower|tok:{units}|mean:f1|version:{PACKAGE}-{version(PACKAGE)}",
    )
