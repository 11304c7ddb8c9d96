"""Scores of translations and summaries: BLEU, chrF, TER, ROUGE.

sacreBLEU takes detokenised text, as shown to a reader, and tokenises hypotheses and references
itself; its signature names everything that affects the score.

The score of an item is the F1 of its n-grams, or of its longest common subsequence, with the
closest of its references; the score of a corpus is the mean over the items.
"""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from itertools import zip_longest
from typing import TYPE_CHECKING

from transduce.errors import SettingError, extra_module
from transduce.metrics.case import lowered
from transduce.metrics.metric import (
    RatioMetric,
    Statistics,
    TooLongError,
    check_comparisons,
    check_items,
    mean_of_best,
)
from transduce.text.languages import SHORT

if TYPE_CHECKING:
    from sacrebleu.metrics.base import Metric as Scorer


MAX_LENGTH_FOR_TER = 500
"""Maximum words for TER: sacreBLEU takes a second for as many, and nine times that for twice."""
_OTHER_CODES = (
    "cmn:zh yue:zh chi:zh fre:fr ger:de dut:nl cze:cs gre:el rum:ro slo:sk per:fa fas:fa ice:is "
    "alb:sq arm:hy baq:eu bur:my geo:ka mac:mk may:ms wel:cy ara:ar est:et lav:lv aze:az msa:ms"
)
LONG_CODES = {**SHORT, **dict(pair.split(":") for pair in _OTHER_CODES.split())}
"""Codes of two letters, by those of three, as of ISO 639-2, FLORES and NLLB."""


@dataclass(frozen=True)
class SacreBleuMetric:
    """A metric of sacreBLEU, split into statistics per item and a score of their sum.

    prepare: applied to each hypothesis and reference before sacreBLEU.
    tokenizer: its name for the signature, if `prepare` tokenises.
    max_words: maximum words of an item, for metrics with quadratic cost.
    n_gram: words of the longest n-gram; the score is 0 if no hypothesis has so many.
    """

    name: str
    higher_is_better: bool
    scorer: Scorer
    prepare: Callable[[str], str] = str
    tokenizer: str = "none"
    max_words: float = math.inf
    n_gram: int = 0

    def statistics(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> Statistics:
        """sacreBLEU's own statistics of each item, (n, k); items may differ in their number of
        references.  Raises as `check_items`, and TooLongError."""
        import numpy as np

        check_items(hypotheses, references)
        if self.max_words < math.inf:
            self._check_lengths(hypotheses, references)
        prepared = [self.prepare(hypothesis) for hypothesis in hypotheses]
        items = [[self.prepare(reference) for reference in item] for item in references]
        # sacreBLEU wants a stream per reference, not a list per item; None says "no such reference"
        streams = [list(stream) for stream in zip_longest(*items)]
        rows = self.scorer._extract_corpus_statistics(prepared, streams)
        return np.array(rows, dtype=np.float64)

    def caveat(self, references: Sequence[Sequence[str]]) -> str:
        """Reason that even perfect hypotheses would have the score 0; usually empty."""
        if any(self._n_words(text) >= self.n_gram for item in references for text in item):
            return ""
        return (
            f"no reference has {self.n_gram} words, so {self.name} is 0 even for perfect outputs; "
            "measure accuracy, cer or chrf"
        )

    def _n_words(self, text: str) -> int:
        """Words of the scorer: one per character for Chinese."""
        return len(self.scorer._preprocess_segment(self.prepare(text)).split())

    def _check_lengths(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]
    ) -> None:
        for number, (hypothesis, item) in enumerate(zip(hypotheses, references, strict=True), 1):
            words = max(map(self._n_words, (hypothesis, *item)))
            if words > self.max_words:
                raise TooLongError(
                    f"{self.name} of item {number} would take too much time: it has {words:,} "
                    f"words, more than {self.max_words:,}"
                )

    def score(self, sums: Statistics) -> float:
        """Score in percent, equal to sacreBLEU's `corpus_score` of the items."""
        return float(self.scorer._compute_score_from_stats(sums.tolist()).score)

    def signature(self, references: Sequence[Sequence[str]]) -> str:
        """sacreBLEU's signature: number of references, case, tokenizer, smoothing, version."""
        counts = {len(item) for item in references}
        self.scorer.num_refs = counts.pop() if len(counts) == 1 else -1  # -1 is printed as `var`
        text = str(self.scorer.get_signature())
        return text.replace("tok:none", f"tok:{self.tokenizer}")


def bleu(language: str = "") -> SacreBleuMetric:
    """Detokenised, case-sensitive BLEU (Papineni et al. 2002; Post 2018), for publication."""
    from sacrebleu.metrics.bleu import BLEU

    return SacreBleuMetric("bleu", True, BLEU(tokenize=bleu_tokenizer(language)), n_gram=4)


