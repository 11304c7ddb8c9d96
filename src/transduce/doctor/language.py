"""Languages and scripts of both sides, learnt from a sample, and texts in others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from transduce.text.detection import Detector
from transduce.text.scripts import script_of

TABLE = 1 << 20
"""Counts of trigrams, by hash; of bigrams a sixteenth."""
DETECTED = 6_000
"""Texts of each side whose language is detected, to learn it."""
UNUSUAL = ((2.0, 90.0), (3.0, 20.0), (4.0, 0.0))
"""Deviations below the usual trigrams, and the confidence of another language in percent: both are
needed."""
LEAST_LETTERS = 6
FOREIGN = 0.5
"""Share of letters of a script that a side does not use, to be reported."""
RARE = 0.01
"""Share of the letters of a side, below which it does not use a script."""
ONE_SIDE = 0.4
"""Nats a letter by which a text fits one side better than the other."""
BINS = 8
LEAST_SPREAD = 0.1


class Trigrams:
    """Letters by the two before them, counted in texts of one language."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._three = np.zeros(TABLE, np.float32)
        self._two = np.zeros(TABLE // 16, np.float32)
        for text in texts:
            two, three = _hashes(text)
            np.add.at(self._three, three, 1)
            np.add.at(self._two, two, 1)

    def fit(self, text: str) -> float:
        """Mean log-probability of a letter of a text, smoothed."""
        two, three = _hashes(text)
        if not len(three):
            return 0.0
        return float(np.log((self._three[three] + 0.05) / (self._two[two] + 5.0)).mean())


def _hashes(text: str) -> tuple[Any, Any]:
    letters = "".join(c if c.isalpha() else " " for c in text.casefold())
    plain = " ".join(letters.split())
    codes = np.frombuffer(f"  {plain} ".encode("utf-32-le"), np.uint32).astype(np.uint64)
    two = codes[:-2] * np.uint64(0x9E3779B1) + codes[1:-1] * np.uint64(0x85EBCA77)
    three = two * np.uint64(31) + codes[2:] * np.uint64(0xC2B2AE3D)
    return (two >> np.uint64(8)) % np.uint64(TABLE // 16), (three >> np.uint64(8)) % np.uint64(
        TABLE
    )


def _scripts(text: str) -> Counter[str]:
    return Counter(script_of(character) for character in text if character.isalpha())


class Side:
    """Language, scripts and trigrams of a side."""

    def __init__(self, texts: Sequence[str], detector: Detector | None) -> None:
        scripts: Counter[str] = Counter()
        for text in texts:
            scripts.update(_scripts(text))
        total = max(scripts.total(), 1)
        self._scripts = {name for name, count in scripts.items() if count >= RARE * total}
        self._main_script = scripts.most_common(1)[0][0] if scripts else ""
        self.language = ""
        self._detector = detector
        typical = list(texts)
        if detector is not None:
            typical = typical[:: max(1, len(typical) // DETECTED)]
            labels = [detector.detect(text)[0] for text in typical]
            votes: Counter[str] = Counter()
            for (label, confidence), text in zip(labels, typical, strict=True):
                votes[label] += int(confidence * len(text))
            self.language = votes.most_common(1)[0][0] if votes else ""
            typical = [
                text
                for text, label in zip(typical, labels, strict=True)
                if label[0] == self.language or label[1] < 50
            ]
        self.trigrams = Trigrams(typical)
        self._measure(typical)

    def _measure(self, texts: Sequence[str]) -> None:
        """Median and spread of the fit of typical texts, by length."""
        fits = np.array([self.trigrams.fit(text) for text in texts] or [0.0])
        lengths = np.array([sum(map(str.isalpha, text)) for text in texts] or [0])
        self._edges = np.quantile(lengths, np.linspace(0, 1, BINS + 1)[1:-1])
        bins = np.searchsorted(self._edges, lengths)
        self._usual = np.zeros((BINS, 2))
        for number in range(BINS):
            inside = fits[bins == number] if (bins == number).any() else fits
            median = np.median(inside)
            spread = 1.4826 * float(np.median(np.abs(inside - median)))
            self._usual[number] = median, max(spread, LEAST_SPREAD)

    def foreign(self, text: str) -> str | None:
        """Other script or language of a text of this side."""
        scripts = _scripts(text)
        letters = scripts.total()
        for name, count in scripts.most_common(1):
            if letters >= 3 and name not in self._scripts and count >= FOREIGN * letters:
                return f"script {name.title()} for {self._main_script.title()}"
        if self._detector is None or letters < LEAST_LETTERS or _is_name(text):
            return None
        median, spread = self._usual[np.searchsorted(self._edges, letters)]
        deviations = (median - self.trigrams.fit(text)) / spread
        needed = [confidence for least, confidence in UNUSUAL if deviations >= least]
        if not needed:  # the detector takes ten times as long
            return None
        label, confidence = self._detector.detect(text)[0]
        if label == self.language or confidence < min(needed):
            return None
        return f"{label} for {self.language}"


def _is_name(text: str) -> bool:
    """True for a word, and for words with capital letters alone."""
    words = [word for word in text.split() if word[0].isalpha()]
    return (len(words) < 2 and text.isascii()) or all(word[0].isupper() for word in words)


def is_of_a_side(text: str, sides: Sequence[Side]) -> bool:
    """True for a text whose letters fit one side clearly better than the other."""
    source, target = (side.trigrams.fit(text) for side in sides)
    return abs(source - target) >= ONE_SIDE
