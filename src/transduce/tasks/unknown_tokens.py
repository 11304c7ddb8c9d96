"""Warnings of characters and tokens that a vocabulary lacks."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Container, Iterable, Sequence

from transduce.text import Tokenizer
from transduce.text.listed import ListedTokenizer
from transduce.text.offsets import token_spans
from transduce.text.tokenizer import UNK

logger = logging.getLogger("transduce")

MAX_TEXTS = 100_000
MAX_CHARACTERS = 20_000_000
"""Limit on the training text checked."""


class UnknownTokens:
    """Warns once if inputs of a run have unknown tokens, e.g. of another case or script.

    These are still read, as the unknown token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._told = False

    def check(
        self,
        inputs: Iterable[Sequence[str]],
        rows: Iterable[Container[int]],
        names: Iterable[str],
    ) -> None:
        """Check inputs of several texts; the warning uses their names."""
        if self._told:
            return
        for texts, ids, name in zip(inputs, rows, names, strict=False):
            if UNK in ids and (units := _unknown_in(self._tokenizer, texts)):
                unknown, count, first = units
                message = "%s: %d of %d tokens are unknown to the model, such as %r (reported once)"
                logger.warning(message, name, unknown, count, first)
                self._told = True
                return


def tell_of_training_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Warn of training texts with tokens outside the vocabulary of the base run.

    Only the first texts are checked if there are many.
    """
    with_unknown, first, read, room = 0, "", 0, MAX_CHARACTERS
    for text in itertools.islice(texts, MAX_TEXTS):
        text = text[:room]
        read, room = read + 1, room - len(text)
        if UNK in tokenizer.encode(text) and (unknown := _unknown_in(tokenizer, [text])):
            with_unknown, first = with_unknown + 1, first or unknown[2]
        if not room:
            break
    if with_unknown:
        message = (
            "%d of %d training texts have tokens outside the vocabulary of the base run, such as "
            "%r; the model cannot learn them"
        )
        logger.warning(message, with_unknown, read, first)


def _unknown_in(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[int, int, str] | None:
    """Number of unknown tokens, number of tokens, and the first unknown token; blank texts have
    none."""
    filled = [text for text in texts if text.strip()]
    rows = [tokenizer.encode(text) for text in filled]
    named = (_named(tokenizer, *pair) for pair in zip(filled, rows, strict=True) if UNK in pair[1])
    first = next(named, None)
    if first is None:
        return None
    return sum(ids.count(UNK) for ids in rows), sum(map(len, rows)), first


def _named(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> str:
    if isinstance(tokenizer, ListedTokenizer):
        return next(tokenizer.unknown_units(text))
    start, end = token_spans(tokenizer, text, ids)[ids.index(UNK)]
    return text[start:end]
