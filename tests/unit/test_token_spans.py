"""Which characters of a text each token stands for, whatever the tokenizer."""

from typing import Any

import pytest

import transduce
from transduce.text import (
    CharactersConfig,
    SubwordConfig,
    SymbolsConfig,
    Tokenizer,
    train_tokenizer,
)
from transduce.text.offsets import token_spans, tokens_with_spans

ODD = (
    "  Über\u00a0 die  Brücke:\t\tCafe\u0301 (1903), 3,000 €! 😀 hi😀there\n"
    "北京是中国的首都。 ﬁn don't "
)


def make_tokenizer(kind: str) -> Tokenizer:
    lines = [
        ODD.replace("\n", " "),
        "der Fluß ist 3, 5 und (19 tief",
        "hi there don't 1903, 19",
    ] * 3
    match kind:
        case "characters":
            return train_tokenizer(CharactersConfig(normalization="nfkc", lowercase=True), lines)
        case "letters taken apart":
            return train_tokenizer(CharactersConfig(normalization="nfd"), lines)
        case "few characters":
            return train_tokenizer(CharactersConfig(min_count=8), lines)
        case "symbols":
            return train_tokenizer(SymbolsConfig(), lines)
        case "bpe":
            return train_tokenizer(SubwordConfig(size=400, lowercase=True), lines)
    return train_tokenizer(SubwordConfig(kind="unigram", size=360, character_coverage=0.98), lines)


KINDS = ["characters", "letters taken apart", "few characters", "symbols", "bpe", "unigram"]


def test_letters_taken_apart_stand_for_their_syllable() -> None:
    tokenizer = train_tokenizer(CharactersConfig(normalization="nfd"), ["한국 é"])
    spans = token_spans(tokenizer, "한국 é", tokenizer.encode("한국 é"))
    assert spans == [(0, 1)] * 3 + [(1, 2)] * 3 + [(2, 2), (3, 4), (4, 4)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_knows_its_characters(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    ids = tokenizer.encode(ODD)
    spans = token_spans(tokenizer, ODD, ids)
    assert len(spans) == len(ids)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    covered = set()
    for (start, end), shown in zip(spans, tokenizer.tokens(ids), strict=True):
        piece = ODD[start:end]
        assert piece == piece.strip()
        covered.update(range(start, end))
        known = "".join(shown.replace("▁", " ").split())
        if piece and known and not known.startswith("<"):
            normal = "".join(tokenizer.normalize(piece).split())
            apart = kind == "letters taken apart" and piece in ("Ü", "ü")
            longer = apart or piece in ("ﬁ", "e\u0301")
            assert known in normal and len(normal) <= len(known) + longer
    expected = {i for i, character in enumerate(ODD) if not character.isspace()}
    assert expected <= covered | {ODD.index("\u0301")}
    assert not any(ODD[i].isspace() for i in covered) or kind != "characters"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "symbols"])
def test_words_can_be_told_from_what_stands_beside_them(kind: str) -> None:
    tokenizer = make_tokenizer(kind)
    _, spans = tokens_with_spans(tokenizer, ODD, tokenizer.encode(ODD))
    starts, ends = {start for start, _ in spans}, {end for _, end in spans}
    words = ["Über", "Brücke", "Cafe\u0301", "1903", "000", "😀", "don", "hi", "there"]
    for word in [*words, *["北京", "首都"] * ("characters" in kind)]:
        place = ODD.index(word)
        assert place in starts and place + len(word) in ends, word


def test_tokens_across_the_edge_of_a_word_are_taken_apart() -> None:
    lines = ["in (1903, and (1903, then 1903, 3,000"] * 50
    tokenizer = train_tokenizer(SubwordConfig(size=300), lines)
    text = "in (1903, 3,000"
    ids = tokenizer.encode(text)
    assert any(len(set("(,") & set(token)) and len(token) > 2 for token in tokenizer.tokens(ids))
    apart, spans = tokens_with_spans(tokenizer, text, ids)
    assert "".join(text[a:b] for a, b in spans) == "in(1903,3,000"
    assert all(text[a:b].isalnum() or b - a <= 1 for a, b in spans)
    shown = tokenizer.tokens(apart)
    assert shown[:2] == ["▁in", "▁("] and shown[-1].isdigit() and "," in shown
    assert not any(token.startswith("▁") for token in shown[2 : shown.index(",") + 1])


class WordPieces(Tokenizer):
    """A tokenizer in the manner of BERT: lower case, no accents, "##", unknown words whole."""

    suffix = ".json"
    vocabulary = ("<pad>", "<unk>", "<s>", "</s>", "cafe", "##s", "play", "##ing", ",", "in", "#")

    def __init__(self) -> None:
        super().__init__(transduce.text.Normalizer(lowercase=True))

    @property
    def size(self) -> int:
        return len(self.vocabulary)

    def normalize(self, text: str) -> str:
        return text.lower()

    def encode(self, text: str) -> list[int]:
        pieces = {"cafés": ["cafe", "##s"], "playing": ["play", "##ing"]}
        words = text.lower().replace(",", " , ").replace("#", " # ").split()
        parts = [piece for word in words for piece in pieces.get(word, [word])]
        return [self.vocabulary.index(p) if p in self.vocabulary else 1 for p in parts]

    def decode(self, ids: Any) -> str:
        return " ".join(self.tokens(ids)).replace(" ##", "")

    def tokens(self, ids: Any) -> list[str]:
        return [self.vocabulary[i] for i in ids]

    def to_bytes(self) -> bytes:
        return b""


def test_unknown_characters_are_told_apart_where_there_is_a_token_for_each() -> None:
    tokenizer = train_tokenizer(SubwordConfig(size=270), ["ab ab ba"] * 9)
    text = "a €😀 b中国ab"
    _, spans = tokens_with_spans(tokenizer, text, tokenizer.encode(text))
    pieces = [text[a:b] for a, b in spans if a < b]
    assert "".join(dict.fromkeys(pieces)) in ("a€😀b中国ab", "a€😀b中国")
    assert pieces.count("€") == 3 and pieces.count("😀") == 4 and pieces.count("国") == 3


def test_wordpieces_and_unknown_words() -> None:
    text = "Playing, ℵinfinite in Cafés#"
    ids, spans = tokens_with_spans(WordPieces(), text, WordPieces().encode(text))
    pieces = ["Play", "ing", ",", "ℵinfinite", "in", "Café", "s", "#"]
    assert [text[a:b] for a, b in spans] == pieces
    assert ids == [6, 7, 8, 1, 9, 4, 5, 10]
