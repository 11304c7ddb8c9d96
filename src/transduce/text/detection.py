"""Detection of the language of a text, among some languages."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from transduce.errors import TransduceError, extra_module

MAX_CHARACTERS = 4000
"""Characters of a text used for detection."""

TRADITIONAL = frozenset(
    "這個們來說國時會對過學後發還沒開關點見話問間東車電長門馬鳥魚風飛語讀書寫買賣愛聽聲兒"
    "從當將與為無樂體頭題應讓認識請謝錯錢銀鐵難雖離雲葉號處萬歲歡氣漢溫滿熱產畫盡種現習專"
)
SIMPLIFIED = frozenset(
    "这个们来说国时会对过学后发还没开关点见话问间东车电长门马鸟鱼风飞语读书写买卖爱听声儿"
    "从当将与为无乐体头题应让认识请谢错钱银铁难虽离云叶号处万岁欢气汉温满热产画尽种现习专"
)
"""Frequent characters with two forms; characters with one form count for neither."""


class Detected(NamedTuple):
    """A language and its confidence in percent."""

    language: str
    confidence: float


class Detector:
    """Identifies the language of texts among some, best first.

    Confidence is the probability among all languages that the model of py3langid knows: low
    for a text in another language.  The model is loaded in a thread of its own; `ready` is false
    until it is there.  A single language needs no model, and has the confidence 0.
    """

    def __init__(self, codes: Sequence[str]) -> None:
        self.codes = tuple(codes)
        self._identifier: Any = None
        self._known: dict[str, list[str]] = {}
        self.ready = len(self.codes) < 2

    def start(self, failed: Callable[[BaseException], None]) -> None:
        """Begin to load the model, where it is needed.

        failed: called in the thread with an error.
        """

        def begin() -> None:
            try:
                self.load()
            except BaseException as error:
                failed(error)

        if not self.ready:
            threading.Thread(target=begin, name="serve-detection", daemon=True).start()

    def load(self) -> None:
        """Load the model now, where it is needed."""
        langid = extra_module("py3langid.langid", "language detection", "serve", TransduceError)
        identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)
        for code in self.codes:
            if code.partition("-")[0] in identifier.labels:
                self._known.setdefault(code.partition("-")[0], []).append(code)
        if self._known:
            self._identifier = identifier
        self.ready = True

    def detect(self, text: str) -> list[Detected]:
        """Languages of a text with their confidence, best first; 0 for a text without letters."""
        text = text[:MAX_CHARACTERS]
        if not self.codes:
            return []
        if self._identifier is None or not any(map(str.isalpha, text)):
            return [Detected(self.codes[0], 0.0)]
        languages = [
            Detected(_variant(self._known[base], text), round(100 * float(share), 1))
            for base, share in self._identifier.rank(text)
            if base in self._known
        ]
        return [best for best in languages if best.confidence > 0] or languages[:1]


def _variant(codes: Sequence[str], text: str) -> str:
    """Code of a language: the script of Chinese by its characters, else the first."""
    if len(codes) == 1:
        return codes[0]
    traditional = sum(character in TRADITIONAL for character in text)
    simplified = sum(character in SIMPLIFIED for character in text)
    script = "zh-Hant" if traditional > simplified else "zh-Hans"
    return script if script in codes else codes[0]
