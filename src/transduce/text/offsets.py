"""Spans of characters that the tokens of a text stand for.

Tokenizers give ids, not positions, and may lower case, strip accents, fold width, drop spaces, mark
the beginnings of words, spell a character in bytes or leave it unknown.  Text and tokens are
therefore reduced to the same bare letters, and each token is searched from the end of the token
before it.  As the tokens occur in the text in their order, the search never runs past the true
position; if all tokens are known it is exact.  Text between two known tokens belongs to the unknown
tokens there.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache

from transduce.text.tokenizer import UNK, Tokenizer

_BYTE = re.compile("<0x[0-9A-F]{2}>")
_OFFSET_SPACE = "▁"  # how a space is displayed in a token
_CONTINUED = "##"  # how WordPiece marks a token that does not begin a word


def tokens_with_spans(
    tokenizer: Tokenizer, text: str, ids: Sequence[int]
) -> tuple[list[int], list[tuple[int, int]]]:
    """Tokens of a text with their characters, and no token across a word boundary.

    Subword vocabularies contain "3," and "(19": they are split here, so that "1903" can be told
    from "(1903,".  Tokens of a tokenizer with positions of its own are kept, as an imported model
    was trained with them.
    """
    tokenizer_spans = tokenizer.spans(text)
    if tokenizer_spans is not None:
        return list(ids), _trimmed(text, tokenizer_spans)
    split_ids: list[int] = []
    spans: list[tuple[int, int]] = []
    made: dict[tuple[str, bool], list[tuple[int, tuple[int, int]]]] = {}
    shown = tokenizer.tokens(ids)
    for token, name, (start, end) in zip(
        ids, shown, token_spans(tokenizer, text, ids), strict=True
    ):
        inner = text[start:end]
        if end - start < 2 or inner.isalnum() or token == UNK or _BYTE.fullmatch(name):
            split_ids.append(token)
            spans.append((start, end))
            continue
        key = inner, name.startswith(_OFFSET_SPACE)
        if key not in made:
            made[key] = _taken_apart(tokenizer, token, *key)
        for part, (a, b) in made[key]:
            split_ids.append(part)
            spans.append((start + a, start + b))
    return split_ids, spans


def _trimmed(text: str, spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Spans without outer spaces, and with accents not covered by any token."""
    trimmed: list[tuple[int, int]] = []
    limit = len(text)
    for start, end in reversed(spans):
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        while start < end < limit and unicodedata.category(text[end]) == "Mn":
            end += 1
        if start < end:
            limit = start
        trimmed.append((start, end))
    return trimmed[::-1]


def _taken_apart(
    tokenizer: Tokenizer, token: int, text: str, begins_word: bool
) -> list[tuple[int, tuple[int, int]]]:
    """A token of several characters as tokens of words and of single other characters."""
    parts = list(_parts(text))
    if len(parts) < 2:
        return [(token, (0, len(text)))]
    tokens: list[tuple[int, tuple[int, int]]] = []
    at = 0
    for part in parts:
        ids = tokenizer.encode(part) if begins_word and not at else within_word(tokenizer, part)
        for subtoken, (a, b) in zip(ids, token_spans(tokenizer, part, ids), strict=True):
            tokens.append((subtoken, (at + a, at + b)))
        at += len(part)
    return tokens


def _parts(text: str) -> Iterator[str]:
    """Words, made of letters, numbers and their marks, and single other characters."""
    for in_word, group in itertools.groupby(text, lambda c: unicodedata.category(c)[0] in "LNM"):
        characters = list(group)
        yield from ["".join(characters)] if in_word else characters


def within_word(tokenizer: Tokenizer, text: str) -> list[int]:
    """Ids of a text that continues a word: encoded after a line end, where SentencePiece joins
    nothing."""
    guard, ids = tokenizer.encode("\n"), tokenizer.encode("\n" + text)
    if ids[: len(guard)] != guard:
        return tokenizer.encode(text)
    return ids[len(guard) :]


