"""Normalisation of text before every tokenizer, by stated rules."""

from __future__ import annotations

import unicodedata
from typing import Literal, cast

from transduce.settings.sections import section
from transduce.support.limits import SURROGATES

_REPLACEMENT = "\ufffd"
_Form = Literal["NFC", "NFD", "NFKC", "NFKD"]


@section
class Normalizer:
    """Normalisation settings shared by all tokenizers.  By default text is unchanged."""

    normalization: Literal["none", "nfc", "nfd", "nfkc", "nfkd"] = "none"
    """Unicode form: `nfc` composes letters with their accents, `nfd` decomposes them, and Korean
    syllables too, also in decoded text; with k, width and ligatures are folded as well"""
    lowercase: bool = False
    """Lower-case all text"""

    def alone(self) -> Normalizer:
        """These settings without those of a section that inherits them."""
        return Normalizer(normalization=self.normalization, lowercase=self.lowercase)

    def apply(self, text: str) -> str:
        """Normalise a text, idempotently; lone surrogates, impossible in UTF-8 files, become
        U+FFFD."""
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
        return unicodedata.normalize(cast(_Form, self.normalization.upper()), text)
