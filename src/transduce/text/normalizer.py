"""Normalisation of text before every tokenizer, by stated rules."""

from __future__ import annotations

import re
import unicodedata
from typing import Final, Literal

from transduce.config import section

SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"
_FORMS: Final[dict[str, Literal["NFC", "NFD", "NFKC", "NFKD"]]] = {
    "nfc": "NFC",
    "nfd": "NFD",
    "nfkc": "NFKC",
    "nfkd": "NFKD",
}


@section
class Normalizer:
    """Settings shared by all tokenizers, and the rule they spell.  By default text stays as is."""

    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = "none"
    """Unicode form: `nfc` joins accents to their letters, `nfd` takes letters apart, Korean
    syllables too, and what is decoded stays so; with k, width and ligatures are folded as well"""
    lowercase: bool = False
    """Write everything in lower case"""

    def apply(self, text: str) -> str:
        """Text by the rule; lone surrogates, which no file can hold as UTF-8, become U+FFFD.

        Applying it twice changes nothing more.
        """
        if not text.isascii():
            text = SURROGATES.sub(_REPLACEMENT, text)
            text = self._in_form(text)
        if self.lowercase:
            # Lowering can take a letter apart (İ), so the form is restored after it.
            text = self._in_form(text.lower())
        return text

    def _in_form(self, text: str) -> str:
        if self.normalization == "none":
            return text
        return unicodedata.normalize(_FORMS[self.normalization], text)
