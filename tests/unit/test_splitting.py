"""Texts that are too long: what a piece keeps of the whole, and how the outputs are joined."""

import pytest

from transduce.tasks.translation.text_translator import joined_pieces, split_source
from transduce.text import CharactersConfig, SubwordConfig, SymbolsConfig, train_tokenizer
from transduce.text.tokenizer import Tokenizer

LINES = [
    "<de> abc def ghi.",
    "<fr> <old> jkl mno pqr, abc",
    "abc def. ghi jkl? mno",
    "你好，再见。",
]
LONG = "abc def. ghi jkl mno pqr. abc def ghi jkl, mno pqr. abc def. ghi jkl mno pqr"


def letters() -> Tokenizer:
    return train_tokenizer(CharactersConfig(), LINES * 3)


def subwords() -> Tokenizer:
    return train_tokenizer(SubwordConfig(size=290), LINES * 3)


@pytest.mark.parametrize("tokenizer", [letters(), subwords()], ids=["letters", "subwords"])
@pytest.mark.parametrize("tags", ["", "<de> ", "<fr> <old> "])
@pytest.mark.parametrize("longest", [28, 35])
def test_each_piece_begins_as_the_text(tokenizer: Tokenizer, tags: str, longest: int) -> None:
    ids = tokenizer.encode(tags + LONG)
    pieces = list(split_source(ids, longest, tokenizer, tagged=True))
    assert len(pieces) > 1 and all(0 < len(piece) <= longest for piece in pieces)
    texts = [tokenizer.decode(piece) for piece in pieces]
    assert all(text.startswith(tags) for text in texts)
    bare = [text.removeprefix(tags) for text in texts]
    assert not any(text.startswith(" ") for text in bare)
    assert "".join(bare).replace(" ", "") == LONG.replace(" ", "")


def test_what_looks_like_a_tag_is_a_text_where_there_are_none() -> None:
    tokenizer = letters()
    first, *others = split_source(tokenizer.encode("<de> " + LONG), 20, tokenizer)
    assert tokenizer.decode(first).startswith("<de> ")
    assert not any(tokenizer.decode(piece).startswith("<de>") for piece in others)


def test_a_text_that_fits_is_whole() -> None:
    ids = letters().encode("<de> abc ")
    assert list(split_source(ids, len(ids), letters(), tagged=True)) == [ids]


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        (["abc def.", "ghi"], "abc def. ghi"),
        (["abc ", "ghi"], "abc ghi"),
        (["abc", "", "ghi"], "abc ghi"),
        (["你好，", "再见。"], "你好，再见。"),
        (["再见。", "abc"], "再见。abc"),
    ],
)
def test_letters_of_two_pieces_do_not_make_a_word(parts: list[str], whole: str) -> None:
    tokenizer = letters()
    assert tokenizer.decode(joined_pieces(map(tokenizer.encode, parts), tokenizer)) == whole


def test_other_tokens_bring_their_blank_along() -> None:
    for tokenizer, text in (
        (subwords(), "abc def."),
        (train_tokenizer(SymbolsConfig(), ["AH B"]), "AH B"),
    ):
        ids = tokenizer.encode(text)
        assert joined_pieces([ids, ids], tokenizer) == [*ids, *ids]
        assert tokenizer.decode([*ids, *ids]) == f"{text} {text}"
