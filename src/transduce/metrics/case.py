"""Letters without case, as metrics compare them."""

import re

_DOTTED = "i\N{COMBINING DOT ABOVE}"
"""Lower case of the Turkish capital with a dot."""
_WITH_DOTLESS = ("tr", "tur", "az", "aze", "azj")
"""Codes of Turkish and Azerbaijani."""


def lowered(text: str, language: str = "") -> str:
    """Text in lower case.  Of the dotted and dotless i of Turkish and Azerbaijani, İ is i; I is ı
    in these languages alone."""
    if re.split("[-_]", language.strip().lower())[0] in _WITH_DOTLESS:
        text = text.replace("I", "ı")
    return text.lower().replace(_DOTTED, "i")


def caseless(text: str, language: str = "") -> str:
    """Text in folded case, with each i as in `lowered`."""
    return lowered(text, language).casefold()
