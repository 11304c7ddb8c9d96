"""Surfaces of tokens, which distinguish words from parts of words."""

from __future__ import annotations

import bisect
import functools
import unicodedata
from collections.abc import Sequence

from transduce.errors import SettingError
from transduce.text import CharacterTokenizer, Tokenizer
from transduce.text.listed import ListedTokenizer
from transduce.text.scripts import UNSPACED
from transduce.text.tokenizer import UNK


class TokenSurfaces:
    """The bytes that each token adds to a text, and the ids of phrases."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.surfaces: Sequence[bytes] = tokenizer.surfaces()
        self.words = not isinstance(tokenizer, CharacterTokenizer)
        """True if tokens are grouped into words; otherwise phrases may match anywhere."""
        order = sorted(range(UNK + 1, len(self.surfaces)), key=self.surfaces.__getitem__)
        self._ranked = [token for token in order if self.surfaces[token]]
        self._sorted = [self.surfaces[token] for token in self._ranked]

    @functools.cached_property
    def continues(self) -> frozenset[int]:
        """Tokens that make the word before them longer."""
        if not self.words:
            return frozenset()
        return frozenset(t for t in self._ranked if first_is_letter(self.surfaces[t]))

    def starting(self, beginning: bytes) -> list[int]:
        """Tokens whose bytes start with `beginning`."""
        low = bisect.bisect_left(self._sorted, beginning)
        high = bisect.bisect_left(self._sorted, _after(beginning), low)
        return self._ranked[low:high]

    def containing(self, part: bytes) -> list[int]:
        """Tokens with `part` anywhere in their bytes."""
        return [t for t, s in zip(self._ranked, self._sorted, strict=True) if part in s]

    def text_of(self, ids: Sequence[int]) -> bytes:
        """Text of ids in the middle of an output."""
        return b"".join(self.surfaces[i] for i in ids if i < len(self.surfaces))

    def prefix(self, text: str) -> tuple[int, ...]:
        """Ids of the beginning of an output.  Raises SettingError for an unknown character."""
        # a space at its end belongs to the next word, whose token brings it along
        return self._known("prefix", text, text.rstrip() if self.words else text)

    def phrase(self, text: str, setting: str = "constraints") -> tuple[int, ...]:
        """Ids of a phrase after a space.  Raises SettingError if blank or unknown."""
        if not text.strip():
            raise SettingError(f"{setting}: {text!r} is blank; remove it")
        text = text.strip() if self.words else text
        ids = self._known(setting, text, text)
        if isinstance(self.tokenizer, ListedTokenizer) or self.surfaces[ids[0]].startswith(b" "):
            return ids
        before = self.tokenizer.encode("x")
        after = self.tokenizer.encode(f"x {text}")
        inside = tuple(after[len(before) :])
        return inside if after[: len(before)] == before and inside else ids

    def _known(self, setting: str, phrase: str, text: str) -> tuple[int, ...]:
        ids = tuple(self.tokenizer.encode(text))
        if UNK in ids:
            raise SettingError(f"{setting}: {phrase!r} has characters outside the vocabulary")
        return ids


def is_letter(character: str) -> bool:
    """Part of a word, in a script that has spaces between words."""
    if not character or unicodedata.category(character)[0] not in "LNM":  # and marks on them
        return False
    return not any(low <= character <= high for low, high in UNSPACED)


def first_is_letter(text: bytes) -> bool:
    """True if a text, possibly starting within a character, begins with a letter."""
    return is_letter(text.decode("utf-8", "replace")[:1])


def last_is_letter(text: bytes) -> bool:
    """True if a text, possibly ending within a character, ends with a letter."""
    return is_letter(text[-4:].decode("utf-8", "replace")[-1:])


def _after(beginning: bytes) -> bytes:
    """The least bytes that are greater than everything that starts with `beginning`."""
    whole = beginning.rstrip(b"\xff")
    return whole[:-1] + bytes([whole[-1] + 1]) if whole else b"\xff" * 8