def bleu_tokenised_lowercased(language: str = "") -> SacreBleuMetric:
    """Moses' multi-bleu.perl on lower-cased, punctuation-normalised, Moses-tokenised text.

    The BLEU of many papers before 2018 (and of papers on Multi30k), usually higher than `bleu`.
    Not smoothed: without a common 4-gram it is 0.
    """
    from sacrebleu.metrics.bleu import BLEU

    # force: sacreBLEU would warn that the text looks tokenised, which here it is meant to be
    scorer = BLEU(lowercase=True, tokenize="none", smooth_method="none", force=True)
    code = base_language(language) or "en"
    name = "bleu_tokenised_lowercased"
    return SacreBleuMetric(name, True, scorer, moses_tokeniser(code), f"moses-{code}", n_gram=4)


def chrf(language: str = "") -> SacreBleuMetric:
    """chrF2 (Popović 2015): F-score of character n-grams.  The same for every language."""
    from sacrebleu.metrics.chrf import CHRF

    return SacreBleuMetric("chrf", True, CHRF())


def ter(language: str = "") -> SacreBleuMetric:
    """Translation edit rate (Snover et al. 2006): edits, shifts included, per reference word, or
    per character of Chinese and Japanese (Tercom's Asian support)."""
    from sacrebleu.metrics.ter import TER

    unspaced = base_language(language) in ("zh", "ja")
    scorer = TER(normalized=unspaced, asian_support=unspaced)
    return SacreBleuMetric("ter", False, scorer, max_words=MAX_LENGTH_FOR_TER)


def base_language(code: str) -> str:
    """Two-letter code of `zh-CN`, `zh_Hans`, `zho_Hans`, `chi`, `ZH`: here `zh`."""
    base = code.strip().lower().replace("_", "-").partition("-")[0]
    return LONG_CODES.get(base, base)


def bleu_tokenizer(language: str) -> str:
    """Name of sacreBLEU's tokenizer for a target language, by default `13a`; for Japanese, MeCab's
    words if it is installed (`pip install sacrebleu[ja]`), else characters."""
    match base_language(language):
        case "zh":
            return "zh"
        case "ja":
            installed = all(importlib.util.find_spec(name) for name in ("MeCab", "ipadic"))
            return "ja-mecab" if installed else "char"
        case "ko":
            return "char"
    return "13a"


@lru_cache(maxsize=8)
def moses_tokeniser(language: str) -> Callable[[str], str]:
    """Make a function from a line to its lower-cased, normalised, Moses-tokenised form."""
    # here, not above: it takes longer to import than all of sacreBLEU, for one legacy metric
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    normalizer = MosesPunctNormalizer(lang=language)
    tokenizer = MosesTokenizer(lang=language)

    def tokenise(line: str) -> str:
        # Lower-casing first and leaving hyphens alone is what gives the 12103 words that papers
        # report for the German test2016 of Multi30k: lower-casing last gives 12102 ("Bart." looks
        # like an abbreviation), aggressive_dash_splits=True gives 12243.  Escaping (& as &amp;)
        # and the language do not change that count; unescaped text matches the same n-grams.
        normalised = normalizer.normalize(lowered(line, language))
        return " ".join(tokenizer.tokenize(normalised, escape=False))

    return tokenise


PACKAGE = "rouge-score"
KINDS = {"rouge-1": "rouge1", "rouge-2": "rouge2", "rouge-l": "rougeL"}
"""Names in the package."""
_CHARACTERS = (
    r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]"  # kana and Chinese characters
)
_UNITS = re.compile(rf"{_CHARACTERS}|(?:(?!{_CHARACTERS})\w)+")


class UnicodeUnits:
    """Words in lower case; of Chinese and Japanese, single characters.  No punctuation."""

    def __init__(self, language: str = "") -> None:
        self._language = language

    def tokenize(self, text: str) -> list[str]:
        """Split a text; the interface of `rouge_score.tokenizers`."""
        return _UNITS.findall(lowered(text, self._language))


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
    tokenizer = None if is_english else UnicodeUnits(language)
    scorer = package.RougeScorer([kind], use_stemmer=is_english, tokenizer=tokenizer)
    units = "words|stem:porter" if is_english else "words-and-cjk-characters|stem:none"

    def by_n_grams(hypothesis: str, accepted: Sequence[str]) -> tuple[float, float]:
        return scorer.score_multi(accepted, hypothesis)[kind].fmeasure, 1.0

    def by_subsequence(hypothesis: str, reference: str) -> float:
        pair = [scorer._tokenizer.tokenize(text) for text in (hypothesis, reference)]
        check_comparisons(*pair)
        return 2 * LCSseq.similarity(*pair) / max(sum(map(len, pair)), 1)

    return RatioMetric(
        name,
        mean_of_best(by_subsequence) if kind == "rougeL" else by_n_grams,
        higher_is_better=True,
        details=f"nrefs:{{nrefs}}|case:lower|tok:{units}|mean:f1|version:{PACKAGE}-{version(PACKAGE)}",
    )
