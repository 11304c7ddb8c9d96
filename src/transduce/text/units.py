"""Units of alignments: words, characters of scripts without spaces, or pieces."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from transduce.text.offsets import token_spans
from transduce.text.scripts import UNSPACED
from transduce.text.tokenizer import Tokenizer

Unit = Literal["words", "characters", "tokens"]
"""words: text between spaces.  characters: the same, but each Chinese, Japanese or Thai character
is a word of its own.  tokens: the pieces of the model's tokenizer."""
WordUnit = Literal["words", "characters"]

_UNSPACED = "".join(f"{first}-{last}" for first, last in UNSPACED)
_UNITS = {
    "words": re.compile(r"\S+"),
    "characters": re.compile(rf"[{_UNSPACED}]|[^\s{_UNSPACED}]+"),
}


def unit_spans(text: str, unit: WordUnit) -> list[tuple[int, int]]:
    """Characters [start, end) of each unit of a text."""
    return [match.span() for match in _UNITS[unit].finditer(text)]


def units_of_tokens(
    tokenizer: Tokenizer, text: str, ids: Sequence[int], unit: Unit
) -> tuple[int, list[list[int]]]:
    """Number of units in a text, and for each of its tokens `ids` the units it belongs to: none for
    a space token, several for a token across a space."""
    if unit == "tokens":
        return len(ids), [[i] for i in range(len(ids))]
    spans = unit_spans(text, unit)
    owner = [-1] * len(text)
    for number, (start, end) in enumerate(spans):
        owner[start:end] = [number] * (end - start)
    parts = [
        sorted({owner[i] for i in range(start, end)} - {-1})
        for start, end in token_spans(tokenizer, text, ids)
    ]
    return len(spans), parts
