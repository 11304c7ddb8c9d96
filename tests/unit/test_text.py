"""Tokenizers: round trips over any Unicode, training, normalising, and settings."""

from __future__ import annotations

import logging
import subprocess
import sys
import tracemalloc
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.subwords import SUBWORDS, TRAINED, make_lines, one_line
from transduce.errors import DataError, SettingError
from transduce.settings.sections import parse, section, to_dict
from transduce.text import (
    BOS,
    EOS,
    PAD,
    UNK,
    CharactersConfig,
    Normalizer,
    SubwordConfig,
    SubwordTokenizer,
    SymbolsConfig,
    TokenizerConfig,
    load_tokenizer,
    train_tokenizer,
)
from transduce.text import subword as subword_module

ALL_CHARACTERS = st.text(st.characters())  # lone surrogates among them
AWKWARD = {
    "empty": "",
    "spaces": "  two  at each end  ",
    "only spaces": "   ",
    "tab": "a\tb\t",
    "breaks": "a\nb\r\nc\n",
    "nul": "\0a\0",
    "control names": "<s> x</s><s> <0x41><pad> <unk>",
    "emoji": "👩‍👩‍👧 🇫🇷",
    "right to left": "שלום \u202bעולם\u200f",
    "zero width": "a\u200bb\ufeff\u2060",
    "chinese": "我们是中国人，你好世界。",
    "combining": "e\u0301 o\u0308",
    "space sign": "\u2581a\u2581\u2581b",
    "unknown sign": "a\u2585b \u2047",
    "surrogates": "a\udc80b\ud83d",
    "edges": "\uffff\U0010ffff\ufffd",
    "very long": "x" * 100_000,
    "very long chinese": "你好" * 50_000,
}


@pytest.fixture(params=SUBWORDS)
def subword(request: pytest.FixtureRequest) -> SubwordTokenizer:
    return TRAINED[request.param]


# Subwords: every text comes back.


@pytest.mark.parametrize("kind", SUBWORDS)
@given(text=ALL_CHARACTERS)
@settings(max_examples=300, database=None)
def test_subwords_give_any_text_back(kind: Literal["bpe", "unigram"], text: str) -> None:
    tokenizer = TRAINED[kind]
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == tokenizer.normalize(text)
    assert not {PAD, UNK, BOS, EOS} & set(ids)
    assert tokenizer.normalize(tokenizer.normalize(text)) == tokenizer.normalize(text)


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD.keys())
def test_subwords_give_awkward_text_back(subword: SubwordTokenizer, text: str) -> None:
    ids = subword.encode(text)
    assert subword.decode(ids) == subword.normalize(text)
    assert not {PAD, UNK, BOS, EOS} & set(ids)


