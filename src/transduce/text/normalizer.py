"""What every tokenizer does to text before it looks at it: stated rules, in plain Python."""

from __future__ import annotations

import re
import unicodedata
from typing import Literal

from transduce.config import section

_SURROGATES = re.compile("[\ud800-\udfff]")
_REPLACEMENT = "\ufffd"


@section
class Normalizer:
    """Settings shared by all tokenizers, and the rule they spell.  By default text stays as is."""

    normalization: Literal["none", "nfc", "nfkc"] = "none"
    """Unicode form: `nfc` joins accents to their letters, `nfkc` also folds width and ligatures"""
    lowercase: bool = False
    """Write everything in lower case"""

    def apply(self, text: str) -> str:
        """Text by the rule; lone surrogates, which no file can hold as UTF-8, become U+FFFD.

        Applying it twice changes nothing more.
        """
        if not text.isascii():
            text = _SURROGATES.sub(_REPLACEMENT, text)
            text = self._in_form(text)
        if self.lowercase:
            # Lowering can take a letter apart (İ), so the form is restored after it.
            text = self._in_form(text.lower())
        return text

    def _in_form(self, text: str) -> str:
        match self.normalization:
            case "none":
                return text
            case "nfc":
                return unicodedata.normalize("NFC", text)
            case "nfkc":
                return unicodedata.normalize("NFKC", text)
