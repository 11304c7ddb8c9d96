"""Word and character error rates of speech, after normalising both sides."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Literal

from transduce.metrics.case import caseless
from transduce.metrics.ratio import RatioMetric
from transduce.metrics.symbols import edit_rate

APOSTROPHES = "'\N{RIGHT SINGLE QUOTATION MARK}"
NORMALISATION = "case:folded|punct:removed|unicode:NFKC"


def normalise(text: str, language: str = "") -> str:
    """Text as recognisers are compared by: NFKC, case folded, punctuation and symbols as spaces,
    but a straight apostrophe between letters."""
    folded = caseless(unicodedata.normalize("NFKC", text), language)
    return " ".join("".join(_kept(folded, i) for i in range(len(folded))).split())


def _kept(text: str, i: int) -> str:
    if text[i] in APOSTROPHES:
        inside = text[i - 1 : i].isalnum() and text[i + 1 : i + 2].isalnum()
        return "'" if inside else " "
    return " " if unicodedata.category(text[i])[0] in "PS" else text[i]


def speech_error_rate(unit: Literal["word", "character"], language: str = "") -> RatioMetric:
    """Edits per word or character, spaces too, of the reference, as of `edit_rate`, after
    `normalise`."""
    spaces = "|spaces:counted" if unit == "character" else ""

    def units(text: str) -> Sequence[str]:
        plain = normalise(text, language)
        return plain.split() if unit == "word" else plain

    return edit_rate(f"{unit}-error-rate", units, f"nrefs:{{nrefs}}|{NORMALISATION}{spaces}")