def test_training_holds_no_text_beside_the_copy_of_sentencepiece(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held: list[int] = []

    def read(config: object, size: int, texts: Iterator[str]) -> bytes:
        for _ in texts:
            held.append(tracemalloc.get_traced_memory()[0])
        return TRAINED["bpe"].sentencepiece

    monkeypatch.setattr(subword_module, "_train", read)
    lines = (f"{number:01000}" for number in range(500))
    tracemalloc.start()
    try:
        SubwordTokenizer.train(SubwordConfig(), lines)
    finally:
        tracemalloc.stop()
    assert len(held) == 500
    assert held[0] - held[-1] > 450_000


def test_normalize_of_subwords_changes_only_what_it_states(subword: SubwordTokenizer) -> None:
    changed = {"space sign", "surrogates"}
    for name, text in AWKWARD.items():
        assert (subword.normalize(text) != text) == (name in changed), name
    assert subword.normalize(AWKWARD["space sign"]) == " a  b"
    assert subword.normalize(AWKWARD["surrogates"]) == "a\ufffdb\ufffd"


@given(ids=st.lists(st.integers(-3, 410)))
@settings(database=None)
def test_any_ids_decode(ids: list[int]) -> None:
    for tokenizer in TRAINED.values():
        tokenizer.decode(ids).encode("utf-8")
        assert len(tokenizer.tokens(ids)) == len(ids)


def test_bytes_that_are_no_utf8_become_replacement_characters(subword: SubwordTokenizer) -> None:
    ids = subword.encode("🙂")
    assert subword.decode(ids[:-1]) == "\ufffd"
    assert subword.decode([ids[-1]]) == "\ufffd"


def test_special_ids_in_decoding(subword: SubwordTokenizer) -> None:
    ids = subword.encode("tran mer")
    assert subword.decode([BOS, *ids, EOS, PAD, PAD]) == "tran mer"
    assert subword.decode([*ids, UNK, subword.size, -1]) == "tran mer" + 3 * "\ufffd"
    assert subword.tokens([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_tokens_are_pieces_of_the_text(subword: SubwordTokenizer) -> None:
    ids = subword.encode("formerly attention")
    tokens = subword.tokens(ids)
    assert "".join(tokens) == "▁formerly▁attention"
    assert 2 <= len(tokens) < 12
    assert "<0xF0>" in subword.tokens(subword.encode("🙂"))


def test_a_batch_is_encoded_like_its_texts(subword: SubwordTokenizer) -> None:
    texts = list(AWKWARD.values())
    assert subword.encode_batch(texts) == [subword.encode(text) for text in texts]
    assert subword.encode_batch([]) == []


@pytest.mark.parametrize("kind", SUBWORDS)
def test_rules_are_applied_before_subwords(kind: Literal["bpe", "unigram"]) -> None:
    config = SubwordConfig(kind=kind, size=320, normalization="nfkc", lowercase=True)
    tokenizer = train_tokenizer(config, make_lines())
    assert tokenizer.encode("ＴＲＡＮ") == tokenizer.encode("tran")
    assert tokenizer.decode(tokenizer.encode("ﬁNE E\u0301")) == "fine é"


# Training.


def test_default_size_follows_the_text() -> None:
    lines = list(make_lines(600))
    characters = sum(len(line.rstrip()) for line in lines)
    size = 260 + len(set("".join(lines)) - {"\n"}) + characters // 150
    assert train_tokenizer(SubwordConfig(), lines).size == size < 600
    assert train_tokenizer(SubwordConfig(size=700), lines).size == 700


@pytest.mark.parametrize("kind", SUBWORDS)
def test_training_gives_the_size_asked_for_and_short_sequences(
    kind: Literal["bpe", "unigram"],
) -> None:
    tokenizer = TRAINED[kind]
    assert tokenizer.size == 400
    lines = [line.strip() for line in make_lines(50)]
    assert sum(map(len, tokenizer.encode_batch(lines))) < 0.5 * sum(map(len, lines))


@pytest.mark.parametrize("kind", SUBWORDS)
@pytest.mark.parametrize("train_lines", [100, 10_000])
def test_training_is_deterministic(kind: Literal["bpe", "unigram"], train_lines: int) -> None:
    config = SubwordConfig(kind=kind, size=330, train_lines=train_lines)
    first, second = (train_tokenizer(config, make_lines()).to_bytes() for _ in "12")
    assert first == second


def test_training_samples_from_the_whole_text() -> None:
    config = SubwordConfig(size=300, train_lines=100)
    lines = [*["aaaa bbbb"] * 1000, *["kkkk llll"] * 1000]
    tokenizer = train_tokenizer(config, lines)
    assert all(len(tokenizer.encode(word)) < 4 for word in ("aaaa", "llll"))


@pytest.mark.parametrize("kind", SUBWORDS)
def test_training_is_silent(
    kind: Literal["bpe", "unigram"], capfd: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(SubwordConfig(kind=kind, size=330), make_lines())
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")


@pytest.mark.parametrize("kind", SUBWORDS)
def test_training_on_awkward_text(kind: Literal["bpe", "unigram"]) -> None:
    config = SubwordConfig(kind=kind, size=600, character_coverage=1.0)
    tokenizer = train_tokenizer(config, [*AWKWARD.values(), *["<s>x</s> <0x41>"] * 50] * 2)
    for text in AWKWARD.values():
        assert tokenizer.decode(tokenizer.encode(text)) == tokenizer.normalize(text)


def test_lines_are_not_lost_for_one_odd_character_or_their_length() -> None:
    lines = ["abab \u2585"] * 20 + ["cdcd " * 5000]
    tokenizer = train_tokenizer(SubwordConfig(size=8000), lines)
    assert tokenizer.tokens(tokenizer.encode("abab cdcd")) == ["▁abab", "▁cdcd"]


@pytest.mark.parametrize("kind", SUBWORDS)
def test_too_large_a_vocabulary_is_lowered(
    kind: Literal["bpe", "unigram"], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="transduce"):
        tokenizer = train_tokenizer(SubwordConfig(kind=kind, size=8000), ["a small text"])
    assert 260 < tokenizer.size < 300
    [record] = caplog.records
    assert f"8000 to {tokenizer.size}" in record.getMessage()
    assert tokenizer.decode(tokenizer.encode("another")) == "another"


@pytest.mark.parametrize("kind", SUBWORDS)
def test_too_small_a_vocabulary_names_the_size_that_suffices(
    kind: Literal["bpe", "unigram"],
) -> None:
    lines = ["".join(map(chr, range(0x4E00, 0x4E80)))]
    with pytest.raises(SettingError) as error:
        train_tokenizer(SubwordConfig(kind=kind, size=300), lines)
    message = one_line(error)
    assert "size = 300 is too small" in message
    enough = 4 + 256 + 0x80 + 1  # special ids, bytes, characters, the space
    assert f"set it to {enough} or more" in message
    assert train_tokenizer(SubwordConfig(kind=kind, size=enough), lines).size == enough


@pytest.mark.parametrize(
    "config", [SubwordConfig(), SubwordConfig(kind="unigram"), CharactersConfig(), SymbolsConfig()]
)
def test_training_without_text(config: SubwordConfig | CharactersConfig | SymbolsConfig) -> None:
    blank = [] if isinstance(config, CharactersConfig) else [" \t\n"]  # to characters, text
    for lines in ([], ["", "\n"], blank):
        with pytest.raises(DataError) as error:
            train_tokenizer(config, iter(lines))
        one_line(error)


def test_an_error_while_reading_lines_is_not_swallowed() -> None:
    def broken() -> Iterator[str]:
        yield "one line"
        raise DataError("corpus.txt, line 2: not UTF-8")

    for config in (SubwordConfig(), CharactersConfig()):
        with pytest.raises(DataError, match="line 2"):
            train_tokenizer(config, broken())


# Characters and symbols.


def test_characters() -> None:
    tokenizer = train_tokenizer(CharactersConfig(), ["banana\n", "a b"])
    assert tokenizer.size == 4 + 4
    assert tokenizer.tokens(range(4, 8)) == ["a", "b", "n", "▁"]  # by frequency, then code point
    assert tokenizer.decode(tokenizer.encode(" nab  a ")) == " nab  a "
    assert tokenizer.encode("<s>") == [UNK] * 3
    assert tokenizer.decode([BOS, *tokenizer.encode("bax"), EOS, 99]) == "ba\ufffd\ufffd"
    assert tokenizer.decode([*tokenizer.encode("bxa"), 99], ["x"]) == "bxa\ufffd"
    assert list(tokenizer.unknown_units("bxay")) == ["x", "y"]
    assert tokenizer.tokens([*tokenizer.encode("bx"), 99, PAD]) == ["b", "<unk>", "<unk>", "<pad>"]
    assert tokenizer.outputs == "characters"


def test_tags_before_characters_are_one_token_each(tmp_path: Path) -> None:
    lines = ["<fre> <V> ab", "<fre> <N> b", "<rare> b"]
    tokenizer = train_tokenizer(CharactersConfig(), lines)
    assert {"<fre> ", "<V> ", "<N> ", "<rare> "} < set(tokenizer.tokens(range(4, tokenizer.size)))
    ids = tokenizer.encode("<fre> <N> ab")
    assert tokenizer.tokens(ids) == ["<fre> ", "<N> ", "a", "b"]
    path = tmp_path / "source.json"
    tokenizer.save(path)
    again = load_tokenizer(path)
    assert again.encode("<fre> <N> ab") == ids and again.decode(ids) == "<fre> <N> ab"
    # However rare they are.
    rare = train_tokenizer(CharactersConfig(min_count=2), lines)
    assert rare.tokens(rare.encode("<rare> ab")) == ["<rare> ", "<unk>", "b"]
    # Only before the text, and spelled where the vocabulary, maybe an older one, lacks them.
    assert len(tokenizer.encode("a <V> b")) == len("a <V> b")
    older = train_tokenizer(CharactersConfig(min_count=2), ["<fre> ab", "b", "x <f> x <f>"])
    assert older.tokens(older.encode("<V> <fre> b")) == [
        "<", "<unk>", ">", "▁", "<fre> ", "b"
    ]  # fmt: skip


def test_symbols() -> None:
    tokenizer = train_tokenizer(SymbolsConfig(), ["HH AH L OW", "W ER L D", "<s> </s>"])
    assert tokenizer.size == 4 + 9
    assert tokenizer.normalize("  HH\tAH  L ") == "HH AH L"
    assert tokenizer.decode(tokenizer.encode("  HH\tAH  L ")) == "HH AH L"
    assert tokenizer.tokens(tokenizer.encode("L ZZ")) == ["L", "<unk>"]
    assert tokenizer.decode([*tokenizer.encode("L ZZ"), EOS]) == "L \ufffd"
    assert not {BOS, EOS, UNK} & set(tokenizer.encode("<s> </s>"))
    assert tokenizer.outputs == "symbols"
    assert tokenizer.encode_batch(["L", ""]) == [tokenizer.encode("L"), []]


def test_rare_units_are_unknown() -> None:
    tokenizer = train_tokenizer(SymbolsConfig(min_count=2, lowercase=True), ["A a b", "c B"])
    assert tokenizer.tokens(range(4, tokenizer.size)) == ["a", "b"]
    assert tokenizer.encode("A C") == [4, UNK]
    with pytest.raises(SettingError) as error:
        train_tokenizer(CharactersConfig(min_count=9), ["abca"])
    assert "set it to 2 or less" in one_line(error)


@given(lines=st.lists(ALL_CHARACTERS.filter(lambda line: not line.isspace() and line), min_size=1))
@settings(database=None)
def test_known_characters_come_back(lines: list[str]) -> None:
    bare = [line.rstrip("\r\n") + "x" for line in lines]
    tokenizer = train_tokenizer(CharactersConfig(), bare)
    for line in bare:
        assert tokenizer.decode(tokenizer.encode(line)) == tokenizer.normalize(line)


# Normalisation.


def test_normalizer_rules() -> None:
    text = "E\u0301 ﬁ Ａ"
    assert Normalizer().apply(text) == text
    assert Normalizer(normalization="nfc").apply(text) == "É ﬁ Ａ"
    assert Normalizer(normalization="nfkc").apply(text) == "É fi A"
    assert Normalizer(normalization="nfd").apply("É ﬁ 한") == "E\u0301 ﬁ \u1112\u1161\u11ab"
    assert Normalizer(normalization="nfkd").apply("É ﬁ") == "E\u0301 fi"
    assert Normalizer(lowercase=True).apply("ÀB") == "àb"
    assert Normalizer(normalization="nfkc", lowercase=True).apply("𝐀") == "a"


FORMS = {"none": None, "nfc": "NFC", "nfd": "NFD", "nfkc": "NFKC", "nfkd": "NFKD"}


def test_normalizer_is_idempotent_on_every_character() -> None:
    for form, promised in FORMS.items():
        normalizer = Normalizer(normalization=form, lowercase=True)
        for code in (*range(0x3000), *range(0xAC00, 0xB000)):
            once = normalizer.apply("A" + chr(code))
            assert normalizer.apply(once) == once
            assert promised is None or unicodedata.is_normalized(promised, once)


# Settings.


@section
class Recipe:
    tokenizer: TokenizerConfig


def test_settings_are_told_apart_by_kind() -> None:
    for config in (SubwordConfig(kind="unigram", size=500), CharactersConfig(), SymbolsConfig()):
        recipe = Recipe(tokenizer=config)
        assert parse(Recipe, to_dict(recipe)) == recipe


@pytest.mark.parametrize(
    ("settings_", "says"),
    [
        ({"kind": "bpe", "sise": 9000}, "did you mean 'size'"),
        ({"kind": "bpe", "size": 200}, "tokenizer.size"),
        ({"kind": "bpe", "character_coverage": 1.5}, "tokenizer.character_coverage"),
        ({"kind": "bpe", "character_coverage": 0.97}, "tokenizer.character_coverage"),
        ({"kind": "bpe", "normalization": "nfx"}, "tokenizer.normalization"),
        ({"kind": "characters", "size": 300}, "tokenizer.size is not a setting"),
        ({"kind": "words"}, "tokenizer.kind is 'words'"),
    ],
)
def test_wrong_settings_are_named(settings_: dict[str, object], says: str) -> None:
    with pytest.raises(SettingError) as error:
        parse(Recipe, {"tokenizer": settings_})
    assert says in one_line(error)


@pytest.mark.system
def test_tokenizers_need_no_torch() -> None:
    code = "import sys, transduce.text; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
