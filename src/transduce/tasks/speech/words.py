"""Words of a transcript with their times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from transduce.tasks.speech.segments import Word
from transduce.text import Tokenizer
from transduce.text.offsets import token_spans
from transduce.text.scripts import is_unspaced

if TYPE_CHECKING:
    from transduce.decoding.ctc import TokenSpan


def words_of(tokenizer: Tokenizer, spans: Sequence[TokenSpan], seconds: float) -> tuple[Word, ...]:
    """Words of tokens with their times.  seconds: from one position to the next."""
    if not spans:
        return ()
    tokens = [span.token for span in spans]
    text = tokenizer.decode(tokens)
    characters = token_spans(tokenizer, text, tokens)
    words = []
    for start, end in word_places(text):
        inside = [
            span for span, (a, b) in zip(spans, characters, strict=True) if a < end and b > start
        ]
        if inside:
            score = sum(span.log_prob for span in inside) / len(inside)
            begin, after = inside[0].start * seconds, inside[-1].end * seconds
            words.append(Word(text[start:end], begin, after, score))
    return tuple(words)


def word_places(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of each word: all between blanks; in scripts without them a letter, with the
    marks after it."""
    start = 0
    for i in range(1, len(text) + 1):
        before, after = text[i - 1], text[i : i + 1]
        is_end = not after or after.isspace() or before.isspace()
        if is_end or (after.isalnum() and (is_unspaced(before) or is_unspaced(after))):
            if not before.isspace():
                yield start, i
            start = i
