"""Texts that are too long, in pieces that are not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from transduce.text import Tokenizer

SENTENCE_ENDS = tuple(".!?。！？…;；:：")


def in_pieces(ids: list[int], longest: int, tokenizer: Tokenizer) -> Iterator[list[int]]:
    """The ids whole, or in pieces of at most `longest`, cut after ends of sentences or words."""
    while len(ids) > longest:
        cut = _cut(tokenizer.tokens(ids[: longest + 1]))
        yield ids[:cut]
        ids = ids[cut:]
    yield ids


def _cut(tokens: Sequence[str]) -> int:
    """Where to cut: after the last end of a sentence in the later half, else before a word."""
    half = len(tokens) // 2
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i - 1].endswith(SENTENCE_ENDS):
            return i
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i].startswith(("▁", " ")):
            return i
    return len(tokens) - 1
