"""Imported tokenizers give the ids that `transformers` gives, however they were saved."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import transformers
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from tokenizers import AddedToken

from helpers.hugging_face import change_json, write_json
from helpers.saved_tokenizers import FAMILIES, NAMES, saved
from transduce.interop.models import import_directory
from transduce.text import Tokenizer

WAYS = ("slow", "slow-older", "fast", "fast-older", "fast-alone", "file-alone")
ADDED = [
    AddedToken("covid", normalized=True),
    AddedToken("<ph1>", normalized=False),
    AddedToken("<Left>", lstrip=True, normalized=False),
    AddedToken("<right>", rstrip=True, normalized=True),
    AddedToken("Word", single_word=True, normalized=True),
    AddedToken("<|user|>", special=True, normalized=False),
    AddedToken("<|user|>!", special=True, normalized=False),
    AddedToken("two words", normalized=True),
    AddedToken("Élan", normalized=True),
    AddedToken("ab", normalized=False, single_word=True, lstrip=True, rstrip=True),
]
FURTHER = ["<|system|>", "<|user|>"]
PARTS = [
    *(token.content for token in ADDED),
    *FURTHER,
    *("the", "The", "WORD", "COVID", "élan", "e\u0301", "中", "a", "b", "X", "<", "|", ">>xyz<<"),
    *(" ", "  ", "\t", ".", "!", "", "\u00a0", "é", "12"),
]
TEXTS = st.lists(st.sampled_from(PARTS) | st.text(max_size=3), max_size=9).map("".join)


def ours_and_theirs(directory: Path, side: str = "") -> tuple[Any, Any]:
    """Functions that give a text the ids of the original vocabulary."""
    imported = import_directory(directory)
    tokenizer: Tokenizer = imported.tokenizers[f"{side}tokenizer"]
    rows = tokenizer.numbering.rows  # type: ignore[attr-defined]
    reference = transformers.AutoTokenizer.from_pretrained(directory)
    switch = {"text_target": "x"} if side == "target_" else {}

    def theirs(text: str) -> list[int]:
        given = {"text_target": text} if switch else {"text": text}
        ids: list[int] = reference(**given, add_special_tokens=False)["input_ids"]
        return ids

    return lambda text: [rows[i] for i in tokenizer.encode(text)], theirs


def is_plain(text: str, family: str) -> bool:
    """Check that a text holds no special token that is text here."""
    names = NAMES[FAMILIES[family][3]].values()
    lowered = text.lower()
    return not any(n in text or n.lower() in lowered for n in names)


CASES = [
    *((family, way) for family in ("bert", "distilbert", "roberta", "gpt2") for way in WAYS),
    *(("marian", way) for way in ("slow", "slow-older", "fast")),
    *(("unigram", way) for way in ("fast", "fast-older", "fast-alone")),
]


def agree(ours: Any, theirs: Any, family: str, examples: int) -> None:
    """Raises AssertionError unless both give the same ids of every text."""

    @hypothesis_settings(
        max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(TEXTS)
    def any_text(text: str) -> None:
        if is_plain(text, family):
            assert ours(text) == theirs(text), text

    for part in PARTS:
        for text in (part, f"a {part} b", f"x{part}y"):
            if is_plain(text, family):
                assert ours(text) == theirs(text), text
    any_text()


@pytest.mark.parametrize(("family", "way"), CASES)
def test_ids_agree(family: str, way: str, tmp_path: Path) -> None:
    directory = saved(family, way, tmp_path / "saved", ADDED, FURTHER)
    ours, theirs = ours_and_theirs(directory, "source_" if family == "marian" else "")
    for token in ("<ph1>", "<|user|>"):
        assert len(ours(token)) == 1  # and so are reached
    agree(ours, theirs, family, 100)


SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *(("bert", {"do_lower_case": said}) for said in (True, False)),
    *(("distilbert", {"strip_accents": said, "do_lower_case": False}) for said in (True, False)),
    ("bert", {"strip_accents": False, "tokenize_chinese_chars": False}),
    *((family, {"add_prefix_space": True}) for family in ("gpt2", "roberta")),
    ("unigram", {"add_prefix_space": False}),
    *((family, {"split_special_tokens": True}) for family in ("bert", "gpt2", "marian")),
    ("gpt2", {"user_token": "<|user|>", "extra_special_tokens": ["<|system|>"]}),
    ("bert", {"extra_special_tokens": {"left_token": "12"}}),
]


@pytest.mark.parametrize("written", ["before", "after"])
@pytest.mark.parametrize(("family", "said"), SETTINGS)
def test_settings_agree(family: str, said: dict[str, Any], written: str, tmp_path: Path) -> None:
    """Those that contradict `tokenizer.json`, as they are written after it, included."""
    way = "slow" if family == "marian" else "fast"
    before = said if written == "before" else {}
    directory = saved(family, way, tmp_path / "saved", ADDED, (), before)
    change_json(directory / "tokenizer_config.json", **said)
    ours, theirs = ours_and_theirs(directory, "source_" if family == "marian" else "")
    agree(ours, theirs, family, 30)


def test_vocabularies_of_two_sides(tmp_path: Path) -> None:
    directory = saved("marian", "slow", tmp_path / "saved", ADDED)
    pieces = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
    reverse = zip(pieces, reversed(pieces.values()), strict=True)
    others = {**dict(reverse), "</s>": 0, "<unk>": 1, "<pad>": 2}
    write_json(directory / "target_vocab.json", others)
    for separate in (True, False):  # which says whether the file counts
        change_json(directory / "tokenizer_config.json", separate_vocabs=separate)
        for side in ("source_", "target_"):
            agree(*ours_and_theirs(directory, side), "marian", 30)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_named_special_tokens_in_a_text_are_text(family: str, tmp_path: Path) -> None:
    """Which is where we part from transformers; further ones are tokens in both."""
    directory = saved(family, "fast", tmp_path / "saved", ADDED, FURTHER)
    ours, theirs = ours_and_theirs(directory)
    for name in NAMES[family].values():
        assert len(theirs(name)) == 1
        assert len(ours(name)) > 1
    assert ours("<|system|>") == theirs("<|system|>")
