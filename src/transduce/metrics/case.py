"""Letters without case, as metrics compare them."""

from __future__ import annotations

from transduce.metrics.translation import base_language

_DOTTED = "i\N{COMBINING DOT ABOVE}"
"""Lower case of the Turkish capital with a dot."""


def caseless(text: str, language: str = "") -> str:
    """Text in folded case.  Of the dotted and dotless i of Turkish and Azerbaijani, İ is i; I is ı
    in these languages alone."""
    if base_language(language) in ("tr", "az"):
        text = text.replace("I", "ı")
    return text.casefold().replace(_DOTTED, "i")
