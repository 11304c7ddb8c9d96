"""Settings of masking, and the words that tokens are parts of.  Imports no torch."""

import re
import unicodedata
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from transduce.errors import SettingError
from transduce.settings.sections import section
from transduce.text.tokenizer import SPECIAL_TOKENS

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_SPACE = "▁"  # how tokens show a space before them
_CONTINUED = "##"  # how WordPiece shows that a token goes on with a word
Share = Annotated[float, Field(ge=0, le=1)]


@section
class MaskingConfig:
    """Selection and replacement of tokens to predict."""

    share: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Share of each text's tokens to predict."""
    masked: Share = 0.8
    """Share of these replaced by MASK."""
    random: Share = 0.1
    """Share of these replaced by a random token; the rest stays unchanged."""
    whole_words: bool = False
    """Mask all tokens of a word or none.  A word begins after a space, as in WordPiece, with a
    Chinese character, or with punctuation."""

    def __post_init__(self) -> None:
        if self.masked + self.random > 1:
            raise SettingError("masking.masked and masking.random must not add up to more than 1")


def begin_words(shown: Sequence[str]) -> list[bool]:
    """For each token of a vocabulary, given as text: True if a word begins with it."""
    words = shown[len(SPECIAL_TOKENS) :]
    if not any(token.startswith(_SPACE) for token in words):
        if any(token.startswith(_CONTINUED) and len(token) > 2 for token in words):
            return [not token.startswith(_CONTINUED) for token in shown]
        if any(len(token) > 1 for token in words):  # symbols, each of which stands for itself
            return [True] * len(shown)
    return [not _is_letter(token[:1]) and not _BYTE.fullmatch(token) for token in shown]


def hold_spaces(shown: Sequence[str]) -> bool:
    """True if tokens include the space before them, as in SentencePiece and byte-level BPE."""
    words = shown[len(SPECIAL_TOKENS) :]
    return any(token.startswith(_SPACE) and len(token) > 1 for token in words)


def continues_word(shown: Sequence[str]) -> list[bool]:
    """For each token as text: True if it continues text without a space, as "ing" and "##ing";
    single characters do not, even after the end of a word."""
    if hold_spaces(shown):
        return [not token.startswith(_SPACE) for token in shown]
    return [token.startswith(_CONTINUED) and len(token) > 2 for token in shown]


def _is_letter(character: str) -> bool:
    if not character or "\u3400" <= character <= "\u9fff" or "\uf900" <= character <= "\ufaff":
        return False
    return unicodedata.category(character)[0] in "LNM"
