"""Hotwords gain a bonus, and give it back where they break off."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.toy_search import BOS, EOS, SIZE, decode, toy
from transduce.decoding.constraints import (
    Hotwords,
    OutputConstraints,
    Phrase,
    SearchHooks,
    TokenSurfaces,
    constraints_of,
)
from transduce.decoding.options import DecodingOptions
from transduce.errors import SettingError
from transduce.text import CharactersConfig, SubwordConfig, train_tokenizer

WORDS = range(3, SIZE)
phrases_of_words = st.lists(st.integers(3, SIZE - 1), min_size=1, max_size=4)


def hotwords(*phrases: Sequence[int], bonus: float = 1.0) -> Hotwords:
    return Hotwords([Phrase(tuple(ids)) for ids in phrases], bonus)


def total(boosted: Hotwords, ids: Sequence[int]) -> float:
    """Bonus of an output that ends."""
    return sum(boosted.gain(boosted.match(ids[:t]), token) for t, token in enumerate([*ids, EOS]))


def covered(ids: Sequence[int], phrase: Sequence[int]) -> int:
    """Tokens in occurrences of a phrase, from the left, without overlaps."""
    at = count = 0
    while at < len(ids):
        found = list(ids[at : at + len(phrase)]) == list(phrase)
        count += len(phrase) * found
        at += len(phrase) if found else 1
    return count


@given(phrase=phrases_of_words, ids=st.lists(st.integers(3, SIZE - 1), max_size=12))
@settings(max_examples=300, deadline=None)
def test_whole_phrases_alone_keep_their_bonus(phrase: list[int], ids: list[int]) -> None:
    boosted = hotwords(phrase, bonus=0.5)
    assert total(boosted, ids) == pytest.approx(0.5 * covered(ids, phrase))


@pytest.mark.parametrize(
    ("ids", "bonus"),
    [
        ([3, 4], 2),  # New York
        ([3, 4, 5], 3),  # New York City
        ([3, 4, 3], 2),  # New York New
        ([3, 4, 5, 3, 4], 5),
        ([3, 5], 0),
    ],
)
def test_a_phrase_may_begin_a_longer_one(ids: list[int], bonus: int) -> None:
    assert total(hotwords([3, 4], [3, 4, 5]), ids) == pytest.approx(bonus)


def test_a_phrase_inside_one_that_breaks_off_keeps_its_bonus() -> None:
    assert total(hotwords([5, 3, 4, 5], [3, 4]), [5, 3, 4, 3]) == pytest.approx(2)


@given(phrase=phrases_of_words, seed=st.integers(0, 9))
@settings(max_examples=25, deadline=None)
def test_the_best_output_is_that_of_the_model_and_the_bonus(phrase: list[int], seed: int) -> None:
    model, bonus = toy(seed), 0.8
    scores = {}
    for length in range(4):
        for ids in itertools.product(WORDS, repeat=length):
            read = (BOS, *ids, EOS)
            steps = [model.log_probs(0, read[:t])[read[t]] for t in range(1, len(read))]
            scores[ids] = sum(steps), sum(steps) + bonus * covered(ids, phrase)
    constraints = [OutputConstraints(hotwords=hotwords(phrase, bonus=bonus))]
    options = {"beam_size": 100, "stop": "exact", "length_penalty": "none"}
    ((best, *_),) = decode(model, [0], 3, hooks=SearchHooks(constraints), **options)
    first = max(scores, key=lambda ids: scores[ids][1])
    assert tuple(best.tokens) == first
    assert (best.log_prob, best.score) == pytest.approx(scores[first], abs=1e-5)


def test_a_longer_word_has_no_bonus() -> None:
    lines = ["anna and annabel sat", "the anna", "annabel"] * 9
    surfaces = TokenSurfaces(train_tokenizer(SubwordConfig(size=285), lines))
    options = DecodingOptions(hotwords=("anna",), hotword_bonus=2.0)
    boosted = constraints_of(options, lambda: surfaces).hotwords
    assert boosted is not None
    bonuses = []
    for text in ("the anna sat", "the annax sat", "the ann"):
        ids = surfaces.tokenizer.encode(text)
        bonuses.append(total(boosted, ids) / 2.0)
    assert bonuses == pytest.approx([len(surfaces.phrase("anna")), 0, 0])


def test_unknown_and_blank_hotwords() -> None:
    letters = TokenSurfaces(train_tokenizer(CharactersConfig(), ["abc"]))
    for text, message in ((" ", "hotwords: ' ' is blank"), ("é", "hotwords: 'é' has characters")):
        with pytest.raises(SettingError, match=message):
            constraints_of(DecodingOptions(hotwords=(text,)), lambda: letters)
