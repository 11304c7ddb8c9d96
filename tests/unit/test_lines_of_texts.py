"""A text of several lines keeps its line breaks; each line is translated as it would be alone."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import transduce
from helpers.tiny_run import train_tiny, write_tsv
from transduce import DecodingOptions, Run
from transduce.tasks.translation.quality_estimation import confidences
from transduce.tasks.translation.recipe import ExpectedTags
from transduce.tasks.translation.text_translator import Lines, lines_of

LONG = "abcde" * 6
TEXTS = [
    "abc\nde",
    "\nabc\r\n\r\n \nedcba\n",
    f"{LONG}\nab",
    "a\n\n\nb",
    "abc",
    "",
    " \n ",
    "a\rb\n",
]


@pytest.fixture(scope="module")
def run(on_each_engine: Run) -> Run:
    return on_each_engine


def test_what_breaks_a_line() -> None:
    assert lines_of("a\r\n\nb\rc\u2028d\n") == Lines(
        ("a", "", "b\rc\u2028d", ""), ("\r\n", "\n", "\n")
    )
    assert lines_of("\n ") == Lines(("\n ",))


@pytest.mark.parametrize("n_best", [1, 3])
def test_each_line_is_translated_by_itself(run: Run, n_best: int) -> None:
    options = DecodingOptions(beam_size=3, n_best=n_best)
    for text, result in zip(TEXTS, run.translate_batch(TEXTS, options), strict=True):
        if not text.strip():
            assert result.text == "" and not result.candidates
            continue
        lines = lines_of(text)
        alone = run.translate_batch(lines.texts, options)
        assert result.text == lines.with_breaks(one.text for one in alone)
        assert result.tokens == tuple(token for one in alone for token in one.tokens)
        assert result.log_prob == pytest.approx(sum(one.log_prob for one in alone), abs=1e-4)
        assert len(result.candidates) == n_best


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_stream_brings_the_breaks_along(run: Run, beam_size: int) -> None:
    options = DecodingOptions(beam_size=beam_size)
    for text in TEXTS:
        assert "".join(run.stream(text, options)) == run.translate(text, options).text


def test_prefix_and_constraints_are_of_the_first_line(run: Run) -> None:
    options = DecodingOptions(beam_size=4, prefix="e e", constraints=("d d",))
    first, blank, second = run.translate("\nab\n\ncd", options).text.split("\n")[1:]
    assert first.startswith("e e") and " d d" in first
    assert not blank and second == run.translate("cd", DecodingOptions(beam_size=4)).text


def test_confidences_go_with_the_tokens(run: Run) -> None:
    translations = run.translate_batch(TEXTS)
    for confidence, translation in zip(
        confidences(run.translator, TEXTS, translations), translations, strict=True
    ):
        if confidence is None:
            assert not translation.text
        else:
            assert len(confidence.token_log_probs) == len(translation.tokens)
            total = sum(confidence.token_log_probs) + sum(confidence.end_log_probs)
            assert total == pytest.approx(translation.log_prob, abs=1e-3)


def test_pairs_are_of_one_line_each(run: Run) -> None:
    (result,) = run.translator.translate_lines(["abc\nde"])
    assert "\n" not in result.text
    assert run.align("abc\nde").target[:-1] == result.tokens
    evaluation = run.evaluate(examples=[("abc\nde", "e d c b a"), ("ab", "b a")])
    assert evaluation.hypotheses[0] == result.text


def test_tags_count_for_all_lines(tmp_path: Path) -> None:
    pairs = [(f"<{tag}> {word}", word) for tag in "xy" for word in ("ab", "ba", "aab", "bb")]
    data = write_tsv(tmp_path / "a.tsv", pairs * 20)
    settings = ("training.steps=2", "data.filters.max_length=9")
    translator = transduce.load(train_tiny(data, tmp_path / "run", *settings)[0]).translator
    tags = ExpectedTags(translator.recipe.data.tags(), translator.source)  # type: ignore
    config = dataclasses.replace(translator.config, expected_tags=tags)
    tagged = dataclasses.replace(translator, config=config)
    decode = translator.source.decode
    assert [decode(ids) for ids in tagged.source_pieces("\n<x> ab\n\nba\n<y> bb")] == [
        "<x> ab",
        "<x> ba",
        "<y> bb",
    ]
    assert [decode(ids) for ids in tagged.source_pieces("ab\n<y> bb")] == ["ab", "<y> bb"]
