"""Text as single characters (Unicode code points)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from transduce.config import section
from transduce.text.listed import ListedConfig, ListedTokenizer


@section
class CharactersConfig(ListedConfig):
    """Settings of a tokenizer that makes every character a token."""

    kind: Literal["characters"] = "characters"


class CharacterTokenizer(ListedTokenizer):
    """Every character is a token, spaces included."""

    kind = "characters"
    separator = ""

    @classmethod
    def split(cls, text: str) -> Sequence[str]:
        """The characters: a string is the sequence of them already."""
        return text
