"""Subword tokenizers of a made-up language."""

import random
from collections.abc import Iterator
from typing import Literal

import pytest

from transduce.text import SubwordConfig, SubwordTokenizer, train_tokenizer

SUBWORDS: tuple[Literal["bpe", "unigram"], ...] = ("bpe", "unigram")


SYLLABLES = (
    "tran",
    "for",
    "mer",
    "at",
    "ten",
    "tion",
    "ly",
    "ing",
    "über",
    "日本",
    "中",
    "ß",
    "qu",
)


def make_lines(count: int = 600) -> Iterator[str]:
    """Sentences of seven words of one to four syllables."""
    generator = random.Random(1)
    for _ in range(count):
        words = (
            "".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in "1234567"
        )
        yield " ".join(words) + "\n"


def train_subwords(kind: Literal["bpe", "unigram"], size: int = 400) -> SubwordTokenizer:
    """A tokenizer of that language."""
    tokenizer = train_tokenizer(SubwordConfig(kind=kind, size=size), make_lines())
    assert isinstance(tokenizer, SubwordTokenizer)
    return tokenizer


TRAINED = {kind: train_subwords(kind) for kind in SUBWORDS}


def one_line(error: pytest.ExceptionInfo[BaseException]) -> str:
    """The message of an error, which must be one line."""
    message = str(error.value)
    assert message and "\n" not in message
    return message
