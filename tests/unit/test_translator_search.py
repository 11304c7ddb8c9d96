"""Every way to search, by a small trained translator."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

import transduce
from helpers.reversing_run import LETTERS, WORDS, forced, some_texts, total
from helpers.tiny_run import reversal_pairs, tiny_settings, write_tsv
from transduce import DecodingOptions, Run, RunError, SettingError
from transduce.decoding.backend import Piece
from transduce.decoding.mbr import bleu_of_pairs, chrf_of_pairs, expected_utilities
from transduce.nn.attention import record_attention


@pytest.fixture(scope="module")
def run(on_each_engine: Run) -> Run:
    return on_each_engine


def some_phrases(chance: random.Random, max_source_length: int = 2) -> list[str]:
    count = chance.randint(0, 2)
    return [
        " ".join(chance.choices(LETTERS, k=chance.randint(1, max_source_length)))
        for _ in range(count)
    ]


def within(phrase: str, text: str) -> bool:
    return f" {phrase} " in f" {text} "


@pytest.mark.parametrize("beam_size", [1, 4])
def test_phrases_are_held_and_avoided_whatever_the_batch(run: Run, beam_size: int) -> None:
    chance, texts = random.Random(beam_size), some_texts(30)
    each = []
    for i in range(len(texts)):
        phrases = tuple(some_phrases(chance))
        banned = some_phrases(chance, 3) if i % 3 == 0 else []
        sayable = tuple(a for a in banned if not any(within(a, phrase) for phrase in phrases))
        each.append(
            DecodingOptions(
                beam_size=beam_size, n_best=beam_size, constraints=phrases, avoid=sayable
            )
        )
    translations = run.translate_batch(texts, each)
    for options, translation in zip(each, translations, strict=True):
        for candidate in translation.candidates:
            assert not any(within(phrase, candidate.text) for phrase in options.avoid)
            if not options.avoid:
                assert all(within(phrase, candidate.text) for phrase in options.constraints)
    for tokens in (1, 50):
        shortlisted = [dataclasses.replace(options, batch_tokens=tokens) for options in each]
        again = run.translate_batch(texts, shortlisted)
        assert [[c.text for c in t.candidates] for t in again] == [
            [c.text for c in t.candidates] for t in translations
        ]


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_equal_lines_are_decoded_once_but_sampled_each(
    run: Run, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    search = run.translator.backend.search

    def counted(pieces: Sequence[Piece], *rest: Any) -> Any:
        read.append(len(pieces))
        return search(pieces, *rest)

    monkeypatch.setattr(run.translator.backend, "search", counted)
    options = DecodingOptions(method=method, n_best=2, temperature=2.0)
    demanding = dataclasses.replace(options, constraints=("a a",))
    texts = ["abc", "de", "abc", "abc", "de", "abc"]
    each = [*[options] * 5, demanding]
    translations = run.translate_batch(texts, each)
    assert read[0] == (3 if method == "beam" else 6)
    assert sum(read[1:]) in (0, read[0])  # lines with constraints apart from the others
    for i, (text, own) in enumerate(zip(texts, each, strict=True)):
        alone = run.translator.translate([text], own, first=i)[0]
        assert [c.tokens for c in translations[i].candidates] == [
            c.tokens for c in alone.candidates
        ]
    assert len({translations[i].text for i in (0, 2, 3)}) == (1 if method == "beam" else 3)


def test_settings_of_a_line_are_those_of_the_line_alone(run: Run) -> None:
    kinds = [
        DecodingOptions(),
        DecodingOptions(beam_size=2, prefix="a b"),
        DecodingOptions(method="sample", seed=4),
        DecodingOptions(n_best=2, min_length_ratio=1.5),
    ]
    each = [kinds[i % len(kinds)] for i in range(len(WORDS))]
    together = run.translate_batch(WORDS, each)
    for i, options in enumerate(each):
        (alone,) = run.translate_batch([WORDS[i]], options, first=i)
        assert alone.text == together[i].text
        assert len(alone.candidates) == len(together[i].candidates)
    assert together[1].text.startswith("a b")
    assert len(together[7].tokens) >= 6
    with pytest.raises(SettingError, match="line 2: prefix: 'zz' has characters"):
        run.translate_batch(["a", "b"], [DecodingOptions(), DecodingOptions(prefix="zz")])


def test_coverage_is_what_attention_says(run: Run) -> None:
    options = DecodingOptions(beam_size=3, n_best=3, coverage_penalty=0.7, length_penalty="none")
    for text, translation in zip(WORDS, run.translate_batch(WORDS, options), strict=True):
        for candidate in translation.candidates:
            with record_attention(run.model) as maps:
                own = total(forced(run, text, candidate.text), run, candidate.text)
            (weights,) = maps["decoder.layers.0.cross_attention"]
            observed = weights[0].mean(0).sum(0).clamp(max=1.0)
            expected = own + 0.7 * float(observed.log().sum())
            assert candidate.log_prob == pytest.approx(own, abs=1e-4)
            assert candidate.score == pytest.approx(expected, abs=1e-4)
    assert run.model.decoder.layers[0].cross_attention.weights is None  # type: ignore


def test_groups_differ_more_than_one_beam(run: Run) -> None:
    def first_words(**options: Any) -> float:
        chosen = DecodingOptions(beam_size=6, n_best=6, **options)
        translations = run.translate_batch([w for w in WORDS if w], chosen)
        for translation in translations:
            texts = [candidate.text for candidate in translation.candidates]
            assert len(set(texts)) == len(texts)
        counts = [len({c.text[:1] for c in t.candidates}) for t in translations]
        return sum(counts) / len(counts)

    assert first_words(beam_groups=6, diversity=5.0) > first_words()
    # What two groups find is one output: the search goes on until there are as many as asked for.
    alike = DecodingOptions(beam_size=8, n_best=8, beam_groups=4, diversity=0.1)
    patient = dataclasses.replace(alike, stop="exact")
    for word in ("abc", "edcba", "dcab"):
        assert len(run.translate(word, alike).candidates) == 8
        assert len(run.translate(word, patient).candidates) == 8
    one = run.translate_batch(WORDS, DecodingOptions(beam_size=4, beam_groups=1))
    same = run.translate_batch(WORDS, DecodingOptions(beam_size=16, beam_groups=4))
    for alone, first in zip(one, same, strict=True):  # the first group is a beam by itself
        assert first.score >= alone.score - 1e-5


def test_repeats_cost_a_beam_too(run: Run) -> None:
    def repeats(penalty: float) -> int:
        options = DecodingOptions(repetition_penalty=penalty, min_length_ratio=1.0)
        translations = run.translate_batch(["aabbccdd", "eeeeee", "abababab"], options)
        for text, translation in zip(["aabbccdd", "eeeeee", "abababab"], translations, strict=True):
            own = total(forced(run, text, translation.text), run, translation.text)
            assert translation.log_prob == pytest.approx(own, abs=1e-4)
        return sum(len(t.tokens) - len(set(t.tokens)) for t in translations)

    assert repeats(5.0) < repeats(1.0)


# --- minimum risk --------------------------------------------------------------------------------


def test_utilities_are_sacrebleus() -> None:
    chance = random.Random(5)
    vocabulary = ["a", "bc", "the", "cat,", "dog.", "x", "hello"]
    texts = [" ".join(chance.choices(vocabulary, k=chance.randint(0, 9))) for _ in range(20)]
    texts = list(dict.fromkeys([*texts, "", "a", "the cat"]))
    bleu, chrf = bleu_of_pairs(texts), chrf_of_pairs(texts)
    by_bleu, by_chrf = BLEU(effective_order=True), CHRF()
    for i, hypothesis in enumerate(texts):
        for j, reference in enumerate(texts):
            known = by_bleu.sentence_score(hypothesis, [reference]).score
            assert bleu[i, j] == pytest.approx(known, abs=1e-6)
            known = by_chrf.sentence_score(hypothesis, [reference]).score
            assert chrf[i, j] == pytest.approx(known, abs=1e-6)


def test_expected_utilities_weigh_references() -> None:
    texts = ["the cat", "a dog", "the cat"]
    pairs = chrf_of_pairs(["the cat", "a dog"])
    result = expected_utilities(texts, [1.0, 2.0, 1.0], "chrf")
    assert result[0] == result[2] == pytest.approx((pairs[0, 0] + pairs[0, 1]) / 2)
    assert result[1] == pytest.approx((pairs[1, 0] + pairs[1, 1]) / 2)


@pytest.mark.parametrize("method", ["beam", "sample"])
def test_minimum_risk_takes_what_is_most_like_the_rest(run: Run, method: Any) -> None:
    pool = DecodingOptions(method=method, n_best=8, beam_size=8)
    options = DecodingOptions(
        method=method, n_best=2, beam_size=8, candidates=8, minimum_risk="chrf"
    )
    all_found = run.translate_batch(WORDS, pool)
    for every, chosen in zip(all_found, run.translate_batch(WORDS, options), strict=True):
        if not every.candidates:
            assert chosen.text == ""
            continue
        texts = [c.text for c in every.candidates]
        weights = [math.exp(c.log_prob) if method == "beam" else 1.0 for c in every.candidates]
        utilities = expected_utilities(texts, weights, "chrf")
        assert chosen.score == pytest.approx(max(utilities))
        assert chosen.text in texts and len(chosen.candidates) <= 2


# --- streaming -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        DecodingOptions(beam_size=1),
        DecodingOptions(beam_size=4),
        DecodingOptions(beam_size=4, constraints=("a a",), prefix="b"),
        DecodingOptions(method="sample", n_best=2, seed=3),
    ],
)
def test_a_stream_grows_to_the_translation(run: Run, options: DecodingOptions) -> None:
    for number, text in enumerate([*WORDS, "abcde" * 30]):
        parts = list(run.stream(text, options, number))
        (whole,) = run.translate_batch([text], dataclasses.replace(options, n_best=1), number)
        assert "".join(parts) == whole.text
    greedy = list(run.stream("abcdeabcde", DecodingOptions(beam_size=1)))
    assert sum(bool(part) for part in greedy) > 3


def test_a_closed_stream_searches_no_more(run: Run) -> None:
    stream = run.stream("abcdeabcde", DecodingOptions(beam_size=1))
    assert next(stream)
    stream.close()
    assert list(stream) == []
    assert torch.is_inference_mode_enabled() is False
    with pytest.raises(SettingError, match="minimum_risk"):
        run.stream("ab", DecodingOptions(minimum_risk="chrf"))


# --- what does not go together -------------------------------------------------------------------


def test_a_model_without_attention_has_no_coverage(tmp_path: Path) -> None:
    data = write_tsv(tmp_path / "a.tsv", reversal_pairs(50))
    settings = tiny_settings(data, "training.steps=1")
    stack = {"kind": "recurrent", "n_layers": 1, "dropout": 0.0}
    settings["model"].update(encoder=stack, decoder={**stack, "context": {"kind": "fixed"}})
    path, _ = transduce.train(settings, tmp_path / "run")
    model = transduce.load(path)
    with pytest.raises(RunError, match="cross-attention"):
        model.translate_batch(["ab"], DecodingOptions(coverage_penalty=0.2))
    assert model.translate_batch(["ab"], DecodingOptions(constraints=("c",)))[0].text.count("c")


def test_a_prefix_has_positions(run: Run) -> None:
    config = dataclasses.replace(run.translator.config, max_target_length=2)
    predictor: Any = dataclasses.replace(run.translator, config=config)
    short = dataclasses.replace(run, predictor=predictor)
    options = DecodingOptions(prefix="a b c")
    with pytest.raises(SettingError, match="prefix: 3 tokens exceed the 2"):
        short.translator.check(options)
    with pytest.raises(SettingError, match="line 1: prefix"):
        short.translate("ab", options)


def test_a_constraint_keeps_to_what_can_be_said(run: Run) -> None:
    options = DecodingOptions(constraints=(("a", "b c"),), avoid=("a",), beam_size=4, n_best=4)
    translations = run.translate("cccc", options)
    assert all(within("b c", candidate.text) for candidate in translations.candidates)
    with pytest.raises(SettingError, match="'a' or 'b a' is banned by avoid"):
        run.translate("ab", dataclasses.replace(options, constraints=(("a", "b a"),)))
