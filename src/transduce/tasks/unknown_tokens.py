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
"""So much of the training data is looked at."""


class UnknownTokens:
    """Says once of the inputs of a run that one has unknown tokens: another case or script, say.

    They are read all the same, each as a token of which nothing was learnt.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._told = False

    def check(
        self, texts: Sequence[str], rows: Sequence[Sequence[int]], numbers: Sequence[int]
    ) -> None:
        """Warn of the first text with such tokens, if none was warned of before.

        rows: the ids of each text.  numbers: of their lines in a longer input, from 0.
        """
        names = (f"line {number + 1}" for number in numbers)
        self.check_named(([text] for text in texts), rows, names)

    def check_named(
        self,
        inputs: Iterable[Sequence[str]],
        rows: Iterable[Container[int]],
        names: Iterable[str],
    ) -> None:
        """The same of inputs of several texts, whose names the warning uses."""
        if self._told:
            return
        for texts, ids, name in zip(inputs, rows, names, strict=False):
            if UNK in ids and (said := _unknown_in(self._tokenizer, texts)):
                unknown, count, first = said
                message = "%s: %d of %d tokens are unknown to this model, %r first; said once"
                logger.warning(message, name, unknown, count, first)
                self._told = True
                return


def tell_of_training_texts(tokenizer: Tokenizer, texts: Iterable[str]) -> None:
    """Warn of training texts with tokens that a vocabulary of another run does not know.

    Of many texts the first ones are looked at.
    """
    with_unknown, first, read, room = 0, "", 0, MAX_CHARACTERS
    for text in itertools.islice(texts, MAX_TEXTS):
        text = text[:room]
        read, room = read + 1, room - len(text)
        if UNK in tokenizer.encode(text) and (said := _unknown_in(tokenizer, [text])):
            with_unknown, first = with_unknown + 1, first or said[2]
        if not room:
            break
    if with_unknown:
        message = (
            "%d of %d training texts have tokens that are unknown to the vocabulary of the run to "
            "start from, %r first; nothing can be learnt of them"
        )
        logger.warning(message, with_unknown, read, first)


def _unknown_in(tokenizer: Tokenizer, texts: Sequence[str]) -> tuple[int, int, str] | None:
    """How many tokens are unknown, of how many, and the first; blank texts have none."""
    given = [text for text in texts if text.strip()]
    rows = [tokenizer.encode(text) for text in given]
    named = (_named(tokenizer, *pair) for pair in zip(given, rows, strict=True) if UNK in pair[1])
    first = next(named, None)
    if first is None:
        return None
    return sum(ids.count(UNK) for ids in rows), sum(map(len, rows)), first


def _named(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> str:
    if isinstance(tokenizer, ListedTokenizer):
        return next(tokenizer.unknown_units(text))
    start, end = token_spans(tokenizer, text, ids)[ids.index(UNK)]
    return text[start:end]
