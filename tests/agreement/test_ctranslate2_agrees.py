"""CTranslate2 as an engine: the outputs and scores of our own search, from the same weights."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from helpers.random_translator import random_translator, some_lines
from helpers.same_translations import SHAPES as COMMON_SHAPES
from helpers.same_translations import SHORT, assert_same, both
from transduce import DecodingOptions
from transduce.nn.kernels.linear import Precision
from transduce.tasks.translation.ctranslate2 import with_ctranslate2
from transduce.tasks.translation.task import TrainedTranslator
from transduce.text import BOS, PAD

pytest.importorskip("ctranslate2", reason="needs the extra ctranslate2")


def by_ctranslate2(ours: TrainedTranslator, precision: Precision = "float32") -> TrainedTranslator:
    return with_ctranslate2(ours, precision)


SHAPES: dict[str, dict[str, Any]] = {
    **COMMON_SHAPES,
    "no positions": both(positions="none"),
    "norm of embeddings": both(embedding_norm=True, norm_epsilon=1e-3),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape_says_the_same(shape: str) -> None:
    ours, lines = random_translator(**SHAPES[shape]), some_lines()
    theirs = by_ctranslate2(ours)
    greedy = DecodingOptions(beam_size=1, **SHORT)
    beam = DecodingOptions(beam_size=4, length_penalty="mean", **SHORT)
    found = ours.translate(lines, greedy), ours.translate(lines, beam)
    assert len({len(one.tokens) for each in found for one in each}) > 3  # some end by themselves
    assert_same(found[0], theirs.translate(lines, greedy))
    assert_same(found[1], theirs.translate(lines, beam))


@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 4, "length_penalty": "none"},
        {"beam_size": 4, "length_penalty": "gnmt", "alpha": 1.0},
        {"beam_size": 4, "length_penalty": "gnmt", "alpha": 0.0},
        {"beam_size": 4, "length_penalty": "mean", "free_end": True},
        {"beam_size": 1, "free_end": True},
        {"beam_size": 4, "n_best": 2, "max_length_ratio": 2.0, "max_length_extra": 20},
        {"beam_size": 3, "max_length_ratio": 0.0, "max_length_extra": 1},
        {"beam_size": 3, "n_best": 2, "max_length_ratio": 0.0, "max_length_extra": 0},
        {"beam_size": 1, "min_length": 4, "min_length_ratio": 0.8},
        {"beam_size": 1, "no_repeat_ngram": 2},
        {"beam_size": 1, "prefix": "w3 w4"},
        {"beam_size": 1, "prefix": "w3 w4", "min_length": 5, "max_length_extra": 1},
        {"beam_size": 4, "n_best": 2, "minimum_risk": "bleu"},
    ],
    ids=str,
)
def test_every_option_that_it_follows_means_the_same(options: dict[str, Any]) -> None:
    ours, lines = random_translator(**both(norm_order="pre")), some_lines()
    asked = DecodingOptions(**{**SHORT, **options})
    assert_same(ours.translate(lines, asked), by_ctranslate2(ours).translate(lines, asked))


@pytest.mark.parametrize("penalty", ["none", "mean", "gnmt"])
def test_of_the_n_best_only_the_last_may_differ(penalty: Any) -> None:
    ours, lines = random_translator(), some_lines()
    asked = DecodingOptions(beam_size=4, n_best=4, length_penalty=penalty, **SHORT)
    found = by_ctranslate2(ours).translate(lines, asked)
    right = ours.translate(lines, asked)
    same = 0
    for own, other in zip(right, found, strict=True):
        mine, theirs = own.candidates, other.candidates
        assert [c.parts for c in mine[:2]] == [c.parts for c in theirs[:2]]
        same += [c.parts for c in mine] == [c.parts for c in theirs]
    assert same >= 0.9 * len(lines)


def test_each_line_has_its_own_options() -> None:
    ours, lines = random_translator(), some_lines()
    kinds = [
        DecodingOptions(beam_size=1, prefix="w5", **SHORT),
        DecodingOptions(beam_size=1, **SHORT),
        DecodingOptions(beam_size=1, min_length=6, **SHORT),
        DecodingOptions(beam_size=4, length_penalty="mean", **SHORT),
    ]
    each = [kinds[i % len(kinds)] for i in range(len(lines))]
    assert_same(ours.translate(lines, each), by_ctranslate2(ours).translate(lines, each))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_line_does_not_depend_on_its_neighbours(beam_size: int) -> None:
    theirs, lines = by_ctranslate2(random_translator()), some_lines()
    options = DecodingOptions(beam_size=beam_size, n_best=beam_size, **SHORT)
    together = theirs.translate(lines, options)
    assert_same(together, [theirs.translate([line], options)[0] for line in lines])
    few = dataclasses.replace(options, batch_tokens=20)
    assert_same(together, theirs.translate(lines, few))
    assert_same(together[::-1], theirs.translate(lines[::-1], options))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_padding_and_beginning_never_come_however_likely(beam_size: int) -> None:
    ours, lines = random_translator(trained=False), some_lines()
    theirs = by_ctranslate2(ours)
    options = DecodingOptions(beam_size=beam_size, n_best=beam_size, length_penalty="mean", **SHORT)
    found, right = theirs.translate(lines, options), ours.translate(lines, options)
    for translation in found:
        for candidate in translation.candidates:
            assert not {PAD, BOS} & {token for part in candidate.parts for token in part}
            scores = [c.score for c in translation.candidates]
            assert scores == sorted(scores, reverse=True)
    if beam_size == 1:
        assert_same(right, found)
    else:  # what it rules out costs nothing there, so that beams differ now and then
        same = sum(own.text == other.text for own, other in zip(right, found, strict=True))
        assert same >= 0.8 * len(lines)


def test_a_beam_wider_than_the_vocabulary() -> None:
    ours = random_translator(words=("w0", "w1"))
    options = DecodingOptions(beam_size=7, length_penalty="mean", **SHORT)
    lines = ["w0", "w0 w1 w1", "w1 w1 w1 w0"]
    found, right = by_ctranslate2(ours).translate(lines, options), ours.translate(lines, options)
    assert [t.tokens for t in found] == [t.tokens for t in right]


def test_scores_are_those_of_forced_scoring() -> None:
    theirs, lines = by_ctranslate2(random_translator()), some_lines()[:24]
    found = theirs.translate(lines, DecodingOptions(beam_size=4, **SHORT))
    forced = theirs.score(zip(lines, (translation.text for translation in found), strict=True))
    # "unknown" is written as U+FFFD, which is read as unknown again
    for translation, log_prob in zip(found, forced, strict=True):
        assert translation.log_prob == pytest.approx(log_prob, abs=1e-4)


def test_8_bits_are_close() -> None:
    ours, lines = random_translator(d_model=64), some_lines()[:24]
    theirs = by_ctranslate2(ours, "int8")
    options = DecodingOptions(beam_size=1, **SHORT)
    found, right = theirs.translate(lines, options), ours.translate(lines, options)
    same = [(a, b) for a, b in zip(found, right, strict=True) if a.tokens == b.tokens]
    assert len(same) > len(lines) / 3
    errors = [abs(a.log_prob - b.log_prob) / (len(b.tokens) + 1) for a, b in same]
    assert 1e-4 < sorted(errors)[len(errors) // 2] < 0.3
