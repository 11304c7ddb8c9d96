"""Splitting of texts into lines, and of long lines into segments."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transduce.text import CharacterTokenizer, Tokenizer
from transduce.text.characters import leading_tags
from transduce.text.imported import ImportedTokenizer
from transduce.text.marian import MarianTokenizer
from transduce.text.scripts import is_unspaced
from transduce.text.tokenizer import UNK

SENTENCE_ENDS = tuple(".!?。！？…;；:：")
BREAK = re.compile(r"(\r?\n)")


class Lines(NamedTuple):
    """The lines of a text, and the breaks between them."""

    texts: tuple[str, ...]
    breaks: tuple[str, ...] = ()

    @property
    def is_blank(self) -> bool:
        """True if there is nothing to translate."""
        return not any(map(str.strip, self.texts))

    def tagged(self, tag: str) -> Lines:
        """The lines with a tag before the first, unless they are blank."""
        if not tag or self.is_blank:
            return self
        return self._replace(texts=(tag + self.texts[0], *self.texts[1:]))

    def with_breaks(self, outputs: Iterable[str]) -> str:
        """Outputs of the lines as a text, with the breaks of the source."""
        return "".join(map(str.__add__, outputs, (*self.breaks, "")))


def lines_of(text: str) -> Lines:
    r"""A text cut at its line breaks, each "\n" or "\r\n"; a blank text is a single line."""
    if "\n" not in text or not text.strip():
        return Lines((text,))
    parts = BREAK.split(text)
    return Lines(tuple(parts[::2]), tuple(parts[1::2]))


def split_source(
    ids: list[int], max_length: int, tokenizer: Tokenizer, tagged: bool = False
) -> Iterator[list[int]]:
    """Ids in pieces of at most `max_length`, cut after sentences or words; whole if short enough.

    tagged: a text may begin with tags, or the language code of a Marian tokenizer, which are then
    repeated in each piece.
    """
    if len(ids) <= max_length:
        yield ids
        return
    head = head_of(ids, tokenizer, tagged)
    if 2 * len(head) > max_length:
        head = []
    n_last = len(tokenizer.closing) if isinstance(tokenizer, ImportedTokenizer) else 0
    room, end = max_length - len(head) - n_last, len(ids) - n_last
    rest, tail = ids[len(head) : end], ids[end:]
    while len(rest) > room:
        cut = _cut(tokenizer.tokens(rest[: room + 1]))
        yield [*head, *rest[:cut], *tail]
        rest = rest[cut:]
        if isinstance(tokenizer, CharacterTokenizer):  # no text of training begins with a blank
            while len(rest) > 1 and tokenizer.decode(rest[:1]).isspace():
                rest = rest[1:]
    yield [*head, *rest, *tail]


def joined(parts: Iterable[Sequence[int]], tokenizer: Tokenizer) -> list[int]:
    """Join the ids of the outputs of pieces.

    Subwords include the space between two pieces; characters get a space if their script has it.
    """
    ids: list[int] = []
    for part in parts:
        if ids and part and isinstance(tokenizer, CharacterTokenizer):
            sides = tokenizer.decode([ids[-1], part[0]])
            blank = tokenizer.encode(" ")
            if not (UNK in blank or " " in sides or any(map(is_unspaced, sides))):
                ids += blank
        ids += part
    return ids


def head_of(ids: list[int], tokenizer: Tokenizer, tagged: bool) -> list[int]:
    """The ids of a language code, or of tags, before a text."""
    if isinstance(tokenizer, ImportedTokenizer) and ids and tokenizer.is_mark(ids[0]):
        return ids[:1]
    if isinstance(tokenizer, MarianTokenizer):
        first = "".join(tokenizer.tokens(ids[:1]))
        return ids[: int(first.startswith(">>") and first.endswith("<<"))]
    if not tagged:
        return []
    tags = "".join(leading_tags(tokenizer.decode(ids)))
    # With letters the blank belongs to the tag, with subwords to the next word.
    head = tokenizer.encode(tags if isinstance(tokenizer, CharacterTokenizer) else tags.rstrip())
    return head if ids[: len(head)] == head else []


def _cut(tokens: Sequence[str]) -> int:
    """Cut after the last end of a sentence in the later half, else before a word."""
    half = len(tokens) // 2
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i - 1].endswith(SENTENCE_ENDS):
            return i
    for i in range(len(tokens) - 1, half, -1):
        if tokens[i].startswith(("▁", " ")):
            return i
    return len(tokens) - 1
