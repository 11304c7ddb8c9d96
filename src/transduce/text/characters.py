"""Text as single characters (Unicode code points), tags before it as one token each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from transduce.config import section
from transduce.text.listed import ListedConfig, ListedTokenizer

_TAG = re.compile(r"<[^<>\s]+> ")


def leading_tags(text: str) -> list[str]:
    """The tags at the beginning of a text, each with its blank."""
    tags = []
    end = 0
    while tag := _TAG.match(text, end):
        tags.append(tag[0])
        end = tag.end()
    return tags


@section
class CharactersConfig(ListedConfig):
    """Settings of a tokenizer that makes every character a token."""

    kind: Literal["characters"] = "characters"


class CharacterTokenizer(ListedTokenizer):
    """Every character is a token, spaces included, and so is each tag at the beginning.

    A tag is `<de> `, with its blank.  One that is not in the vocabulary is spelled.
    """

    kind = "characters"
    separator = ""

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """The tags, then the characters: a string is the sequence of them already."""
        tags = leading_tags(text)
        return [*tags, *text[sum(map(len, tags)) :]] if tags else text

    @classmethod
    def is_tag(cls, unit: str) -> bool:
        """All that is not a single character."""
        return len(unit) > 1

    @property
    def tags(self) -> list[str]:
        """Those of the vocabulary, each with its blank, the most frequent first."""
        return [unit for unit in self.units if self.is_tag(unit)]

    def units_of(self, text: str) -> Iterator[str]:
        """As `split` has them, tags that are not in the vocabulary as their characters."""
        for unit in self.split(text):
            if unit in self._ids or not self.is_tag(unit):
                yield unit
            else:
                yield from unit
