"""Scripts of letters, and those without spaces between words."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

UNSPACED = (
    ("\u0e00", "\u0eff"),  # Thai, Lao
    ("\u1000", "\u109f"),  # Myanmar
    ("\u1780", "\u17ff"),  # Khmer
    ("\u2e80", "\u9fff"),  # Chinese and Japanese, with their punctuation
    ("\uf900", "\ufaff"),
    ("\uff66", "\uff9f"),
    ("\U0001b000", "\U0001b16f"),
    ("\U00020000", "\U0003ffff"),
)
"""First and last character of each range."""

LETTERS = re.compile("[^\\W\\d_]{2}|[^\\W\\d_a-zA-Zªº]")
"""Two letters, or one that is not Latin."""
FULL_WIDTH = ("！", "｠")
CLITICS = frozenset(("HANGUL", "ARABIC", "HEBREW"))
"""Scripts whose prepositions and particles are written onto the word beside them."""


def is_unspaced(character: str) -> bool:
    """True for a character, punctuation included, that no blank separates from the next word."""
    return any(low <= character <= high for low, high in (*UNSPACED, FULL_WIDTH))


def is_of_word(character: str) -> bool:
    """True for a letter or digit that a blank parts from the next word."""
    return character.isalnum() and not is_unspaced(character)


def has_words(text: str) -> bool:
    """True unless a text is made of signs, numbers, dates, addresses of numbers and codes such as
    `v2.0`: parts with a digit, whose Latin letters stand alone."""
    return any(
        any(map(str.isalpha, part))
        and (not any(map(str.isdigit, part)) or LETTERS.search(part) is not None)
        for part in text.split()
    )


def takes_clitics(character: str) -> bool:
    """True for a letter of a script whose short words are written onto others."""
    return script_of(character) in CLITICS


@lru_cache(maxsize=1 << 14)
def script_of(character: str) -> str:
    """Script of a letter, as Unicode names it; Japanese and Chinese letters are one."""
    name = unicodedata.name(character, "?").partition(" ")[0]
    return "CJK" if name in ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA") else name
