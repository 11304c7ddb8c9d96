"""Tokenizer of single characters (Unicode code points), with tags before the text as a token
each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from transduce.settings.sections import section
from transduce.text.listed import ListedConfig, ListedTokenizer

_TAG = re.compile(r"<[^<>\s]+> ")


def mark(tag: str) -> str:
    """Format a tag for use before a source, as ordinary text."""
    return f"<{' '.join(tag.split())}> "


def leading_tags(text: str) -> list[str]:
    """Tags at the beginning of a text, each with its space."""
    tags = []
    end = 0
    while tag := _TAG.match(text, end):
        tags.append(tag[0])
        end = tag.end()
    return tags


@section
class CharactersConfig(ListedConfig):
    """Settings of a tokenizer with one token per character."""

    kind: Literal["characters"] = "characters"


class CharacterTokenizer(ListedTokenizer):
    """A token per character, spaces included, and per tag `<de> ` at the beginning, if it is
    known."""

    kind = "characters"
    outputs = "characters"
    separator = ""

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """Tags, then characters, as a string is already a sequence of them."""
        tags = leading_tags(text)
        return [*tags, *text[sum(map(len, tags)) :]] if tags else text

    @classmethod
    def is_tag(cls, unit: str) -> bool:
        """True for units of several characters."""
        return len(unit) > 1

    @property
    def tags(self) -> list[str]:
        """Tags in the vocabulary, each with its space, the most frequent first."""
        return [unit for unit in self.units if self.is_tag(unit)]

    def units_of(self, text: str) -> Iterator[str]:
        """Units as in `split`, with tags outside the vocabulary as their characters."""
        for unit in self.split(text):
            if unit in self._ids or not self.is_tag(unit):
                yield unit
            else:
                yield from unit