def token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Characters [start, end) of `text` for each of `ids`, its tokens in order.

    A token of spaces only has an empty span.  Several tokens of a character share its span, and
    so do adjacent unknown tokens, unless there are as many as characters.  Spans neither begin nor
    end with a space.
    """
    bare, starts, ends = _reduced(text)
    continued = _marks_continuations(tokenizer)
    spans: list[tuple[int, int]] = []
    at, last = 0, 0  # where the last known token ended: in `bare`, in `text`
    waiting: list[bool] = []  # for each token of unknown place whether it is more than a space
    for token, shown in zip(ids, tokenizer.tokens(ids), strict=True):
        known = token != UNK and not _BYTE.fullmatch(shown)
        begins_word = continued and not shown.startswith(_CONTINUED)
        letters = _bare(shown.removeprefix(_CONTINUED) if continued else shown)
        if known and letters:
            start = bare.find(letters, at)
            while begins_word and start > at and _within_word_at(text, starts[start]):
                start = bare.find(letters, start + 1)
            if start >= 0:
                spans += _spread(text, last, starts[start], waiting)
                at, waiting = start + len(letters), []
                last = ends[at - 1]
                spans.append((starts[start], last))
                continue
        waiting.append(not known or bool(letters))
    return spans + _spread(text, last, len(text), waiting)


def _spread(text: str, start: int, end: int, waiting: Sequence[bool]) -> list[tuple[int, int]]:
    """Spans of tokens between two known tokens, in `text[start:end]`; `waiting`: more than a
    space."""
    n = sum(waiting)
    inside = range(start, max(start, end))
    letters = [i for i in inside if not text[i].isspace()]
    owners = [(letters[0], letters[-1] + 1) if letters else (start, start)] * n
    for places in ([i for i in inside if text[i] != " "], letters):
        for sizes in ([1] * len(places), [len(text[i].encode()) for i in places]):
            if sum(sizes) == n:  # a token for each character, or each byte of it
                spans = [(i, i if text[i].isspace() else i + 1) for i in places]
                owners = [s for s, size in zip(spans, sizes, strict=True) for _ in range(size)]
    token_ranges: list[tuple[int, int]] = []
    for is_owner in waiting:
        token_ranges.append(owners.pop(0) if is_owner else (start, start))
        start = max(start, token_ranges[-1][0])
    return token_ranges


@lru_cache(maxsize=8)
def _marks_continuations(tokenizer: Tokenizer) -> bool:
    """True if tokens inside words begin with "##", as in WordPiece."""
    shown = tokenizer.tokens(range(tokenizer.size))
    spaced = any(token.startswith(_OFFSET_SPACE) for token in shown)
    return not spaced and any(t.startswith(_CONTINUED) and len(t) > 2 for t in shown)


def _within_word_at(text: str, i: int) -> bool:
    """True after a letter or number, so that no word begins here."""
    return i > 0 and all(unicodedata.category(c)[0] in "LNM" for c in text[i - 1 : i + 1])


def _reduced(text: str) -> tuple[str, list[int], list[int]]:
    """Bare letters of a text, with the start and end of each; the end includes accents after it."""
    parts: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for i, character in enumerate(text):
        part = _bare(character)
        parts.append(part)
        starts += [i] * len(part)
        ends += [i + 1] * len(part)
        if not part and ends and ends[-1] == i and not _is_space(character):
            ends[-1] = i + 1
    return "".join(parts), starts, ends


@lru_cache(maxsize=1 << 16)
def _bare(text: str) -> str:
    """Text without case, accents, width and spaces, character by character."""
    return "".join(map(_bare_character, text))


def _bare_character(character: str) -> str:
    if _is_space(character):
        return ""
    folded = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", character).casefold())
    return "".join(c for c in folded if not c.isspace() and unicodedata.category(c) != "Mn")


def _is_space(character: str) -> bool:
    return character.isspace() or character == _OFFSET_SPACE
